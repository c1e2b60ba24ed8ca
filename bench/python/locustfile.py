"""The scenario of bench/python/run for Locust: a login, a GET with headers and a check."""

from locust import FastHttpUser, constant, task


class User(FastHttpUser):
    wait_time = constant(0)

    def on_start(self):
        answer = self.client.post("/auth/login", json={"username": "u", "password": "p"})
        self.headers = {"Authorization": "Bearer " + answer.json()["access_token"]}

    @task
    def get(self):
        with self.client.get("/api/user", headers=self.headers, catch_response=True) as answer:
            if answer.status_code != 200 or answer.json()["id"] != 1:
                answer.failure("unexpected response")

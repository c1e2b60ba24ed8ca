"""The scenarios of bench/python/run, which send to the nginx of the bench. Each is named after the
case that it measures."""

from squall import VUser, scenario, task


class LoggedIn(VUser):
    async def on_start(self, client):
        answer = await client.post("/auth/login", json={"username": "u", "password": "p"})
        self.headers = {"Authorization": "Bearer " + answer.json()["access_token"]}


@scenario(name="await")
class Await(VUser):
    @task
    async def get(self, client):
        await client.get("/api/user")


@scenario(name="stepped")
class Stepped(LoggedIn):
    """Login, headers, json() and a check. It should cost at most 1.5 times the plain URL run."""

    @task
    async def get(self, client):
        answer = await client.get("/api/user", headers=self.headers)
        self.seen = answer.json()["name"]

    def check_get(self, status_code, body):
        assert status_code == 200
        assert body["id"] == 1


@scenario(name="plain")
class Plain(LoggedIn):
    @task
    def get(self, client):
        answer = client.get("/api/user", headers=self.headers)
        self.seen = answer.json()["name"]

    def check_get(self, status_code, body):
        assert status_code == 200
        assert body["id"] == 1


@scenario(name="batch5")
class Batch(LoggedIn):
    @task
    async def get(self, client):
        await client.batch(["/api/user"] * 5)


@scenario(name="thinking")
class Thinking(VUser):
    """Enough Python code that the interpreter is the limit, not the server."""

    @task
    async def get(self, client):
        answer = await client.get("/api/user")
        self.seen = sum(number * number for number in range(3000)) + answer.status_code

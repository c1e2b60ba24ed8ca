"""The scenario of bench/python/run for LoadPilot in its PyO3 mode: a login, a GET with headers and
a check."""

import os
from pathlib import Path

from loadpilot import LoadClient, VUser, scenario, task


@scenario(rps=int(os.environ["LP_RPS"]), duration=os.environ["LP_SECONDS"] + "s", mode="constant", ramp_up="0s")
class User(VUser):
    def on_start(self, client: LoadClient):
        answer = client.post("/auth/login", json={"username": "u", "password": "p"})
        Path(os.environ["LP_SEEN"]).touch()
        self.headers = {"Authorization": "Bearer " + answer.json()["access_token"]}

    @task()
    def get(self, client: LoadClient):
        client.get("/api/user", headers=self.headers)

    def check_get(self, status_code: int, body):
        assert status_code == 200
        assert body["id"] == 1

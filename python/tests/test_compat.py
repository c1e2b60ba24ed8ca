"""Old scenarios run unchanged where the packages they were written for are not installed."""

from __future__ import annotations

from squall._load import load

LOADPILOT = """
from loadpilot import VUser, scenario, task
from loadpilot.dsl import task as same

@scenario(rps=50, duration="1m30s", ramp_up="10s", thresholds={"p99_ms": 500, "error_rate": 1.0})
class CheckoutFlow(VUser):
    def on_start(self, client):
        answer = client.post("/auth/login", json={"username": "ann", "password": "pw"})
        self.token = answer.json()["access_token"]

    @task(weight=5)
    def browse(self, client):
        client.get("/api/products", headers={"Authorization": f"Bearer {self.token}"})

    @task
    async def both(self, client):
        await client.batch([{"method": "GET", "path": "/health"}, {"method": "GET", "path": "/api/products"}])

    def check_browse(self, status_code, body):
        assert status_code == 200
        assert body["products"]
"""

VIKHRY = """
from vikhry import VU, between, emit_metric, resource, step, ReqwestClient

@resource(name="users")
async def users(resource_id, ctx):
    return {"username": f"u{resource_id}", "password": "pw"}

class Shop(VU):
    http = ReqwestClient(base_url="")

    async def on_init(self, page: int = 1):
        self.page = page

    async def on_start(self):
        user = await self.resources.acquire("users")
        answer = await self.http.post("/auth/login", json={"username": user["username"], "password": "pw"})
        self.token = answer.json()["access_token"]

    @step(name="browse", weight=3.0)
    async def look(self):
        answer = await self.http.get("/api/products", params={"page": self.page})
        assert answer.status_code == 200
        emit_metric(name="seen", status=True, time=1.5)

    @step(requires=("browse",), every_s=between(0.001, 0.002), timeout=2.0)
    async def order(self):
        await self.http.post("/api/orders", json={"product_id": 1}, headers={"Authorization": f"Bearer {self.token}"})

    async def on_stop(self):
        await self.http.get("/health")
"""


def test_a_loadpilot_scenario_runs(run, tmp_path):
    ended = run(LOADPILOT, requests=12)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("browse")["requests"] == 10
    assert ended.metric("both")["requests"] == 2


def test_loadpilots_ramp_comes_before_its_run(write):
    loaded = load(str(write(LOADPILOT, head=False)))
    assert 'for = "100s"' in loaded.toml and 'ramp_up = "10s"' in loaded.toml


def test_a_vikhry_scenario_runs(run, target):
    before = target.counts()
    ended = run(VIKHRY, "--param", "page=2", requests=12, users=2)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("browse")["requests"] > 0 and ended.metric("order")["requests"] > 0
    assert target.counts()["/auth/login"] - before["/auth/login"] == 2
    assert target.counts()["/health"] - before["/health"] == 2

"""The API of a fleet that runs Python: it describes and checks a scenario's parameters and passes
them to every user."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any

import pytest
from fleet_kit import Fleet, eventually

SHOP = """
    from squall import VUser, task

    class Shop(VUser):
        async def on_init(self, path: str, size: int = 3, *, region="eu"):
            self.where = f"{path}-{size}-{region}"
            self.path = path

        @task
        async def look(self, client):
            await client.get(self.path, name=self.where)
"""


def call(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_api_describes_checks_and_passes_parameters(fleet: Fleet) -> None:
    fleet.join("w1")
    text = SHOP.replace("from squall import VUser, task", f"from squall import VUser, scenario, task\n\n    @scenario(target={fleet.target.url!r}, users=1, duration='1m', pause='20ms')")
    scenario = fleet.write("shop/shop.py", text)
    arguments = ("--redis", fleet.url, "--listen", "127.0.0.1:0", "--scenario", str(scenario))
    fleet.start("o1", "orchestrator", *arguments)
    said = eventually("the API", lambda: re.search(r"127\.0\.0\.1:\d+", fleet.said("o1")))
    api = f"http://{said.group()}"
    _, described = call(f"{api}/scenario/on_init_params")
    assert described["configured"] and not described["accepts_arbitrary_kwargs"]
    assert described["params"] == [
        {"name": "path", "kind": "positional_or_keyword", "required": True, "annotation": "str", "default": None},
        {"name": "size", "kind": "positional_or_keyword", "required": False, "annotation": "int", "default": 3},
        {"name": "region", "kind": "keyword_only", "required": False, "annotation": None, "default": "eu"},
    ]
    eventually("the worker to be heard", lambda: call(f"{api}/ready")[1]["alive_workers"] == 1)
    code, refused = call(f"{api}/start_test", {"users": 2, "init_params": {"paht": "/health"}})
    assert (code, refused["error"]["code"]) == (400, "validation_error") and "paht" in refused["error"]["message"]
    code, refused = call(f"{api}/start_test", {"users": 2, "init_params": {}})
    assert code == 400 and "path" in refused["error"]["message"], refused
    eventually("the fleet to be idle", lambda: call(f"{api}/ready")[1]["state"] == "IDLE")
    code, started = call(f"{api}/start_test", {"users": 2, "init_params": {"path": "/health", "size": 5}})
    assert code == 200, started
    names = lambda: [metric["metric_id"] for metric in call(f"{api}/metrics")[1]["metrics"]]  # noqa: E731
    eventually("requests", lambda: "/health-5-eu" in names())
    scrape = urllib.request.Request(f"{api}/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    with urllib.request.urlopen(scrape) as answer:
        assert "squall_api_bad_requests_total 2" in answer.read().decode()
    assert call(f"{api}/stop_test", {})[0] == 200


def test_api_shows_probe_results(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    text = f"""
        from squall import VUser, probe, scenario, task

        @probe(every="50ms")
        async def depth(context):
            answer = await context.client.get("/health", name="looked")
            return 7 if answer.ok else False

        @probe(every="50ms")
        def broken():
            raise ValueError("no such table")

        @scenario(target={fleet.target.url!r}, users=1, duration='1m', pause='20ms')
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
    """
    scenario = fleet.write("shop/shop.py", text)
    fleet.start("o1", "orchestrator", "--redis", fleet.url, "--listen", "127.0.0.1:0", "--scenario", str(scenario))
    api = "http://" + eventually("the API", lambda: re.search(r"127\.0\.0\.1:\d+", fleet.said("o1"))).group()
    eventually("the workers to be heard", lambda: call(f"{api}/ready")[1]["alive_workers"] == 2)
    code, started = call(f"{api}/start_test", {"users": 2})
    assert code == 200, started

    def seen() -> dict[str, Any]:
        return {probe["probe_name"]: probe for probe in call(f"{api}/probes")[1]["probes"]}

    eventually("both probes", lambda: {"depth", "broken"} <= set(seen()))
    found = eventually("a value", lambda: [event["data"] for event in seen()["depth"]["events"] if event["data"]["value"] is not None])
    assert found[0]["value"] == pytest.approx(7, rel=0.01) and found[0]["status"] is True, found[0]
    failures = eventually("a failure", lambda: seen()["broken"]["events"])
    assert failures[0]["data"]["status"] is False, failures[0]
    assert call(f"{api}/stop_test", {})[0] == 200


def test_worker_health_and_metrics_endpoints_respond(fleet: Fleet) -> None:
    fleet.start("w1", "worker", "--redis", fleet.url, "--id", "w1", "--listen", "127.0.0.1:0", "--expires-after", "2m")
    said = eventually("its address", lambda: re.search(r"127\.0\.0\.1:\d+(?=\D*healthz|\b.*healthz)|(?<=address=)127\.0\.0\.1:\d+", fleet.said("w1")))

    def ask(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{said.group()}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert ask("/healthz") == (200, "ok\n")
    eventually("it to be ready", lambda: ask("/readyz") == (200, "ready\n"))
    eventually("all shares", lambda: "squall_worker_shares 256" in ask("/metrics")[1])
    assert ask("/other")[0] == 404
    open_to_all = fleet.start("w2", "worker", "--redis", fleet.url, "--listen", "0.0.0.0:0")
    assert open_to_all.wait(60) == 2 and "--allow-remote" in fleet.said("w2")


def serve_api(fleet: Fleet, *arguments: str) -> str:
    """Starts an orchestrator and returns the URL of its API."""
    fleet.start("o1", "orchestrator", "--redis", fleet.url, "--listen", "127.0.0.1:0", *arguments)
    said = eventually("the API", lambda: re.search(r"127\.0\.0\.1:\d+", fleet.said("o1")))
    return f"http://{said.group()}"


#: No target in the file: the parameters of the test have it.
VIKHRY_SHOP = """
    from __future__ import annotations

    from vikhry import VU, ReqwestClient, resource, step

    @resource(name="users")
    async def users(resource_id, ctx):
        return {"username": f"u{resource_id}", "password": "pw"}

    class Shop(VU):
        async def on_init(self, base_url: str, path: str = "/health"):
            self.http = ReqwestClient(base_url=base_url)
            self.path = path

        @step(name="look", every_s=0.02)
        async def look(self):
            await self.http.get(self.path)
"""


def test_target_of_a_scenario_may_come_with_the_test(fleet: Fleet) -> None:
    fleet.join("w1")
    scenario = fleet.write("shop/shop.py", VIKHRY_SHOP)
    api = serve_api(fleet, "--scenario", str(scenario))
    described = call(f"{api}/scenario/on_init_params")[1]["params"]
    assert [(param["name"], param["annotation"]) for param in described] == [("base_url", "str"), ("path", "str")]
    assert [pool["resource_name"] for pool in call(f"{api}/resources")[1]["resources"]] == ["users"]
    eventually("the worker to be heard", lambda: call(f"{api}/ready")[1]["alive_workers"] == 1)

    assert call(f"{api}/create_resource", {"name": "users", "count": 2})[0] == 200
    items = call(f"{api}/resources/users/items")[1]["items"]
    assert sorted(item["username"] for item in items) == ["u1", "u2"], items

    code, started = call(f"{api}/start_test", {"users": 2, "init_params": {"base_url": fleet.target.url}})
    assert code == 200, started
    assert started["prepare_result"]["scenario_resources"] == ["users"]
    requests = lambda: {metric["metric_id"]: metric["aggregate_total"] for metric in call(f"{api}/metrics")[1]["metrics"]}  # noqa: E731
    seen = eventually("requests", lambda: requests().get("GET /health"))
    assert seen["errors"] == 0
    assert call(f"{api}/stop_test", {})[0] == 200


def test_orchestrator_takes_the_target_of_the_scenario(fleet: Fleet) -> None:
    fleet.join("w1")
    text = """
        from vikhry import VU, step

        class Shop(VU):
            @step(name="look", every_s=0.02)
            async def look(self):
                await self.http.get("/health")
    """
    api = serve_api(fleet, "--scenario", str(fleet.write("shop/shop.py", text)), "--target", fleet.target.url)
    eventually("the worker to be heard", lambda: call(f"{api}/ready")[1]["alive_workers"] == 1)
    code, started = call(f"{api}/start_test", {"users": 1})
    assert code == 200, started
    names = lambda: [metric["metric_id"] for metric in call(f"{api}/metrics")[1]["metrics"]]  # noqa: E731
    eventually("requests", lambda: "GET /health" in names())
    assert call(f"{api}/stop_test", {})[0] == 200

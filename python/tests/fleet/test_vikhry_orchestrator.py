"""A worker with a scenario of vikhry under vikhry's orchestrator. The test plays the orchestrator: it
writes the same keys and sends the same commands in the same order."""

from __future__ import annotations

import json
import time
from typing import Any

from fleet_kit import Fleet, eventually

SHOP = """
    from __future__ import annotations

    from vikhry import VU, ReqwestClient, probe, step

    @probe(name="version", every_s=0.2)
    async def version():
        return "1.4"

    class Shop(VU):
        async def on_init(self, base_url: str):
            self.http = ReqwestClient(base_url=base_url)

        @step(name="look", every_s=0.05)
        async def look(self):
            await self.http.get("/health")

        @step(name="pay", every_s=0.2, requires=("look",))
        async def pay(self):
            raise RuntimeError(f"user {self.user_id} cannot pay")
"""


class Orchestrator:
    """The commands of vikhry's orchestrator to the worker `w1`."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.epoch = fleet, 0

    def send(self, kind: str, **payload: Any) -> None:
        command = {"type": kind, "command_id": "8c6b7b0e", "epoch": self.epoch, "sent_at": int(time.time()), "payload": payload}
        assert self.fleet.redis("publish", "worker:w1:commands", json.dumps(command)) == "1", "the worker is subscribed"

    def start_test(self, users: int, **init_params: str) -> None:
        self.fleet.redis("set", "test:state", "PREPARING")
        self.epoch = int(self.fleet.redis("incr", "test:epoch"))
        self.send("start_test", target_users=users, init_params=init_params)
        for user in range(1, users + 1):
            self.fleet.redis("hset", f"user:{user}", "status", "pending", "worker_id", "w1", "updated_at", str(int(time.time())))
            self.send("add_user", user_id=user)
        self.fleet.redis("set", "test:state", "RUNNING")

    def stop_test(self) -> None:
        self.fleet.redis("set", "test:state", "STOPPING")
        self.send("stop_test")
        self.fleet.redis("set", "test:state", "IDLE")

    def active(self) -> set[str]:
        return set(self.fleet.redis("smembers", "worker:w1:active_users").split())

    def events(self, key: str) -> list[dict[str, Any]]:
        # redis-cli prints three lines per entry: id, `data` and the event.
        return [json.loads(event) for event in self.fleet.redis("xrange", key, "-", "+").split("\n")[2::3]]


def test_scenario_of_vikhry_runs_under_vikhrys_orchestrator(fleet: Fleet) -> None:
    scenario = fleet.write("shop.py", SHOP)
    before = fleet.target.counts().get("/health", 0)
    arguments = ("--redis", fleet.url, "--fleet", "", "--id", "w1", "--scenario", f"{scenario}:Shop", "--run-probes")
    worker = fleet.start("w1", "worker", *arguments)
    subscribed = lambda: fleet.redis("pubsub", "numsub", "worker:w1:commands").split()[-1] == "1"  # noqa: E731
    eventually("the worker to subscribe", subscribed, worker)
    orchestrator = Orchestrator(fleet)
    orchestrator.start_test(2, base_url=fleet.target.url)
    eventually("both users to run", lambda: orchestrator.active() == {"1", "2"})
    eventually("requests of both users", lambda: len(orchestrator.events("metric:GET /health")) >= 4)
    errors = eventually("a step that raises", lambda: [event for event in orchestrator.events("metric:pay") if not event["status"]])
    assert errors[0]["source"] == "step" and errors[0]["result_code"] == "RuntimeError", errors[0]
    assert all("cannot pay\n  at shop.py:20 in pay" in event["error_message"] for event in errors), errors
    probes = eventually("a value of the probe", lambda: orchestrator.events("probe:version"))
    assert probes[0]["value"] == "1.4" and probes[0]["worker_id"] == "w1", probes[0]

    orchestrator.send("remove_user", user_id=2)
    eventually("one user to stop", lambda: orchestrator.active() == {"1"})
    orchestrator.stop_test()
    eventually("the other user to stop", lambda: orchestrator.active() == set())
    sent = fleet.target.counts()["/health"] - before
    eventually("one event per request", lambda: len(orchestrator.events("metric:GET /health")) == sent)
    requests = orchestrator.events("metric:GET /health")
    assert {event["source"] for event in requests} == {"http"} and all(isinstance(event["ts_ms"], int) for event in requests)
    assert int(fleet.redis("hget", "worker:w1:status", "last_heartbeat")) > 0, "whole seconds"

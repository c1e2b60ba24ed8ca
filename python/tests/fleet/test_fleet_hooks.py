"""Set-up and tear-down on a fleet: once per run, also if the leader changes, with any number of
workers."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from fleet_kit import Fleet, eventually

SHOP = """
    import os, time
    from squall import VUser, scenario, set_up, task, tear_down

    PLACE = {place!r}

    def say(*words):
        with open(os.path.join(PLACE, "said"), "a") as file:
            print(*words, os.getpid(), file=file)

    def wait_for(name):
        while not os.path.exists(os.path.join(PLACE, name)):
            time.sleep(0.01)

    @set_up
    def prepare(params):
        say("set up", params)
        {set_up}
        return {{"path": "/health"}}

    @tear_down
    async def clean(made):
        say("tear down", made)
        {tear_down}

    @scenario(users=4, duration="{lasts}", pause="50ms")
    class Shop(VUser):
        @task
        async def look(self, client):
            await client.get(self.shared["path"])
"""


class Project:
    def __init__(self, fleet: Fleet, lasts: str = "2s", set_up: str = "pass", tear_down: str = "pass") -> None:
        self.place = fleet.folder / "place"
        self.place.mkdir()
        text = SHOP.format(place=str(self.place), lasts=lasts, set_up=set_up, tear_down=tear_down)
        self.scenario: Path = fleet.write("shop/shop.py", text)

    def said(self) -> list[str]:
        path = self.place / "said"
        return [line.rpartition(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []

    def allow(self, name: str) -> None:
        (self.place / name).touch()


def leader(fleet: Fleet, name: str) -> None:
    fleet.start(name, "orchestrator", "--redis", fleet.url, "--listen", "127.0.0.1:0", "--id", name)


def test_hooks_run_once_and_all_users_share_result(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    project = Project(fleet)
    ended = fleet.run(project.scenario, "--param", "size=3")
    result = fleet.result(ended)
    assert ended.returncode == 0 and result["totals"]["errors"] == 0 and result["totals"]["requests"] > 0, result["errors"]
    assert project.said() == ["set up {'size': 3}", "tear down {'path': '/health'}"]


@pytest.mark.parametrize("hook", ["set_up", "tear_down"])
def test_leader_killed_during_hook_does_not_repeat_it(fleet: Fleet, hook: str) -> None:
    fleet.join("w1", "w2")
    project = Project(fleet, **{hook: "wait_for('go')"})
    leader(fleet, "o1")
    eventually("the first to lead", lambda: "leads" in fleet.said("o1"))
    leader(fleet, "o2")
    eventually("the second to join", lambda: "joined" in fleet.said("o2"))
    run = fleet.begin(project.scenario)
    word = hook.replace("_", " ")
    eventually(f"the {word}", lambda: any(line.startswith(word) for line in project.said()))
    fleet.processes["o1"].send_signal(signal.SIGKILL)
    # Another process becomes the leader before the hook ends; either of the remaining two may.
    eventually("another to take the run up", lambda: "takes the run up" in fleet.said("o2") or led_by_another(fleet))
    project.allow("go")
    ended = fleet.wait(run)
    assert fleet.result(ended)["totals"]["requests"] > 0 and ended.returncode == 0, ended.stderr
    assert project.said() == ["set up {}", "tear down {'path': '/health'}"]


def led_by_another(fleet: Fleet) -> bool:
    held = fleet.redis("hgetall", "squall:{main}:lead:held")
    return "o1." not in held and ("o2." in held or "run-" in held)


def test_failed_set_up_ends_run_before_first_request(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    project = Project(fleet, set_up="raise ValueError('no shop today')")
    ended = fleet.run(project.scenario)
    assert ended.returncode == 2 and "set-up failed on worker w" in ended.stderr and "no shop today" in ended.stderr, ended.stderr
    assert project.said() == ["set up {}"]


def test_set_up_of_killed_worker_is_not_repeated(fleet: Fleet) -> None:
    fleet.join("w1", "w2", patience="3500ms")
    project = Project(fleet, set_up="wait_for('never')")
    run = fleet.begin(project.scenario)
    eventually("the set-up", project.said)
    order = json.loads(fleet.redis("get", "squall:{main}:test:order"))
    name = order["set_up"]["worker"]
    fleet.processes[name].kill()
    ended = fleet.wait(run)
    assert ended.returncode == 2 and f"worker {name} was lost during set-up" in ended.stderr, ended.stderr
    assert project.said() == ["set up {}"]

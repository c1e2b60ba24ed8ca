"""Workers whose scenario does not return: they still leave when they are asked to."""

from __future__ import annotations

import pytest
from fleet_kit import Fleet, eventually

HANGS = {
    "waits": "time.sleep(3600)",
    "computes": "while True: pass",
    "holds the interpreter": 're.match(r"(a+)+b", "a" * 60)',
}


@pytest.mark.parametrize("case", HANGS)
def test_worker_whose_scenario_hangs_at_import_ends_at_sigterm(fleet: Fleet, case: str) -> None:
    fleet.join("w1")
    mark = fleet.folder / "imports"
    scenario = fleet.write(
        "hangs.py",
        f"""
        import re, time
        from squall import VUser, task
        if not __file__.startswith({str(fleet.folder)!r}):  # in the worker's copy
            open({str(mark)!r}, "w").close()
            {HANGS[case]}

        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
        """,
    )
    run = fleet.begin(scenario, "--users", "1", "--requests", "1")
    eventually("the worker to import the scenario", mark.exists)
    worker = fleet.processes["w1"]
    worker.terminate()
    assert worker.wait(30) == 0, fleet.said("w1")
    run.kill()
    run.communicate()

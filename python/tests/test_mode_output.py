"""The mode and its reason in the output of `squall run` and `squall check`."""

from __future__ import annotations

SHOP = """
from squall import VUser, scenario, task

@scenario(users=1)
class Shop(VUser):
    @task
    async def look(self, client):
        answer = await client.get("/health")
        assert answer.status_code == 200
"""


def test_run_prints_mode_and_reason(squall, write, target):
    scenario = str(write(SHOP, "shop.py"))
    ended = squall("run", scenario, "--target", target.url, "--requests", "2")
    assert ended.code == 0 and "mode stepped: the engine resumes its code itself, because" in ended.stderr, ended.stderr
    ended = squall("run", scenario, "--target", target.url, "--requests", "2", "--quiet")
    assert ended.code == 0 and "mode" not in ended.stderr, ended.stderr


def test_check_command_prints_mode_without_target(squall, write):
    scenario = str(write(SHOP, "shop.py"))
    ended = squall("run", "--check", scenario)
    assert ended.code == 0 and "mode stepped" in ended.stdout and "against no target yet (--target URL)" in ended.stdout, ended
    ended = squall("run", scenario)
    assert ended.code == 2 and "there is no target" in ended.stderr, ended

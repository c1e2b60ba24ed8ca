"""Set-up and tear-down of a run on one machine."""

from __future__ import annotations

import pytest

SHOP = """
        @set_up
        def prepare():
            print("set up")
            return {"path": "/health"}

        @tear_down
        def clean(made):
            print("tear down", made["path"])

        class Shop(VUser):
            @task
            async def look(self, client):
                await client.get(self.shared["path"], name="mine")
        """


@pytest.mark.parametrize("how", [(), ("--processes", "2"), ("--mode", "asyncio")])
def test_set_up_and_tear_down_run_once_around_users(run, how):
    ended = run(SHOP, *how, users=2, requests=10)
    assert ended.result["totals"]["errors"] == 0 and "mine" in ended.names(), ended.messages()
    assert ended.stdout.count("set up") == 1 and ended.stdout.count("tear down /health") == 1


def test_failed_set_up_sends_no_request(squall, write):
    path = write(SHOP.replace('print("set up")', "1 / 0"))
    ended = squall("run", str(path), "--target", "http://127.0.0.1:9", "--users", "1", "--for", "1s")
    assert ended.code == 2 and "set-up failed: ZeroDivisionError" in ended.stderr and "shop.py:" in ended.stderr, ended.stderr


def test_failed_tear_down_is_reported_with_result(run):
    ended = run(SHOP.replace('print("tear down", made["path"])', "raise ValueError('still there')"))
    assert "tear-down failed: ValueError: still there" in ended.stderr
    assert ended.result["totals"]["requests"] == 5 and ended.result["totals"]["errors"] == 0
    failed = [error for error in ended.result["errors"] if error["code"] == "TEAR_DOWN_FAILED"]
    assert len(failed) == 1 and failed[0]["message"].startswith("ValueError: still there"), ended.result["errors"]
    assert "still there" in ended.stdout, "the summary says so too"
    assert ended.code == 0, "what was measured is judged by itself"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@set_up\ndef a(): ...\n@set_up\ndef b(): ...\n", "@set_up is already defined in line"),
        ("@set_up\ndef a(x, y): ...\n", "takes at most one argument"),
    ],
)
def test_invalid_hook_is_rejected_with_line(squall, write, text, said):
    path = write(text + "class Shop(VUser):\n    @task\n    async def go(self, client): ...\n")
    ended = squall("run", str(path), "--target", "http://127.0.0.1:9", "--users", "1", "--for", "1s")
    assert ended.code == 2 and said in ended.stderr and "shop.py:" in ended.stderr, ended.stderr

"""Cancellation of every await in every mode: no run hangs, every request is accounted for, and an
unsent request is not counted as sent."""

from __future__ import annotations

import json
import subprocess
import textwrap

import pytest
from squall_command import SQUALL

#: Awaits that never end by themselves.
WAITS = {
    "a request": 'await client.get("/delay/60000", name="waited")',
    "a batch": 'await client.batch([{"path": "/delay/60000", "name": "waited"}] * 3)',
    "a pause": "await sleep(600)",
    "a stream": 'await self.streamed(client)',
    "after a request": 'await client.get("/health")\n                await client.get("/delay/60000", name="waited")',
}

SCENARIO = """
        import asyncio

        class Shop(VUser):
            {fn} streamed(self, client):
                {with_} client.stream("GET", "/delay/60000", name="waited") as answer:
                    {wait}answer.chunk()

            @task{timeout}
            {fn} stuck(self, client):
                try:
                    {body}
                finally:
                    emit_metric("let go")
"""

MODES = {"stepped": ("async def", "stepped"), "asyncio": ("async def", "asyncio"), "plain": ("def", "stepped")}


def scenario(mode: str, wait: str, timeout: str) -> tuple[str, str]:
    fn, flag = MODES[mode]
    plain = fn == "def"
    body = WAITS[wait].replace("\n                ", "\n                    ")
    code = SCENARIO.format(fn=fn, wait="" if plain else "await ", with_="with" if plain else "async with", timeout=timeout, body=body)
    return (code.replace("await ", "") if plain else code), flag


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("mode", MODES)
def test_task_timeout_ends_every_await(run, mode, wait):
    code, flag = scenario(mode, wait, "(timeout=0.05)")
    ended = run(code, "--mode", flag, requests=2, timeout=120)
    assert ended.metric("stuck")["requests"] == ended.metric("stuck")["errors"] == 2, ended.messages()
    assert "TaskTimeout" in ended.messages()
    assert ended.metric("let go")["requests"] == 2


#: Waits of several steps that never end by themselves.
LONGER = {
    "the opening of a WebSocket": 'async with client.websocket("/delay/60000"):\n    pass',
    "what a WebSocket says": 'async with client.websocket("ws://{live}/echo", headers={"X-One": "1"}) as feed:\n    while True:\n        await feed.receive()',
    "events": 'async with client.stream("GET", "/delay/60000") as answer:\n    async for event in events(answer):\n        pass',
    "a resource": 'self.one = await self.resources.acquire("one")\nawait self.resources.acquire("one", wait=600)',
    "a procedure": 'await JsonRPCClient(client, "/delay/60000").call("sum")',
}


@pytest.mark.parametrize("wait", LONGER)
@pytest.mark.parametrize("mode", MODES)
def test_task_timeout_ends_websocket_stream_and_resource_waits(run, live, mode, wait):
    fn, flag = MODES[mode]
    body = LONGER[wait].replace("{live}", live)
    code = f"""
        @resource("one", limit=1)
        def one(n): return {{"n": n}}

        class Shop(VUser):
            @task(timeout=1)
            {fn} stuck(self, client):
                try:
{textwrap.indent(body, " " * 20)}
                finally:
                    emit_metric("let go")
    """
    if fn == "def":
        code = code.replace("async with", "with").replace("async for", "for").replace("await ", "")
        code = code.replace("events(", "events_blocking(").replace(".call(", ".call_blocking(")
    ended = run(code, "--mode", flag, requests=2, timeout=120)
    assert ended.metric("stuck")["requests"] == ended.metric("stuck")["errors"] == 2, ended.messages()
    assert "TaskTimeout" in ended.messages(), ended.messages()
    assert ended.metric("let go")["requests"] == 2


CLEAN_UP = """
        class Shop(VUser):
            @task(timeout=0.2)
            {fn} locked(self, client):
                await client.get("/health", name="lock")
                try:
                    {body}
                finally:
                    await client.post("/echo", name="unlock")
                    await sleep(0.01)
                    emit_metric("cleaned up")
"""
UNTIL = {"a request": 'await client.get("/delay/60000", name="waited")', "a pause": "await sleep(600)", "a loop": "self.n = 0\n                    while True: self.n += 1"}


@pytest.mark.parametrize("until", UNTIL)
@pytest.mark.parametrize("mode", MODES)
def test_timed_out_task_can_send_cleanup_request(run, target, mode, until):
    fn, flag = MODES[mode]
    code = CLEAN_UP.format(fn=fn, body=UNTIL[until])
    before = target.counts().get("/echo", 0)
    ended = run(code.replace("await ", "") if fn == "def" else code, "--mode", flag, requests=2, timeout=120)
    assert target.counts()["/echo"] - before == ended.metric("unlock")["requests"] == ended.metric("cleaned up")["requests"] == 2
    assert ended.metric("unlock")["errors"] == 0, "the clean-up request does not fail"
    assert ended.metric("locked")["errors"] == ended.result["totals"]["errors"] == 2, ended.messages()
    assert "TaskTimeout" in ended.messages() and ended.stderr.count("Traceback") == 0, ended.stderr


@pytest.mark.parametrize("mode", MODES)
def test_task_that_ignores_cancellation_ends_without_warnings(run, mode):
    fn, flag = MODES[mode]
    code = """
        import asyncio
        class Shop(VUser):
            @task(timeout=0.05)
            {fn} stubborn(self, client):
                while True:
                    try:
                        await client.get("/health")
                        await sleep(0.1)
                    except BaseException:
                        pass

            @task
            {fn} swallows(self, client):
                try:
                    await client.get("/delay/60000")
                finally:
                    await client.get("/health")
                    await sleep(1)
    """.replace("{fn}", fn)
    code = code.replace("await ", "") if fn == "def" else code
    ended = run(code, "--mode", flag, "--for", "1s", "--grace", "8s", requests=None, users=4, timeout=120)
    assert ended.metric("stubborn")["errors"] >= 2, ended.messages()
    for noise in ("ignored", "GreenletExit", "destroyed", "not awaited", "Traceback", "Warning"):
        assert noise not in ended.stderr, ended.stderr


@pytest.mark.parametrize("wait", ["a request", "a batch", "a pause", "a stream"])
@pytest.mark.parametrize("mode", MODES)
def test_end_of_run_ends_every_await(run, mode, wait):
    code, flag = scenario(mode, wait, "")
    ended = run(code, "--mode", flag, "--for", "300ms", "--grace", "100ms", requests=None, users=2, timeout=120)
    # Pending requests are recorded as aborted; `run` has checked that the accounting balances.
    if wait in ("a request", "a batch"):
        assert ended.metric("waited")["errors"] == ended.metric("waited")["requests"] >= 1


def test_request_without_file_descriptor_is_not_counted_as_sent(write, target, tmp_path):
    path = write(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                try:
                    self.status = (await client.get("/health")).status_code
                except RequestError as error:
                    assert error.code == "LOCAL_LIMIT", error.code
        """
    )
    before = target.counts().get("/health", 0)
    command = " ".join([*SQUALL, "run", str(path), "--target", target.url, "--users", "200", "--requests", "600", "--json", "r.json"])
    done = subprocess.run(["sh", "-c", f"ulimit -n 100; exec {command}"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    result = json.loads((tmp_path / "r.json").read_text())
    books = result["accounting"]
    assert books["balanced"] and books["unsent"] > 0, (books, done.stderr)
    assert target.counts()["/health"] - before == books["sent"]

"""Cancellation in every await and every mode: nothing hangs, nothing is lost from the books; and what never left is not counted as sent."""

from __future__ import annotations

import json
import subprocess

import pytest
from running import SQUALL

#: Things that would never end by themselves.
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
def test_a_timeout_ends_every_await(run, mode, wait):
    code, flag = scenario(mode, wait, "(timeout=0.05)")
    ended = run(code, "--mode", flag, requests=2, timeout=120)
    assert ended.metric("stuck")["requests"] == ended.metric("stuck")["errors"] == 2, ended.messages()
    assert "TaskTimeout" in ended.messages()
    if mode != "asyncio":
        # There, code that does not end within a second of being cancelled is left to itself.
        assert ended.metric("let go")["requests"] == 2


@pytest.mark.parametrize("wait", ["a request", "a batch", "a pause", "a stream"])
@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_a_run_cuts_every_await(run, mode, wait):
    code, flag = scenario(mode, wait, "")
    ended = run(code, "--mode", flag, "--for", "300ms", "--grace", "100ms", requests=None, users=2, timeout=120)
    # Whatever was under way is in the books as aborted; `run` has checked that they balance.
    if wait in ("a request", "a batch"):
        assert ended.metric("waited")["errors"] == ended.metric("waited")["requests"] >= 1


def test_what_found_no_descriptor_is_not_counted_as_sent(write, target, tmp_path):
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

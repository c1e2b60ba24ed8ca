"""Code that blocks its thread: interrupted where possible, reported otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
from squall_command import SQUALL

LOOPS = {
    "stepped": ("async def", "stepped", ""),
    "asyncio": ("async def", "asyncio", ""),
    "asyncio after a sleep": ("async def", "asyncio", "await asyncio.sleep(0.001)"),
    "plain": ("def", "stepped", ""),
    "after a request": ("async def", "stepped", 'await client.get("/health")'),
}


@pytest.mark.parametrize("case", LOOPS)
def test_endless_loop_is_interrupted_at_task_timeout(run, case):
    fn, mode, before = LOOPS[case]
    ended = run(
        f"""
        import asyncio
        class Shop(VUser):
            @task(timeout=0.1)
            {fn} endless(self, client):
                {before or "pass"}
                while True:
                    pass

            @task
            async def fine(self, client):
                await client.get("/health", name="fine one")
        """,
        "--mode",
        mode,
        requests=4,
        timeout=60,
    )
    assert ended.metric("endless")["errors"] == 2
    assert ended.metric("fine")["errors"] == 0 and ended.metric("fine one")["requests"] == 2
    assert "TaskTimeout" in ended.messages() and " in endless" in ended.messages()


@pytest.mark.parametrize("case", LOOPS)
def test_endless_loop_ends_with_grace_period_of_run(run, case):
    fn, mode, before = LOOPS[case]
    ended = run(
        f"""
        import asyncio
        class Shop(VUser):
            {fn} on_start(self, client):
                self.mine = 1

            @task
            {fn} endless(self, client):
                {before or "pass"}
                while True:
                    pass
        """,
        "--mode",
        mode,
        "--for",
        "1s",
        "--grace",
        "0.1s",
        requests=None,
        users=2,
        timeout=90,
    )
    assert "KeyboardInterrupt" in ended.messages() and " in endless" in ended.messages(), ended.messages()


@pytest.mark.parametrize(("mode", "before"), [("stepped", "pass"), ("asyncio", "pass"), ("asyncio", "await asyncio.sleep(0.001)")])
def test_code_that_blocks_thread_is_reported(run, mode, before):
    ended = run(
        f"""
        import asyncio, time
        class Shop(VUser):
            @task
            async def nap(self, client):
                {before}
                time.sleep(1.5)
                await client.get("/health")
        """,
        "--mode",
        mode,
        requests=1,
        timeout=60,
    )
    assert "held the generator's thread at shop.py:8 in nap" in ended.messages()
    assert ended.metric("(held thread)")["errors"] == 1


def interrupted(write, target, tmp_path, code, presses):
    """Starts a scenario, waits for its first output and sends SIGINT several times. Returns exit
    code and output."""
    mark = tmp_path / "running"
    path = write(f"MARK = {str(mark)!r}\n" + code)
    arguments = ["run", str(path), "--target", target.url, "--users", "1", "--for", "1h", "--no-tui", "--mode", "stepped"]
    process = subprocess.Popen([*SQUALL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < deadline and process.poll() is None
        os.sched_yield()
    for expected in presses:
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if expected in line:
                break
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


SPINNING = """
class Shop(VUser):
    @task
    async def endless(self, client):
        open(MARK, "w").close()
        while True:
            pass
"""


def test_second_interrupt_ends_endless_loop(write, target, tmp_path):
    code, said = interrupted(write, target, tmp_path, SPINNING, ["draining", "aborting"])
    assert code == 130
    assert "accounting" in said, said


def test_first_interrupt_drains_python_code(write, target, tmp_path):
    code, said = interrupted(
        write,
        target,
        tmp_path,
        """
class Shop(VUser):
    @task
    async def go(self, client):
        await client.get("/health")
        open(MARK, "w").close()

    async def on_stop(self, client):
        await client.get("/bytes/1", name="on_stop was here")
""",
        ["draining"],
    )
    assert code == 130 and "on_stop was here" in said
    assert "Traceback" not in said


HOOKS = """
@set_up
def prepare():
    {}

@tear_down
def clean(made):
    {}

class Shop(VUser):
    @task
    async def go(self, client):
        await client.get("/health")
"""
ENDLESS = 'open(MARK, "w").close()\n    while True:\n        pass'


def until_it_hangs(write, target, tmp_path, hooks, *more):
    """Starts a run of three requests and waits until its endless set-up or tear-down has begun."""
    mark, path = tmp_path / "running", write("")
    path.write_text("from squall import *\n" + f"MARK = {str(mark)!r}\n" + hooks)
    arguments = ["run", str(path), "--target", target.url, "--users", "1", "--requests", "3", "--no-tui", *more]
    process = subprocess.Popen([*SQUALL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < deadline and process.poll() is None
        os.sched_yield()
    return process


def test_second_interrupt_ends_tear_down_and_keeps_result(write, target, tmp_path):
    process = until_it_hangs(write, target, tmp_path, HOOKS.format("return {}", ENDLESS), "--json", "result.json")
    said = press_until_it_ends(process)
    assert "tear-down failed: KeyboardInterrupt" in said, said
    assert json.loads((tmp_path / "result.json").read_text())["totals"]["requests"] == 3


def test_second_interrupt_ends_set_up(write, target, tmp_path):
    process = until_it_hangs(write, target, tmp_path, HOOKS.format(ENDLESS, "pass"))
    said = press_until_it_ends(process)
    assert "set-up failed: KeyboardInterrupt" in said and process.returncode == 2, said


def press_until_it_ends(process):
    """Sends SIGINT twice. Pending signals merge into one, so a stalled machine may need a third."""
    for patience in (1, 30, 60):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=patience)
            return out + err
    process.kill()
    return "still running"


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_computation_that_delays_responses_is_reported_as_generator_delay(run, mode):
    ended = run(
        """
        import time
        class Shop(VUser):
            @task
            async def compute(self, client):
                await client.get("/health")
                until = time.perf_counter() + 0.03
                while time.perf_counter() < until:
                    pass
        """,
        "--mode",
        mode,
        "--strict",
        requests=60,
        users=6,
    )
    generator = ended.result["generator"]
    assert generator["saturated"] and ended.code == 4, ended.stdout
    assert any("code of " in reason and "held the generator's thread" in reason for reason in generator["saturated_because"]), generator


def test_computation_that_delays_no_response_is_not_reported(run):
    ended = run(
        """
        import time
        class Shop(VUser):
            @task
            async def compute(self, client):
                await client.get("/health")
                time.sleep(0.02)
        """,
        "--mode",
        "stepped",
        requests=20,
        users=1,
    )
    assert not [name for name in ended.names() if name.startswith("(held by")], ended.names()

"""`--processes N`: one run, one report, exact counts, with any number of processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from squall_command import SQUALL

SHOP = """
    import os
    @resource("accounts")
    def account(n):
        return {"n": n}

    class Shop(VUser):
        async def on_start(self, client):
            mine = await self.resources.acquire("accounts")
            await client.get(f"/bytes/{mine['n']}", name="start")

        @task(weight=3)
        async def look(self, client):
            answer = await client.get("/health")
            assert answer.ok
            emit_metric(f"process {os.getpid()}", time=1)

        @task
        def other(self, client):
            client.get("/bytes/7")

        async def on_stop(self, client):
            await client.get("/echo", name="stop")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_send_exact_request_count(run, target, processes):
    before = target.counts()
    ended = run(SHOP, "--processes", str(processes), users=6, requests=400, timeout=40)
    after = target.counts()
    assert ended.code == 0
    assert ended.metric("look")["requests"] + ended.metric("other")["requests"] == 400
    assert ended.metric("start")["requests"] == ended.metric("stop")["requests"] == 6
    seen = {path: after[path] - before[path] for path in after if after[path] != before[path]}
    assert seen["/health"] == ended.metric("GET /health")["requests"] and seen["/echo"] == 6
    # Python without the GIL runs them as threads of one process.
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert len([name for name in ended.names() if name.startswith("process ")]) == (processes if locked else 1)
    assert ended.result["generator"]["threads"] == processes


def test_several_processes_start_every_iteration_of_rate_once(run):
    ended = run(SHOP, "--processes", "2", "--rate", "100", "--for", "3s", users=None, requests=None, timeout=60)
    assert ended.metric("look")["requests"] + ended.metric("other")["requests"] == 300


def test_resources_are_unique_across_processes(run, tmp_path):
    run(
        f"""
        import glob, os
        @resource("accounts")
        def account(n):
            return {{"n": n}}
        class Shop(VUser):
            async def on_start(self, client):
                mine = await self.resources.acquire("accounts")
                open(os.path.join({str(tmp_path)!r}, f"account-{{mine['n']}}"), "x").close()
            @task
            async def go(self, client):
                # Or a user that is slow to start finds that the others have done all there was to do.
                while len(glob.glob(os.path.join({str(tmp_path)!r}, "account-*"))) < 20:
                    await sleep(0.01)
                await client.get("/health")
        """,
        "--processes",
        "2",
        users=20,
        requests=60,
        timeout=60,
    )
    assert len(list(tmp_path.glob("account-*"))) == 20


def test_thresholds_and_failures_cover_all_processes(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                raise ValueError("raised in a process")
        """,
        "--processes",
        "2",
        "--threshold",
        "error_rate<1%",
        users=4,
        requests=100,
        timeout=60,
    )
    assert ended.code == 1
    assert ended.metric("go")["errors"] == 100 and "raised in a process" in ended.messages()


def started(write, target, tmp_path, processes="2"):
    path = write(
        f"""
        import os
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                open(os.path.join({str(tmp_path)!r}, f"pid-{{os.getpid()}}"), "w").close()
        """
    )
    arguments = ["run", str(path), "--target", target.url, "--users", "4", "--for", "1h", "--no-tui", "--processes", processes]
    process = subprocess.Popen([*SQUALL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("pid-*"))) < int(processes):
        assert time.monotonic() < deadline and process.poll() is None
        os.sched_yield()
    return process, [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_ended(pids):
    """Waits until all processes have ended."""
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        os.sched_yield()


def test_interrupt_drains_all_processes(write, target, tmp_path):
    process, pids = started(write, target, tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "sent = recorded = reported" in out
    wait_until_ended(pids)


def test_killed_parent_ends_child_processes(write, target, tmp_path):
    process, pids = started(write, target, tmp_path)
    process.kill()
    process.wait()
    wait_until_ended(pids)


def test_killed_child_process_ends_run_with_error(write, target, tmp_path):
    process, pids = started(write, target, tmp_path)
    os.kill(pids[0], signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, 1, 130), err
    assert "process" in err
    wait_until_ended(pids)


def test_invalid_scenario_is_reported_once_for_all_processes(squall, write):
    ended = squall("run", str(write("x = = 1")), "--processes", "2")
    assert ended.code == 2 and ended.stderr.count("not valid Python") == 1


def test_drain_message_counts_in_flight_of_all_processes(write, target, tmp_path):
    path = write(
        """
        import asyncio

        class Shop(VUser):
            @task
            async def wait(self, client):
                await asyncio.sleep(600)
        """
    )
    command = [*SQUALL, "run", str(path), "--target", target.url, "--processes", "2", "--users", "4", "--for", "10m", "--grace", "10m", "--json-lines"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as started:
        assert started.stdout is not None and started.stderr is not None
        # All users are now in their only iteration.
        assert any(json.loads(line)["active_workers"] == 4 for line in started.stdout)
        started.send_signal(signal.SIGINT)
        said = next(line for line in started.stderr if "in flight" in line)
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)
    assert "draining: 4 in flight" in said

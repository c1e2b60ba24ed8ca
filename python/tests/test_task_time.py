"""The time of tasks: timeouts, pauses, and iterations that the end of the run cuts."""

from __future__ import annotations

import pytest
from function_kinds import BOTH


@BOTH
def test_hung_task_is_interrupted_at_timeout(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task(timeout=0.05)
            {fn} slow(self, client):
                {wait}client.get("/delay/20000")
        """,
        requests=2,
    )
    assert "TaskTimeout" in ended.messages()
    assert ended.metric("slow")["errors"] == 2
    assert ended.result["run"]["elapsed_s"] < 15


@BOTH
def test_task_that_catches_its_timeout_is_ended(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task(timeout=0.05)
            {fn} stubborn(self, client):
                while True:
                    try:
                        {wait}client.get("/delay/20000")
                    except Exception:
                        pass
        """,
        requests=2,
    )
    assert ended.metric("stubborn")["errors"] == 2


@BOTH
@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_request_of_timed_out_task_is_recorded_as_task_timeout(run, fn, wait, mode):
    ended = run(
        f"""
        class Shop(VUser):
            @task(timeout=0.05)
            {fn} slow(self, client):
                {wait}client.get("/delay/20000")
        """,
        "--mode",
        mode,
        requests=2,
    )
    assert ended.outcomes("GET /delay/20000") == {"TASK_TIMEOUT": 2}
    assert ended.result["totals"]["errors"] == 2, "only the request counts as failed"


@BOTH
def test_sleep_pauses_one_user_only(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} nap(self, client):
                {wait}sleep(0.3)
                {wait}client.get("/health")
        """,
        users=20,
        requests=20,
    )
    assert ended.metric("GET /health")["requests"] == 20
    # Run one after the other, the pauses would take six seconds.
    assert ended.result["run"]["elapsed_s"] < 3


@BOTH
@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_pause_before_request_is_not_counted_as_latency(run, fn, wait, mode):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} think(self, client):
                {wait}sleep(3)
                {wait}client.get("/health")
        """,
        "--mode",
        mode,
        requests=2,
        users=2,
    )
    times = ended.metric("GET /health")
    assert ended.metric("think")["service_ms"]["min"] >= 3000
    assert times["response_ms"]["max"] - times["service_ms"]["min"] < 3000, times



def test_aborted_run_counts_every_request(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def slow(self, client):
                try:
                    await client.get("/delay/30000")
                finally:
                    self.closed = True
        """,
        "--for",
        "500ms",
        "--grace",
        "100ms",
        users=8,
        requests=None,
    )
    assert ended.metric("GET /delay/30000")["requests"] == 8


def test_iterations_cut_at_end_of_grace_are_recorded_as_aborted(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def endless(self, client):
                await client.get("/health")
                await sleep(100)
        """,
        "--grace",
        "500ms",
        "--for",
        "1s",
        requests=None,
        users=3,
    )
    assert set(ended.outcomes("endless")) == {"ABORTED"}

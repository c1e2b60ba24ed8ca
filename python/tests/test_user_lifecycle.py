"""``on_init``, ``on_start`` and ``on_stop`` of virtual users."""

from __future__ import annotations

import pytest
from function_kinds import BOTH


def test_on_init_gets_run_parameters(run):
    ended = run(
        """
        class Shop(VUser):
            def on_init(self, region, limit=1):
                self.where = f"{region}-{limit}"

            @task
            async def browse(self, client):
                await client.get("/health", name=self.where)
        """,
        "--param",
        "region=eu",
        "--param",
        "limit=5",
    )
    assert "eu-5" in ended.names()


@BOTH
def test_exception_in_on_start_is_counted_and_retried(run, fn, wait):
    ended = run(
        f"""
        tries = 0

        class Shop(VUser):
            {fn} on_start(self, client):
                global tries
                tries += 1
                if tries < 3:
                    raise RuntimeError("not yet")

            @task
            {fn} browse(self, client):
                {wait}client.get("/health")
        """,
        requests=2,
    )
    assert ended.metric("GET /health")["requests"] == 2
    assert ended.metric("on_start")["errors"] == 2
    assert "RuntimeError: not yet" in ended.messages()


@pytest.mark.parametrize(("fn", "wait", "mode"), [("async def", "await ", "stepped"), ("async def", "await ", "asyncio"), ("def", "", "stepped")])
def test_endless_on_start_is_named(run, fn, wait, mode):
    ended = run(
        f"""
        class Shop(VUser):
            {fn} on_start(self, client):
                if self.id == 1:
                    {wait}sleep(1000)

            @task
            {fn} a(self, client):
                {wait}client.get("/health")
        """,
        *("--mode", mode, "--grace", "200ms"),
        users=2,
    )
    assert ended.outcomes("on_start") == {"ABORTED": 1}
    assert "on_start had not ended when the run did" in ended.messages()
    assert "on_start had not ended when the run did" in ended.stdout


def test_failed_user_starts_give_no_max_users_hint(run):
    ended = run(
        """
        @scenario(rate=20, duration="500ms")
        class Shop(VUser):
            async def on_start(self, client):
                raise ValueError("no account")

            @task
            async def a(self, client):
                await client.get("/health")
        """,
        requests=None,
        users=None,
    )
    assert "on_start failed or did not end" in ended.stdout + ended.stderr
    assert "--max-users" not in ended.stdout + ended.stderr


@BOTH
def test_on_stop_runs_once_per_user(run, target, fn, wait):
    before = target.counts()["/bytes/{n}"]
    run(
        f"""
        class Shop(VUser):
            @task
            {fn} browse(self, client):
                {wait}client.get("/health")

            {fn} on_stop(self, client):
                {wait}client.get("/bytes/1")
        """,
        users=3,
        requests=9,
    )
    assert target.counts()["/bytes/{n}"] - before == 3

"""Calls without ``await`` send nothing, so the iteration must fail and the report must name the
line."""

from __future__ import annotations

import pytest

MODES = pytest.mark.parametrize("mode", ["stepped", "asyncio"])


@MODES
def test_client_call_without_await_fails_iteration(run, target, mode):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                client.get("/bytes/1")
                await client.get("/health")
        """,
        "--mode",
        mode,
        requests=5,
    )
    assert "GET /bytes/1" not in ended.names()
    assert ended.metric("browse")["errors"] == 5
    assert "`client.get` was not awaited (shop.py:6), so GET /bytes/1 was never sent" in ended.messages()
    assert {error["code"] for error in ended.result["errors"]} == {"NotAwaited"}


@MODES
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("client.post('/bytes/1', json={})", "`client.post` was not awaited"),
        ("client.batch(['/bytes/1', '/bytes/2'])", "`client.batch` was not awaited"),
        ("answer = client.get('/bytes/1')", "`client.get` was not awaited"),
        ("self.resources.acquire('users')", "`resources.acquire` was not awaited"),
        ("self.login(client)", "`Shop.login` was not awaited"),
    ],
)
def test_each_awaitable_without_await_is_reported(run, mode, call, said):
    ended = run(
        f"""
        @resource(name="users")
        def users(n): return {{"n": n}}

        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/health")
                {call}

            async def login(self, client):
                await client.get("/bytes/1")
        """,
        "--mode",
        mode,
        requests=2,
    )
    assert ended.metric("browse")["errors"] == 2
    assert said in ended.messages()
    assert ended.metric("GET /health")["requests"] == 2
    assert not any("/bytes/" in name for name in ended.names())


def test_on_start_without_await_does_not_start_user(run):
    ended = run(
        """
        class Shop(VUser):
            async def on_start(self, client):
                client.post("/auth/login", json={})

            @task
            async def browse(self, client):
                await client.get("/health")
        """,
        "--for",
        "2s",
        requests=None,
    )
    assert ended.metric("on_start")["errors"] > 0
    assert "`client.post` was not awaited (shop.py:5)" in ended.messages()
    assert "GET /health" not in ended.names()


def test_task_cancelled_before_start_is_not_reported(run):
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task
            async def browse(self, client):
                task = asyncio.create_task(client.get("/bytes/1"))
                task.cancel()
                await asyncio.wait([task])
                await client.get("/health")
        """,
        requests=3,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("browse")["requests"] == 3


def test_exception_is_reported_instead_of_missing_await(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                later = client.get("/bytes/1")
                raise ValueError("no")
        """,
        requests=2,
    )
    assert "ValueError: no" in ended.messages()
    assert "not awaited" not in ended.messages()

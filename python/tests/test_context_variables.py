"""Each user has its own context variables from its creation to its end, in every mode."""

from __future__ import annotations

import pytest

SHOP = """
    import contextvars

    WHO = contextvars.ContextVar("who", default="nobody")
    STEP = contextvars.ContextVar("step", default=0)

    def mine(self):
        assert WHO.get() == self.id, f"user {self.id} is taken for {WHO.get()}"

    class Shop(VUser):
        def __init__(self):
            assert WHO.get() == "nobody", WHO.get()

        def on_init(self):
            assert WHO.get() == "nobody", WHO.get()
            WHO.set(self.id)

        async def on_start(self, client):
            mine(self)
            await client.get("/health")
            mine(self)

        @task
        async def one(self, client):
            mine(self)
            STEP.set(STEP.get() + 1)
            await sleep(0)
            mine(self)
            await client.get("/health", params={"n": STEP.get()})
            mine(self)

        def check_one(self, status_code, body):
            mine(self)

        @task
        def two(self, client):
            mine(self)
            STEP.set(STEP.get() + 1)
            client.get("/health")
            mine(self)
            assert STEP.get() > 0

        async def on_stop(self, client):
            mine(self)
            await client.get("/health", name="farewell")
"""


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_each_user_has_its_own_context_variables(run, mode):
    ended = run(SHOP, "--mode", mode, requests=200, users=7)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("farewell")["requests"] == 7
    assert ended.metric("one")["requests"] + ended.metric("two")["requests"] == 200

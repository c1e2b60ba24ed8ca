"""Step strategies, built-in and custom."""

from __future__ import annotations

STRATEGY = """
    class {name}(VUser):
        step_strategy = {strategy}

        @task(weight=3)
        async def first(self, client):
            await client.get("/health", name="first asked")

        @task(requires="first", every=0.001)
        async def second(self, client):
            await client.get("/bytes/3", name="second asked")

        def check_second(self, status_code, body):
            assert len(body) == 3

        @task(timeout=0.05)
        async def slow(self, client):
            await sleep(30)
"""


def test_parallel_strategy_runs_ready_steps_concurrently(run):
    ended = run(STRATEGY.format(name="Shop", strategy="ParallelReadyStrategy()"), requests=10)
    # In the first iteration `second` may not run yet; `slow` times out each time and the others
    # still complete.
    assert ended.metric("first")["requests"] == 10 and ended.metric("first")["errors"] == 0
    assert 1 <= ended.metric("second")["requests"] <= 9 and ended.metric("second")["errors"] == 0
    assert ended.metric("slow")["errors"] == ended.metric("slow")["requests"] == 10
    assert ended.metric("second asked")["requests"] == ended.metric("second")["requests"]


def test_sequential_strategy_runs_one_step_at_a_time(run):
    ended = run(STRATEGY.format(name="Shop", strategy="SequentialWeightedStrategy()"), requests=12)
    ran = {name: ended.metric(name)["requests"] for name in ("first", "second", "slow") if name in ended.names()}
    assert sum(ran.values()) == 12, ran


def test_custom_strategy_chooses_steps(run):
    ended = run(
        """
        class InTurn:
            def __init__(self):
                self.turn = 0

            def select(self, steps, completed_steps, next_allowed_at, now, rng):
                self.turn += 1
                if self.turn % 3 == 0:
                    return StepSelection((), now + 0.001)
                return StepSelection([steps[self.turn % 2]])

        class Shop(VUser):
            step_strategy = InTurn()

            @task
            async def a(self, client):
                await client.get("/health")

            @task
            async def b(self, client):
                await client.get("/health")
        """,
        requests=8,
    )
    assert ended.metric("a")["requests"] + ended.metric("b")["requests"] == 8
    assert min(ended.metric("a")["requests"], ended.metric("b")["requests"]) >= 2


def test_strategy_that_chooses_no_step_fails_iteration(run):
    ended = run(
        """
        class Idle:
            def select(self, steps, completed_steps, next_allowed_at, now, rng):
                return StepSelection(())

        class Shop(VUser):
            step_strategy = Idle()

            @task
            async def go(self, client):
                await client.get("/health")
        """,
        requests=1,
    )
    assert "Idle chose no step for 5 s" in ended.messages()

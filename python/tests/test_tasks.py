"""Tasks in `async def` and in plain `def`: names, weights, order, requests and metrics."""

from __future__ import annotations

from function_kinds import BOTH


@BOTH
def test_login_headers_json_and_check_work(run, target, fn, wait):
    before = target.counts()
    ended = run(
        f"""
        class Shop(VUser):
            {fn} on_start(self, client):
                answer = {wait}client.post("/auth/login", json={{"username": "ann", "password": "pw"}})
                self.token = answer.json()["access_token"]

            @task
            {fn} buy(self, client):
                {wait}client.post("/api/orders", json={{"product_id": 7}}, headers={{"Authorization": f"Bearer {{self.token}}"}})

            def check_buy(self, status_code, body):
                assert status_code == 201 or status_code == 200, status_code
                assert body["product_id"] == 7, body
        """,
        requests=10,
    )
    assert ended.code == 0, ended.stdout + ended.stderr
    after = target.counts()
    assert after["/auth/login"] - before["/auth/login"] == 1
    assert after["/api/orders"] - before["/api/orders"] == 10
    assert ended.metric("POST /api/orders")["requests"] == 10
    assert ended.result["totals"]["errors"] == 0


@BOTH
def test_batch_returns_responses_in_request_order(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} both(self, client):
                slow, fast, posted = {wait}client.batch(
                    [{{"path": "/delay/60"}}, "/bytes/3", {{"method": "POST", "path": "/echo", "json": [1]}}]
                )
                assert slow.elapsed_ms > 40 and fast.content == b"xxx" or len(fast.content) == 3
                assert posted.json()["body"] in ("[1]", [1])
        """,
        requests=3,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("GET /delay/60")["requests"] == 3


def test_tasks_are_inherited_and_overridden(run):
    ended = run(
        """
        class Base(VUser):
            @task
            async def browse(self, client):
                await client.get("/health", name="base")

            @task
            async def look(self, client):
                await client.get("/health", name="look")

        @scenario(users=1)
        class Shop(Base):
            @task
            async def browse(self, client):
                await client.get("/health", name="own")
        """,
        requests=10,
    )
    assert {"own", "look"} <= ended.names()
    assert "base" not in ended.names()


def test_weights_and_requires_decide_task_counts(run):
    ended = run(
        """
        class Shop(VUser):
            @task(weight=3)
            async def browse(self, client):
                await client.get("/health", name="a")

            @task
            async def look(self, client):
                await client.get("/health", name="b")
        """,
        requests=40,
    )
    assert (ended.metric("a")["requests"], ended.metric("b")["requests"]) == (30, 10)


def test_required_task_runs_first(run):
    ended = run(
        """
        class Shop(VUser):
            seen = False

            @task
            async def browse(self, client):
                await client.get("/health")
                self.seen = True

            @task(requires=("browse",), weight=10)
            async def buy(self, client):
                assert self.seen
                await client.get("/health", name="buy")
        """,
        requests=20,
    )
    assert ended.result["totals"]["errors"] == 0
    assert ended.metric("buy")["requests"] > 5


def test_custom_metrics_are_reported(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/health")
                emit_metric("queue", time=12.5)
                await self.think()

            @metric("think")
            async def think(self):
                await sleep(0.001)
        """,
        requests=4,
    )
    assert ended.metric("queue")["requests"] == 4
    assert ended.metric("think")["requests"] == 4


def test_foreign_awaitable_in_stepped_mode_is_explained(run):
    ended = run(
        """
        class Foreign:
            def __await__(self):
                yield object()

        class Shop(VUser):
            @task
            async def browse(self, client):
                await Foreign()
        """,
        "--mode",
        "stepped",
        requests=2,
    )
    assert "not Squall's" in ended.messages()


def test_tasks_made_by_factory_keep_separate_names(run):
    ended = run(
        """
        def make(path):
            async def inner(self, client):
                await client.get(path)
            return inner

        class Shop(VUser):
            b = task(name="bee")(make("/echo"))
            c = task(name="cee")(make("/health"))
        """,
        requests=4,
    )
    assert ended.metric("bee")["requests"] == ended.metric("cee")["requests"] == 2


def test_client_call_from_other_thread_is_rejected(run):
    ended = run(
        """
        from concurrent.futures import ThreadPoolExecutor

        class Shop(VUser):
            @task
            def a(self, client):
                with ThreadPoolExecutor() as pool:
                    pool.submit(client.get, "/health").result()
        """,
    )
    assert ended.metric("a")["errors"] == 5
    assert "RuntimeError: the client works on the thread of its user only" in ended.messages() and "at shop.py:" in ended.messages()
    assert "RuntimeWarning" not in ended.stderr, ended.stderr


def test_run_without_requests_measures_nothing(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                raise RuntimeError("before anything was sent")
        """
    )
    assert ended.result["accounting"]["sent"] == 0 and ended.result["totals"]["errors"] == 5
    assert ended.result["verdict"] == "nothing_measured" and ended.code == 1, ended.stdout


def test_requests_flag_sends_exact_count_with_slow_responses(run, target):
    before = target.counts().get("/health", 0)
    ended = run(
        """
        class Shop(VUser):
            @task
            async def patient(self, client):
                await client.get("/health")
                await sleep(2)
                await client.get("/health")
        """,
        "--grace",
        "100ms",
        requests=2,
        users=2,
    )
    assert ended.result["totals"]["errors"] == 0 and ended.metric("patient")["errors"] == 0, ended.messages()
    assert target.counts()["/health"] - before == ended.result["totals"]["requests"] == 4

"""Tasks, hooks and checks, in `async def` and in plain `def`."""

from __future__ import annotations

import json

import pytest

from squall._errors import describe

BOTH = pytest.mark.parametrize(("fn", "wait"), [("async def", "await "), ("def", "")], ids=["async", "plain"])


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
def test_exception_in_task_fails_only_its_iteration(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            count = 0

            @task
            {fn} browse(self, client):
                {wait}client.get("/health")
                self.count += 1
                if self.count == 3:
                    raise ValueError("third time")
        """,
        requests=6,
    )
    assert ended.metric("GET /health")["requests"] == 6
    assert ended.metric("GET /health")["errors"] == 1
    assert "ValueError: third time" in ended.messages()
    assert "shop.py:11 in browse" in ended.messages()


@BOTH
def test_failed_check_fails_request(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} browse(self, client):
                {wait}client.get("/health")

            def check_browse(self, status_code, body):
                assert body["status"] == "down", "it is up"
        """,
        requests=4,
    )
    assert ended.metric("GET /health")["errors"] == 4
    assert "it is up" in ended.messages()


def test_check_that_returns_false_fails_request(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/health")

            def check_browse(self, status_code, body):
                return status_code == 404
        """,
        requests=2,
    )
    assert ended.metric("GET /health")["errors"] == 2


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


def test_every_user_holds_different_resource(run):
    ended = run(
        """
        @resource(name="users")
        def make_user(n):
            return {"name": f"user_{n}"}

        taken = []

        class Shop(VUser):
            async def on_start(self, client):
                self.user = await self.resources.acquire("users")
                assert self.user["name"] not in taken
                taken.append(self.user["name"])

            @task
            def browse(self, client):
                other = self.resources.acquire("users")
                assert other["name"] != self.user["name"]
                self.resources.release(other)
                client.get("/health")
        """,
        users=5,
        requests=25,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert "on_start" not in ended.names()


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


def test_check_may_take_response(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/api/products/1")

            def check_browse(self, response):
                assert response.status_code == 200 and response.headers["content-type"] == "application/json"
                return response.json()["id"] == 1

            @task
            def other(self, client):
                client.get("/api/products/1")

            def check_other(self, response):
                return response.json()["id"] == 2
        """,
        requests=6,
    )
    assert ended.metric("browse")["errors"] == 0, ended.messages()
    assert ended.metric("other")["errors"] == 3


def test_check_of_strategy_step_may_take_response(run):
    ended = run(
        """
        class Shop(VUser):
            step_strategy = SequentialWeightedStrategy()

            @task
            async def browse(self, client):
                await client.get("/api/products/1")

            def check_browse(self, response):
                return response.json()["id"] == 2
        """,
        requests=3,
    )
    assert ended.metric("browse")["errors"] == 3


@BOTH
def test_exception_before_first_request_is_run_error(run, target, fn, wait):
    """A run with an error threshold must not pass because it sent nothing."""
    before = target.counts().get("/health", 0)
    ended = run(
        f"""
        class Shop(VUser):
            @task(weight=1)
            {fn} broken(self, client):
                raise ValueError("no such thing")

            @task(weight=1, timeout=0.05)
            {fn} hung(self, client):
                {wait}sleep(60)

            @task(weight=2)
            {fn} good(self, client):
                {wait}client.get("/health")
        """,
        "--threshold",
        "error_rate<1%",
        requests=8,
    )
    totals = ended.result["totals"]
    assert (totals["requests"], totals["errors"]) == (8, 4), totals
    assert ended.outcomes("broken (failed)") == {"ValueError": 2}
    assert ended.outcomes("hung (failed)") == {"TASK_TIMEOUT": 2}
    accounting = ended.result["accounting"]
    assert accounting["sent"] == target.counts()["/health"] - before == 4
    assert ended.code == 1


@BOTH
def test_exception_after_pause_is_counted_once(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} browse(self, client):
                {wait}client.get("/health")
                {wait}sleep(0.01)
                raise ValueError("too late to blame the answer")
        """,
        requests=3,
    )
    assert ended.metric("GET /health")["errors"] == 0
    assert (ended.result["totals"]["requests"], ended.result["totals"]["errors"]) == (6, 3)


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


def test_failures_with_different_messages_are_all_counted(run):
    ended = run(
        """
        class Shop(VUser):
            number = 0
            @task
            async def go(self, client):
                await client.get("/health")
                Shop.number += 1
                raise ValueError(f"distinct {Shop.number}")
        """,
        requests=1000,
    )
    errors = [error for error in ended.result["errors"] if error["code"] == "ValueError"]
    assert len(errors) < 1000 and any(error["message"] == "(other messages)" for error in errors)
    assert sum(error["count"] for error in errors if error["metric"] == errors[0]["metric"]) == 1000


def test_probe_decorator_works_without_parentheses(run):
    ended = run(
        """
        looked = []

        @probe
        def depth():
            looked.append(1)
            return 7

        class Shop(VUser):
            @task
            async def go(self, client):
                while len(looked) < 2:  # The first is written down by then, however slow the machine is.
                    await sleep(0.01)
                await client.get("/health")
        """,
        requests=3,
    )
    assert ended.metric("depth")["requests"] >= 1


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


def test_standard_library_frames_have_import_paths():
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert "at json/decoder.py:" in describe(raised.value)


def test_exception_without_text_names_its_line():
    class Odd(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    for error, words in ((Odd(), "Odd: (no text: its __str__ raised KeyError)"), (ValueError("\ud800 é"), "ValueError: ? é")):
        with pytest.raises(type(error)) as raised:
            raise error
        text = describe(raised.value)
        assert text.startswith(words) and "test_tasks.py:" in text


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


FAILED_SERIES = {
    "the last request": 'await client.get("/health")',
    "no request": "pass",
    "no request after a pause": 'await client.get("/health"); await sleep(0.01)',
    "no request after a resource": 'await client.get("/health"); await self.resources.acquire("things")',
    "the last of a batch": 'await client.batch(["/health", "/echo"])',
    "the one that failed": 'await client.get("/fail", params={"rate": 1})',
    "the one before the code": 'await sleep(0.01); await client.get("/health"); self.sum = sum(range(1000))',
}


@pytest.mark.parametrize("series", FAILED_SERIES)
def test_failure_counts_against_same_series_in_every_mode(run, series):
    seen = []
    for fn, mode in (("async def", "stepped"), ("def", "stepped"), ("async def", "asyncio")):
        code = f"""
        @resource(name="things")
        def thing(n): return {{}}

        class Shop(VUser):
            @task
            {fn} fails(self, client):
                {FAILED_SERIES[series] if fn == "async def" else FAILED_SERIES[series].replace("await ", "")}
                raise ValueError("it fails")
        """
        ended = run(code, "--mode", mode, requests=3)
        seen.append({m["name"]: (m["requests"], m["errors"]) for m in ended.result["metrics"] if m["name"] != "things"})
        seen[-1]["all"] = (ended.result["totals"]["requests"], ended.result["totals"]["errors"])
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["fails"] == (3, 3) and seen[0]["all"][1] == 3
    assert ("fails (failed)" in seen[0]) == series.startswith("no request")


@BOTH
def test_failed_check_of_earlier_response_is_separate_error(run, target, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} look(self, client):
                {wait}client.get("/health")
                try:
                    {wait}client.get("http://127.0.0.1:1/refused", name="refused")
                except RequestError:
                    pass

            def check_look(self, status_code, body):
                assert status_code == 500, "an older answer"
        """,
        requests=2,
    )
    assert ended.metric("look (failed)")["errors"] == 2 and ended.metric("refused")["errors"] == 2, ended.messages()
    assert ended.result["totals"]["errors"] == 4


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


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_failed_request_message_names_task_and_line(run, mode):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def reach(self, client):
                await client.get("http://127.0.0.1:1/nobody")
        """,
        "--mode",
        mode,
        requests=2,
    )
    errors = [error for error in ended.result["errors"] if "in reach" in error["message"]]
    assert len(errors) == 1 and errors[0]["count"] == 2 and "shop.py:6" in errors[0]["message"], ended.result["errors"]
    assert ended.metric("GET /nobody")["errors"] == ended.result["totals"]["errors"] == 2

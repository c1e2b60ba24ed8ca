"""Scenarios written for LoadPilot run unchanged where it is not installed. Its client is
synchronous: tasks, also coroutines, call ``client.get(…)`` and get the response."""

from __future__ import annotations

import http.server
import threading

import pytest

from squall._load import load

LOADPILOT = """
from loadpilot import LoadClient, VUser, scenario, task
from loadpilot.dsl import task as same

@scenario(rps=50, duration="1m30s", ramp_up="10s", thresholds={"p99_ms": 500, "error_rate": 1.0})
class CheckoutFlow(VUser):
    def on_start(self, client: LoadClient):
        answer = client.post("/auth/login", json={"username": "ann", "password": "pw"})
        self.token = answer.json()["access_token"]

    @task(weight=5)
    def browse(self, client: LoadClient):
        client.get("/api/products", headers={"Authorization": f"Bearer {self.token}"})

    @same
    async def both(self, client):
        await client.batch([{"method": "GET", "path": "/health"}, {"method": "GET", "path": "/api/products"}])

    def check_browse(self, status_code, body):
        assert status_code == 200
        assert body["products"]
"""

MODES = pytest.mark.parametrize("mode", ["auto", "stepped", "asyncio"])


def test_loadpilot_scenario_runs_unchanged(run):
    ended = run(LOADPILOT, requests=12)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("browse")["requests"] == 10
    assert ended.metric("both")["requests"] == 2


def test_loadpilot_ramp_up_is_added_to_duration(write):
    loaded = load(str(write(LOADPILOT, head=False)))
    assert loaded.plan.load["duration"].value == "100s" and loaded.plan.load["ramp_up"].value == "10s"


@MODES
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_call_without_await_sends_request(run, target, mode, kind):
    before = target.counts()
    ended = run(
        f"""
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            {kind} on_start(self, client):
                self.token = client.post("/auth/login", json={{"username": "ann", "password": "pw"}}).json()["access_token"]

            @task()
            {kind} look(self, client):
                client.get("/api/products/1", headers={{"Authorization": f"Bearer {{self.token}}"}})

            {kind} on_stop(self, client):
                client.get("/health")
        """,
        "--mode",
        mode,
        requests=10,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages() + ended.stderr
    assert ended.metric("GET /api/products/1")["requests"] == 10
    after = target.counts()
    # A LoadPilot scenario of up to 500 requests per second has 5 users.
    assert {path: after[path] - before.get(path, 0) for path in after if after[path] != before.get(path, 0)} == {
        "/auth/login": 5,
        "/api/products/{id}": 10,
        "/health": 5,
    }
    assert "awaited" not in ended.stderr


@MODES
def test_response_is_usable_with_and_without_await(run, mode):
    ended = run(
        """
        from loadpilot import scenario, task

        @scenario(rps=50, mode="constant")
        class Flow:
            @task
            async def look(self, client):
                direct = client.get("/api/products/1")
                awaited = await client.get("/api/products/1")
                assert (direct.status_code, direct.ok, awaited.status_code) == (200, True, 200)
                assert direct.json() == awaited.json() and direct.json()["id"] == 1
                assert direct.text == awaited.text and direct.headers["content-type"] and direct.elapsed_ms > 0
                direct.raise_for_status()
                several = client.batch([{"path": "/health"}, {"method": "GET", "path": "/api/products/2"}])
                again = await client.batch([{"path": "/health"}])
                assert [answer.status_code for answer in several] == [200, 200] and again[0].ok
                await self.deeper(client)

            async def deeper(self, client):
                assert client.get("/health").status_code == 200
        """,
        "--mode",
        mode,
        requests=4,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("GET /health")["requests"] == 4 * 3


def test_coroutine_that_awaits_asyncio_sends_without_await(run):
    ended = run(
        """
        import asyncio
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task
            async def look(self, client):
                await asyncio.sleep(0.001)
                assert client.get("/health").ok
                try:
                    async with asyncio.timeout(0.05):
                        client.get("/delay/60000")
                except TimeoutError:
                    client.get("/api/products/1")
                await asyncio.gather(asyncio.sleep(0), self.other(client))

            async def other(self, client):
                await asyncio.sleep(0)
        """,
        requests=3,
    )
    assert ended.metric("look")["errors"] == 0, ended.messages()
    assert ended.metric("GET /health")["requests"] == 3
    assert ended.metric("GET /api/products/1")["requests"] == 3


class _Meeting(http.server.BaseHTTPRequestHandler):
    """Responds once the expected number of requests has arrived."""

    protocol_version = "HTTP/1.1"
    barrier = threading.Barrier(3, timeout=60)

    def do_GET(self) -> None:
        try:
            self.barrier.wait()
            status = 200
        except threading.BrokenBarrierError:
            status = 500
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_waiting_calls_do_not_block_other_users(run, mode):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Meeting)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ended = run(
        f"""
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task
            async def meet(self, client):
                client.get("http://127.0.0.1:{server.server_port}/meet").raise_for_status()
        """,
        "--mode",
        mode,
        requests=3,
        users=3,
    )
    server.shutdown()
    assert ended.metric("meet")["requests"] == 3
    assert ended.result["totals"]["errors"] == 0, ended.messages()


@MODES
def test_request_error_is_raised_at_call(run, mode):
    ended = run(
        """
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task
            async def refused(self, client):
                try:
                    client.get("http://127.0.0.1:1/")
                except Exception as error:
                    self.seen = type(error).__name__
                assert self.seen == "RequestError"
                client.get("/status/404").raise_for_status()
        """,
        "--mode",
        mode,
        requests=2,
    )
    assert ended.metric("refused")["errors"] == 2
    assert "StatusError" in ended.messages() and "shop.py:14 in refused" in ended.messages()
    assert "AssertionError" not in ended.messages()


def test_constant_coroutines_run_static(squall, write, target):
    code = """
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task(weight=3)
            async def health(self, client):
                client.get("/health")

            @task
            def root(self, client):
                client.get("/api/products")
        """
    path = str(write(code))
    ended = squall("run", path, "--check", "--target", target.url)
    assert "mode static" in ended.stdout, ended.stdout + ended.stderr
    assert ended.stdout.count("static because its source proves") == 2
    before = target.counts()
    assert squall("run", path, "--requests", "8", "--users", "1", "--target", target.url).code == 0
    assert target.counts()["/health"] - before.get("/health", 0) == 6


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_check_may_take_response(run, kind):
    ended = run(
        f"""
        from loadpilot import VUser, scenario, task

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task
            {kind} good(self, client):
                client.get("/status/404")
                client.get("/api/products/1")

            def check_good(self, response) -> None:
                assert response.status_code == 200 and response.ok
                assert response.json()["id"] == 1 and response.headers["Content-Type"] and response.text

            @task
            {kind} bad(self, client):
                client.get("/api/products/1")

            def check_bad(self, response) -> None:
                assert response.json()["id"] == 2
        """,
        requests=6,
    )
    assert ended.metric("good")["errors"] == 0, ended.messages()
    assert ended.metric("bad")["errors"] == 3


def test_super_hooks_can_be_called(run):
    ended = run(
        """
        from loadpilot import VUser, scenario, task

        class Base(VUser):
            def on_start(self, client):
                super().on_start(client)
                self.ready = client.get("/health").ok

        @scenario(rps=50, mode="constant")
        class Flow(Base):
            def on_start(self, client):
                super().on_start(client)

            @task
            def look(self, client):
                assert self.ready
                client.get("api/products")
        """,
        requests=2,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("GET /api/products")["requests"] == 2


def test_ended_coroutine_releases_its_objects(run):
    ended = run(
        """
        import gc, weakref
        from loadpilot import VUser, scenario, task

        class Thing: pass

        seen = []

        @scenario(rps=50, mode="constant")
        class Flow(VUser):
            @task
            async def look(self, client):
                assert not any(ref() for ref in seen)
                thing = Thing()
                seen.append(weakref.ref(thing))
                client.get("/health")
                return thing
        """,
        requests=20,
    )
    assert ended.metric("look")["errors"] == 0, ended.messages()


LOGIN = """
from loadpilot import VUser, scenario, task

@scenario(rps={rps}, duration="{duration}", mode="constant")
class Flow(VUser):
    def on_start(self, client):
        client.get("/delay/300")
        self.token = client.post("/auth/login", json={{"username": "ann", "password": "pw"}}).json()["access_token"]

    @task
    def look(self, client):
        client.get("/health", headers={{"Authorization": f"Bearer {{self.token}}"}})
"""


@pytest.mark.parametrize(("rps", "users"), [(40, 5), (600, 6)])
def test_scenario_has_as_many_users_as_in_loadpilot_and_each_logs_in_once(run, target, rps, users):
    before = target.counts().get("/auth/login", 0)
    ended = run(LOGIN.format(rps=rps, duration="2s"), requests=None, users=None)
    assert target.counts()["/auth/login"] - before == users, ended.names()
    assert ended.result["totals"]["requests"] >= 2 * rps, ended.messages()


def test_flag_sets_another_number_of_users(run, target):
    before = target.counts().get("/auth/login", 0)
    run(LOGIN.format(rps=40, duration="1s"), "--start-users", "8", requests=None, users=None)
    assert target.counts()["/auth/login"] - before == 8


def test_failed_on_start_does_not_keep_user_from_its_tasks(run):
    ended = run(
        """
        from loadpilot import VUser, scenario, task

        @scenario(rps=40, duration="1s", mode="constant")
        class Flow(VUser):
            def on_start(self, client):
                client.get("/status/503").raise_for_status()
                self.token = "secret"

            @task
            def look(self, client):
                assert not hasattr(self, "token")
                client.get("/health")
        """,
        requests=None,
        users=None,
    )
    assert ended.metric("GET /health")["requests"] == 40, ended.messages()
    assert ended.metric("on_start")["errors"] == 5
    assert ended.metric("GET /status/503")["requests"] == 5


def test_open_run_of_own_scenario_does_not_log_in_once_per_start(run, target):
    before = target.counts().get("/auth/login", 0)
    ended = run(
        """
        @scenario(rate=100, duration=1.5)
        class Flow(VUser):
            async def on_start(self, client):
                await client.get("/delay/400")
                await client.post("/auth/login", json={"username": "ann", "password": "pw"})

            @task
            async def look(self, client):
                await client.get("/health")
        """,
        requests=None,
        users=None,
    )
    assert target.counts()["/auth/login"] - before == 5
    assert ended.metric("GET /health")["requests"] == 150


def test_report_names_users_that_were_added_because_all_were_busy(run):
    ended = run(
        """
        @scenario(rate=30, duration=3)
        class Flow(VUser):
            async def on_start(self, client):
                await client.get("/health")

            @task
            async def wait(self, client):
                await client.get("/delay/500")
        """,
        requests=None,
        users=None,
    )
    added = ended.metric("(user added because all were busy)")["requests"]
    assert added == ended.metric("GET /health")["requests"] - 5 > 0
    assert "(user added because all were busy)" in ended.stdout

"""Scenarios that await asyncio: detection by the names they use, the printed reason, and the client on
a real asyncio loop."""

from __future__ import annotations

import textwrap

import pytest

from squall._load import load

OURS = {
    "the client": 'r = await client.get("/x")\nself.x = r.json()',
    "a batch": 'a, b = await client.batch(["/a", "/b"])',
    "our sleep": "await sleep(1)\nawait squall.sleep(1)",
    "a resource": 'self.u = await self.resources.acquire("u")',
    "a variable": 'op = client.get("/x")\nawait op',
    "a method of its own": "await self.helper(client)",
    "a function of its own": "await helper(client)",
    "a nested await": 'await client.get((await client.get("/x")).text)',
}

FOREIGN = {
    "asyncio.sleep": "await asyncio.sleep(1)",
    "an alias of it": "await nap(1)",
    "gather": 'await asyncio.gather(client.get("/x"), client.get("/y"))',
    "a timeout": 'async with asyncio.timeout(1):\n    await client.get("/x")',
    "a task": 'asyncio.ensure_future(client.get("/x"))',
    "an attribute": "self.api = nap\nawait self.api(1)",
    "an argument of a helper": "await helper(asyncio)",
    "a helper that awaits asyncio": "await foreign()",
    "a method that awaits asyncio": "await self.foreign()",
    "a variable that is": "op = nap(1)\nawait op",
    "a variable that may be": 'op = client.get("/x") if self.id else nap(1)\nawait op',
    "an iteration": "async for x in numbers():\n    pass",
}

HEAD = """
import asyncio, squall
from asyncio import sleep as nap
async def helper(c):
    await c.get("/x")
async def foreign():
    await nap(1)
async def numbers():
    await nap(0)
    yield 1
class Shop(VUser):
    async def helper(self, c):
        await c.get("/x")
    async def foreign(self):
        await foreign()
    @task
    async def go(self, client):
"""


def scenario_of(write, body):
    return str(write(HEAD + textwrap.indent(body, " " * 8)))


@pytest.mark.parametrize("case", OURS)
def test_scenario_that_awaits_squall_only_runs_stepped(write, case):
    loaded = load(scenario_of(write, OURS[case]))
    assert not loaded.on_asyncio, loaded.mode_reason


@pytest.mark.parametrize("case", FOREIGN)
def test_scenario_that_awaits_asyncio_runs_on_asyncio(write, case):
    loaded = load(scenario_of(write, FOREIGN[case]))
    assert loaded.on_asyncio
    assert "shop.py:" in loaded.mode_reason


def test_asyncio_in_hooks_and_inherited_methods_is_detected(write):
    path = write(
        """
        import asyncio
        class Base(VUser):
            async def on_start(self, client):
                await asyncio.sleep(0)
        @scenario()
        class Shop(Base):
            @task
            async def go(self, client):
                await client.get("/health")
        """
    )
    assert load(str(path)).on_asyncio


def test_check_command_prints_asyncio_mode_and_reason(squall, write, target):
    path = scenario_of(write, FOREIGN["asyncio.sleep"])
    ended = squall("run", path, "--target", target.url, "--check")
    assert ended.code == 0
    assert "mode asyncio" in ended.stdout and "shop.py:19 uses asyncio.sleep" in ended.stdout


def test_asyncio_code_in_stepped_mode_fails_with_hint(run):
    ended = run("import asyncio\nclass Shop(VUser):\n    @task\n    async def go(self, client):\n        await asyncio.sleep(0.01)", "--mode", "stepped")
    assert "--mode asyncio" in ended.messages()


def test_asyncio_functions_and_client_work_in_one_task(run, target):
    before = target.counts()["/health"]
    ended = run(
        """
        import asyncio
        class Shop(VUser):
            async def on_start(self, client):
                await asyncio.sleep(0.001)
                self.lock = asyncio.Lock()

            @task
            async def go(self, client):
                async with self.lock:
                    answer = await client.get("/health")
                assert answer.json()["status"] == "ok"
                await asyncio.sleep(0)
                a, b = await asyncio.gather(client.get("/bytes/1"), client.get("/bytes/2"))
                assert (len(a.content), len(b.content)) == (1, 2)
                c, d = await client.batch(["/bytes/3", "/bytes/4"])
                assert (len(c.content), len(d.content)) == (3, 4)
                task = asyncio.create_task(client.get("/bytes/5"))
                await asyncio.wait_for(squall_sleep(0.001), 5)
                assert len((await task).content) == 5
                loop = asyncio.get_running_loop()
                assert await loop.run_in_executor(None, lambda: 42) == 42
                emit_metric("done", time=1)

            async def on_stop(self, client):
                await asyncio.sleep(0)
                await client.get("/api/products/1", name="stop")

        from squall import sleep as squall_sleep
        """,
        requests=20,
        users=4,
    )
    assert ended.code == 0, ended.messages()
    assert ended.metric("go")["errors"] == 0 and ended.metric("done")["requests"] == 20
    assert ended.metric("GET /bytes/5")["requests"] == 20
    assert ended.metric("stop")["requests"] == 4
    assert target.counts()["/health"] - before == 20


def test_checks_and_plain_tasks_work_in_asyncio_scenario(run):
    ended = run(
        """
        import asyncio
        class Shop(VUser):
            @task
            async def go(self, client):
                await asyncio.sleep(0)
                await client.get("/health")

            def check_go(self, status_code, body):
                assert body["status"] == "no"

            @task
            def plain(self, client):
                assert client.get("/health").ok
                sleep(0.001)
        """,
        requests=10,
    )
    assert ended.metric("go")["errors"] == 5 and ended.metric("plain")["errors"] == 0


def test_hung_await_is_interrupted_at_task_timeout(run):
    ended = run(
        """
        import asyncio
        class Shop(VUser):
            ended = 0
            @task(timeout=0.05)
            async def forever(self, client):
                try:
                    await asyncio.sleep(3600)
                finally:
                    emit_metric("finally", time=1)

            @task(timeout=0.05)
            async def slow(self, client):
                await asyncio.gather(client.get("/delay/5000", name="slow one"), asyncio.sleep(3600))

            @task(timeout=0.05)
            async def stubborn(self, client):
                while True:
                    try:
                        await asyncio.sleep(3600)
                    except asyncio.CancelledError:
                        pass

            @task
            async def fine(self, client):
                await client.get("/health")
        """,
        requests=8,
        timeout=60,
    )
    assert ended.metric("forever")["errors"] == 2 and ended.metric("slow")["errors"] == 2
    assert ended.metric("finally")["requests"] == 2
    assert ended.metric("stubborn")["errors"] == 2 and ended.metric("fine")["errors"] == 0
    assert "TaskTimeout" in ended.messages()


def test_cancelled_request_is_recorded_and_later_requests_work(run):
    ended = run(
        """
        import asyncio
        class Shop(VUser):
            @task
            async def go(self, client):
                try:
                    await asyncio.wait_for(client.get("/delay/60000", name="slow"), 0.02)
                except asyncio.TimeoutError:
                    emit_metric("given up", time=1)
                async with asyncio.timeout(5):
                    assert (await client.get("/health")).ok
                async with asyncio.TaskGroup() as group:
                    one = group.create_task(client.get("/health"))
                    two = group.create_task(asyncio.sleep(0.001))
                assert one.result().ok
        """,
        requests=4,
        timeout=60,
    )
    assert ended.metric("given up")["requests"] == 4 and ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("slow")["requests"] == 4


def test_stopping_run_ends_asyncio_users(run):
    ended = run(
        """
        import asyncio
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                await asyncio.sleep(3600)
        """,
        "--for",
        "1s",
        "--grace",
        "100ms",
        requests=None,
        users=10,
        timeout=60,
    )
    assert ended.metric("GET /health")["requests"] == 10
    assert "Task was destroyed" not in ended.stderr and "Traceback" not in ended.stderr


def test_asyncio_sockets_work_in_task(run, target):
    host, port = target.url.removeprefix("http://").split(":")
    ended = run(
        f"""
        import asyncio
        class Shop(VUser):
            @task
            async def go(self, client):
                reader, writer = await asyncio.open_connection("{host}", {port})
                writer.write(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
                assert b"200 OK" in await reader.read()
                writer.close()
                await writer.wait_closed()
                assert (await client.get("/health")).ok
        """,
        requests=30,
        users=5,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_request_is_counted_in_second_it_ends(run):
    """The second in which the task ends does not matter."""
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task
            async def long(self, client):
                await client.get("/health")
                await asyncio.sleep(4)
        """,
        users=2,
        requests=2,
    )
    rows = ended.result["timeline"]
    first = next(row for row in rows if row["requests"])
    assert first["requests"] == 2 and first is not rows[-1], rows


def test_request_of_created_task_belongs_to_iteration(run, target):
    """The last iteration of the run sends such requests too."""
    before = target.counts().get("/echo", 0)
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                asyncio.create_task(client.get("/echo"))
        """,
        users=2,
        requests=10,
    )
    assert ended.metric("GET /echo")["requests"] == target.counts()["/echo"] - before == 10
    assert ended.metric("go")["requests"] == 10
    assert ended.stderr.count("Traceback") == ended.stderr.count("Task was destroyed") == 0, ended.stderr


def test_request_of_task_cancelled_before_start_is_not_sent(run):
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task
            async def go(self, client):
                self.kept = client.get("/echo")
                asyncio.create_task(self.kept).cancel()
                await client.get("/health")
        """,
        users=2,
        requests=10,
        timeout=60,
    )
    assert ended.names() == {"go", "GET /health"}
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_endless_background_tasks_end_with_run(run):
    """No message mentions internals of Squall, whatever the tasks wait for."""
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            async def heartbeat(self, client):
                while True:
                    await client.get("/delay/20", name="beat")

            @task
            async def go(self, client):
                self.beats = asyncio.create_task(self.heartbeat(client))
                await client.get("/health")
        """,
        "--for",
        "1s",
        "--grace",
        "100ms",
        users=2,
        requests=None,
        timeout=60,
    )
    assert ended.metric("GET /health")["requests"] >= 2
    assert ended.stderr.count("Traceback") == ended.stderr.count("Task was destroyed") == 0, ended.stderr


def test_exception_group_message_lists_its_exceptions(run):
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            async def broken(self, what):
                raise ValueError(f"no {what} " + "x" * 5000)

            @task
            async def go(self, client):
                await client.get("/health")
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.broken("shirt"))
                    group.create_task(self.broken("shoe"))
        """,
        requests=1,
    )
    messages = ended.messages()
    assert "2 sub-exceptions" in messages and "one of them: ValueError: no shirt" in messages and "one of them: ValueError: no shoe" in messages
    assert "at shop.py:7 in broken" in messages
    assert "more characters)" in messages


def test_completed_request_returns_same_response_to_each_await(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                asked = client.get("/health")
                answer = await asked
                assert asked.done() and asked.result() is answer and await asked is answer and asked.exception() is None
                asked = client.get("http://127.0.0.1:1/", name="refused")
                try:
                    await asked
                except RequestError as error:
                    assert asked.done() and asked.exception() is error
        """,
        "--mode",
        "asyncio",
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_timeout_fails_only_pending_request(run):
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task(timeout=2)
            async def cut(self, client):
                await client.get("/health", name="good")
                await client.get("/delay/30000", name="never")

            @task
            async def own(self, client):
                await client.get("/health", name="good")
                async with asyncio.timeout(0.05):
                    await client.get("/delay/30000", name="never")
        """,
        "--mode",
        "asyncio",
        requests=4,
    )
    assert ended.metric("good")["errors"] == 0, ended.messages()
    assert ended.metric("never")["errors"] == ended.result["totals"]["errors"] == 4, ended.messages()
    assert ended.metric("cut")["errors"] == ended.metric("own")["errors"] == 2


def test_request_wrapped_in_future_is_sent_at_once(run, target):
    before = target.counts().get("/echo", 0)
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task(timeout=60)
            async def go(self, client):
                ahead = asyncio.ensure_future(client.get("/echo"))
                while not ahead.done():
                    await asyncio.sleep(0.001)
                assert ahead.result().status_code == (await ahead).status_code == 200
                asyncio.ensure_future(client.get("/echo"))
        """,
        requests=3,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert target.counts()["/echo"] - before == ended.result["totals"]["requests"] == 6


def test_background_task_continues_during_constant_tasks(run, target):
    before = target.counts().get("/echo", 0)
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            async def on_start(self, client):
                self.beside = asyncio.create_task(self.look(client))

            async def look(self, client):
                while True:
                    await client.get("/echo")

            @task
            async def constant(self, client):
                await client.get("/delay/5")
        """,
        requests=20,
    )
    assert target.counts()["/echo"] - before == ended.metric("GET /echo")["requests"] >= 20, ended.messages()
    assert ended.metric("GET /delay/5")["requests"] == 20 and ended.result["totals"]["errors"] == 0


def test_cancelled_gather_of_requests_raises_timeout(run):
    """``gather`` must see a cancelled request as cancelled, or its awaiter never wakes."""
    ended = run(
        """
        import asyncio

        class Shop(VUser):
            @task(timeout=60)
            async def go(self, client):
                for several in (asyncio.gather, lambda *calls: asyncio.wait([asyncio.ensure_future(call) for call in calls]),
                                lambda *calls: asyncio.gather(*map(asyncio.shield, calls)), self.group):
                    try:
                        async with asyncio.timeout(0.05):
                            await several(*[client.get("/delay/1000", name="late") for _ in range(3)])
                    except TimeoutError:
                        emit_metric("cancelled")
                both = await asyncio.gather(client.get("/health"), client.get("http://127.0.0.1:1/", name="refused"), return_exceptions=True)
                assert both[0].ok and isinstance(both[1], RequestError), both

            async def group(self, *calls):
                async with asyncio.TaskGroup() as group:
                    for call in calls:
                        group.create_task(call)
        """,
        requests=2,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("cancelled")["requests"] == 8 and "Traceback" not in ended.stderr, ended.stderr

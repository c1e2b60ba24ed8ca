"""Static mode: only tasks that are proven to send the same requests at every call run without
Python."""

from __future__ import annotations

import textwrap

import pytest

from squall._constant import NotConstant, constant_requests
from squall._load import load
from squall._sources import ScenarioSources

CONSTANT = {
    "one get": 'await client.get("/health")',
    "several": 'await client.get("/a")\nawait client.post("/b", json={"k": [1, None, True]}, headers={"X": "1"})',
    "any method": 'await client.request("options", "/a", params=[("a", 1)])',
    "a docstring": '"""Looks."""\nawait client.get("/health", name="x", timeout=2, auth=("a", "b"))',
}

CHANGING = {
    "random": 'await client.get(f"/products/{random.randrange(5)}")',
    "time": 'await client.get("/x", params={"t": time.time()})',
    "a branch on time": 'if time.time() > 0:\n    await client.get("/x")',
    "state it reads": 'await client.get("/x", headers=self.headers)',
    "state it writes": 'self.count = 1\nawait client.get("/x")',
    "state it counts": 'await client.get("/x")\nself.count += 1',
    "a global it reads": "await client.get(PATH)",
    "a global it writes": 'global PATH\nawait client.get("/x")',
    "a branch on the answer": 'if (await client.get("/x")).ok:\n    await client.get("/y")',
    "an answer it keeps": 'answer = await client.get("/x")',
    "an answer it asserts": 'assert (await client.get("/x")).ok',
    "an answer in an expression": '(await client.get("/x")).raise_for_status()',
    "a loop": 'for _ in range(2):\n    await client.get("/x")',
    "a nested request": 'await client.get((await client.get("/x")).text)',
    "an exception": 'raise ValueError\nawait client.get("/x")',
    "a try": 'try:\n    await client.get("/x")\nexcept Exception:\n    pass',
    "another awaitable": 'await asyncio.sleep(1)\nawait client.get("/x")',
    "our own sleep": 'await sleep(1)\nawait client.get("/x")',
    "a call that is not awaited": 'client.get("/x")',
    "a batch": 'await client.batch(["/a", "/b"])',
    "files": 'await client.post("/x", files={"a": b"b"})',
    "unpacked options": 'await client.get("/x", **OPTIONS)',
    "a walrus": 'await client.get(x := "/x")',
    "a set": 'await client.get("/x", params={"a": {1, 2}})',
    "another object's method": 'await self.api.get("/x")',
    "nothing": "pass",
    "a call without a URL": "await client.get()",
    "a URL that is none": "await client.get(5, 6)",
    "a key that cannot be one": 'await client.get("/x", json={[1]: 2})',
    "the environment": 'await client.get("/x", headers={"A": os.environ["HOME"]})',
    "a file": 'await client.get("/x", data=open(__file__).read())',
    "a generator": 'await client.get(next(PATHS))',
    "a formatted text": 'await client.get(f"/x")',
    "a text made of two": 'await client.get("/x" + str(1))',
    "a comprehension": 'await client.get("/x", json=[n for n in (1, 2)])',
    "a method of a literal": 'await client.get("/{}".format(1))',
    "a class attribute": 'await client.get("/x", json=Shop.__dict__["n"])',
    "a lambda": 'await client.get((lambda: "/x")())',
    "a thread": 'threading.Thread(target=print).start()\nawait client.get("/x")',
    "two in one line": 'await client.get("/x"), await client.get("/y")',
    "an unpacked list": 'await client.get(*["/x"])',
    "a branch that is none": 'if True:\n    await client.get("/x")',
    "a with": 'with open(__file__):\n    await client.get("/x")',
    "a return": 'return await client.get("/x")',
    "a delete": 'del self.x\nawait client.get("/x")',
    "a match": 'match self.id:\n    case 0:\n        await client.get("/x")',
    "a yield": 'await client.get((lambda: (yield))())',
    "a function inside": 'async def inner():\n    await client.get("/x")\nawait inner()',
}


def scenario_of(write, body: str, fn: str = "async def"):
    code = f"import asyncio, os, random, threading, time\nPATH = '/x'\nOPTIONS, PATHS = {{}}, iter([])\nclass Shop(VUser):\n    @task\n    {fn} go(self, client):\n"
    return write(code + textwrap.indent(body, " " * 8))


@pytest.mark.parametrize("case", CONSTANT)
def test_constant_task_is_detected(write, case):
    for fn, body in (("async def", CONSTANT[case]), ("def", CONSTANT[case].replace("await ", ""))):
        task = load(str(scenario_of(write, body, fn))).tasks[0]
        assert task.requests, task.mode_reason


@pytest.mark.parametrize("case", CHANGING)
def test_task_with_changing_values_runs_as_python(write, case):
    # A set literal is constant for Python, but the order of its elements is not defined.
    task = load(str(scenario_of(write, CHANGING[case]))).tasks[0]
    assert task.requests is None, (case, task.requests)
    assert task.mode_reason


def test_function_with_default_argument_is_not_constant():
    async def go(self, client, path="/x"):
        await client.get(path)

    with pytest.raises(NotConstant):
        constant_requests(go, ScenarioSources(()))


SCENARIO = """
    class Shop(VUser):
        @task(weight=2)
        async def look(self, client):
            await client.get("/health", headers={"X": "1"})
            await client.get("/redirect/1")

        @task
        def order(self, client):
            client.post("/auth/login", json={"username": "a", "password": "b"})
"""


def test_static_and_stepped_runs_report_same_figures(run, target):
    def counts(mode):
        before = target.counts()
        ended = run(SCENARIO, "--mode", mode, requests=9)
        received = {path: count - before[path] for path, count in target.counts().items() if count != before[path]}
        metrics = {metric["name"]: (metric["kind"], metric["requests"], metric["errors"]) for metric in ended.result["metrics"]}
        return received, metrics, ended.result["totals"]["bytes_out"]

    assert counts("static") == counts("stepped") == counts("auto")


def test_failures_of_static_tasks_are_recorded(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("http://127.0.0.1:1/nobody")
                await client.get("/health")
        """,
        "--mode",
        "static",
    )
    assert ended.metric("GET /nobody")["errors"] == 5
    assert ended.metric("go")["errors"] == 5
    assert "GET /health" not in ended.names()


def test_constant_and_other_tasks_run_together(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def constant(self, client):
                await client.get("/health")

            @task
            async def other(self, client):
                answer = await client.get("/bytes/3")
                assert len(answer.content) == 3
        """,
        requests=10,
    )
    assert (ended.metric("constant")["requests"], ended.metric("other")["requests"]) == (5, 5)
    assert ended.result["totals"]["errors"] == 0


def test_check_command_prints_mode_and_reason(squall, write, target):
    ended = squall("run", str(write(SCENARIO)), "--target", target.url, "--check")
    assert "mode static" in ended.stdout and "its source proves" in ended.stdout
    stepped = scenario_of(write, CHANGING["state it reads"])
    ended = squall("run", str(stepped), "--target", target.url, "--check")
    assert "mode stepped" in ended.stdout and "depends on values that may change" in ended.stdout


def test_static_mode_is_rejected_for_changing_task(squall, write, target):
    ended = squall("run", str(scenario_of(write, CHANGING["random"])), "--target", target.url, "--mode", "static")
    assert ended.code == 2
    assert "cannot run without Python" in ended.stderr and "shop.py:6" in ended.stderr


HIDDEN = {
    "a closure": """
        def made(path):
            @task("go")
            async def go(self, client):
                await client.get(path)
            return go

        class Shop(VUser):
            go = made("/health")
    """,
    "a decorator that changes it": """
        import functools

        def twice(function):
            @functools.wraps(function)
            async def call(self, client):
                await function(self, client)
                await function(self, client)
            return call

        class Shop(VUser):
            @task
            @twice
            async def go(self, client):
                await client.get("/health")
    """,
    "a client that is not the client": """
        class Shop(VUser):
            @task
            async def go(self, client):
                client = self.other
                await client.get("/health")
    """,
    "code that is not its source": """
        async def other(self, client):
            self.count = getattr(self, "count", 0) + 1
            await client.get(f"/bytes/{self.count}")

        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")

            go.__code__ = other.__code__
    """,
    "code that has another's source": """
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")

            hidden = "\\n" * 3 + "async def go(self, client):\\n    await client.get(str(self.id))"
            made = {}
            exec(compile(hidden, __file__, "exec"), made)
            go.__code__ = made["go"].__code__
    """,
    "code that is replaced while it runs": """
        class Shop(VUser):
            async def on_start(self, client):
                Shop.go.__code__ = Shop.other.__code__

            async def other(self, client):
                await client.get(str(self.id))

            @task
            async def go(self, client):
                await client.get("/health")
    """,
    "a decorator above the mark": """
        import functools

        def twice(function):
            @functools.wraps(function)
            async def call(self, client):
                await function(self, client)
                await function(self, client)
            del call.__wrapped__
            return call

        class Shop(VUser):
            @twice
            @task
            async def go(self, client):
                await client.get("/health")
    """,
    "a decorator above LoadPilot's mark": """
        import functools
        from loadpilot import VUser, task

        def twice(function):
            @functools.wraps(function)
            async def call(self, client):
                await function(self, client)
                await function(self, client)
            return call

        class Shop(VUser):
            @twice
            @task
            async def go(self, client):
                client.get("/health")
    """,
    "a decorator that is an object": """
        import functools

        class Twice:
            def __init__(self, function):
                self.function = function
                functools.update_wrapper(self, function)
                del self.__wrapped__
            async def __call__(self, user, client):
                await self.function(user, client)
                await self.function(user, client)

        class Shop(VUser):
            @Twice
            @task
            async def go(self, client):
                await client.get("/health")
    """,
    "a mixin that overrides it": """
        class Mixin:
            @task
            async def go(self, client):
                await client.get(self.path)

        class Base(VUser):
            @task
            async def go(self, client):
                await client.get("/health")

        @scenario()
        class Shop(Mixin, Base):
            pass
    """,
    "a partial method": """
        import functools

        async def fetch(self, client, path="/x"):
            await client.get(path)

        class Shop(VUser):
            @task
            async def go(self, client):
                await self.fetch(client)

            fetch = functools.partialmethod(fetch, path="/y")
    """,
    "a property as its path": """
        PATHS = iter(["/a", "/b", "/c"])

        class Shop(VUser):
            @property
            def path(self):
                return next(PATHS)

            @task
            async def go(self, client):
                await client.get(self.path)
    """,
}


@pytest.mark.parametrize("case", HIDDEN)
def test_task_with_hidden_change_runs_as_python(write, case):
    task = load(str(write(HIDDEN[case]))).tasks[0]
    assert task.requests is None, (case, task.requests)


def test_inherited_hooks_run_for_constant_tasks(run, target):
    before = target.counts().get("/auth/login", 0)
    ended = run(
        """
        class Base(VUser):
            async def on_start(self, client):
                await client.post("/auth/login", json={"username": "a", "password": "b"})

        @scenario()
        class Shop(Base):
            @task
            async def constant(self, client):
                await client.get("/health")
        """,
        requests=4,
    )
    assert ended.metric("constant")["requests"] == 4 and ended.result["totals"]["errors"] == 0
    assert target.counts()["/auth/login"] - before == 1


@pytest.mark.parametrize("body", ['await client.batch(["/health", "/bytes/3"])', 'await client.get("/health")\n        self.seen = 1'])
def test_async_and_batch_scenarios_send_all_requests(run, target, body):
    before = target.counts()
    ended = run(f"class Shop(VUser):\n    @task\n    async def go(self, client):\n        {body}\n", requests=3)
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert target.counts()["/health"] - before["/health"] == 3


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('    @task\n    async def go(self, client):\n        await client.batch(["/a", "/b"])', "shop.py:6 calls client.batch, which needs Python"),
        ('    @task\n    async def go(self, client):\n        await asyncio.sleep(1)', "shop.py:6 calls something other than the client"),
        ('    go = task(lambda self, client: client.get("/a"))', "it is a lambda"),
    ],
)
def test_mode_reason_names_line_and_call(write, body, why):
    assert load(str(write(f"import asyncio\nclass Shop(VUser):\n{body}"))).tasks[0].mode_reason == why

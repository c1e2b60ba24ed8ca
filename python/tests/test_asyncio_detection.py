"""Detection of asyncio in code of any form: coroutines whose code names a loop library run on asyncio,
and the engine resumes all others."""

from __future__ import annotations

import pytest

from squall._load import load, load_all

HEAD = """
import asyncio, contextlib, functools, random, squall, types
from asyncio import get_running_loop as now, sleep as nap

box = types.SimpleNamespace(nap=nap)
naps = [nap]

def quiet(function):
    @functools.wraps(function)
    async def wrapper(*args, **options):
        return await function(*args, **options)
    return wrapper

def retry(function):
    @functools.wraps(function)
    async def wrapper(*args, **options):
        for _ in range(3):
            answer = await function(*args, **options)
            if answer.ok:
                return answer
            await asyncio.sleep(0.01)
    return wrapper

def bare(function):
    async def wrapper(self, client):
        await nap(0)
        return await function(self, client)
    return wrapper

def plain(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

class Retrying:
    def __init__(self, function):
        self.function = function
        functools.update_wrapper(self, function)
    def __get__(self, user, cls=None):
        return self if user is None else functools.partial(self, user)
    async def __call__(self, *args):
        await asyncio.sleep(0)
        return await self.function(*args)

class Counting(Retrying):
    async def __call__(self, *args):
        return await self.function(*args)

async def fetch(client, path="/x"):
    return await client.get(path)

async def give(thing):
    return thing

async def run(function, *args):
    return await function(*args)

def fire(client):
    asyncio.create_task(client.get("/x"))

class Api:
    def __init__(self, client):
        self.client = client
    async def look(self):
        await asyncio.sleep(0)
    def fire(self):
        asyncio.ensure_future(self.client.get("/x"))
    @property
    def later(self):
        return asyncio.get_running_loop()

API = Api(None)
"""

#: Bodies of a class or of a task.
OURS = {
    "a decorated helper": "@quiet\nasync def h(self, client):\n    await client.get('/x')\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a decorated task": "@task\n@quiet\nasync def go(self, client):\n    await client.get(self.path)",
    "a decorated hook": "@quiet\nasync def on_start(self, client):\n    await client.get('/x')\n@task\nasync def go(self, client):\n    await client.get(self.path)",
    "a plain decorator": "@task\n@plain\nasync def go(self, client):\n    await client.get(self.path)",
    "a counting object": "@task\n@Counting\nasync def go(self, client):\n    await client.get(self.path)",
    "squall.metric": "@task\n@squall.metric('m')\nasync def go(self, client):\n    await client.get(self.path)",
    "super": "async def on_start(self, client):\n    await super().on_start(client)\n@task\nasync def go(self, client):\n    await client.get(self.path)",
    "a nested function": "@task\nasync def go(self, client):\n    async def one(n):\n        await client.get(f'/{n}')\n    await one(1)",
    "a function that it hands on": "@task\nasync def go(self, client):\n    await run(fetch, client)",
    "a plain helper": "def h(self, client):\n    return client.get(self.path)\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a static method": "@staticmethod\nasync def h(other, client):\n    await client.get('/x')\n@task\nasync def go(self, client):\n    await self.h(1, client)",
    "a JSON-RPC client of its own": "async def on_start(self, client):\n    self.rpc = squall.JsonRPCClient(client, '/rpc')\n@task\nasync def go(self, client):\n    await self.rpc.call('sum', [1])",
    "events of a stream": "@task\nasync def go(self, client):\n    async with client.stream('GET', '/x') as answer:\n        async for event in squall.events(answer):\n            pass",
    "a context manager": "@contextlib.asynccontextmanager\nasync def session(self, client):\n    yield client\n    await client.get('/out')\n@task\nasync def go(self, client):\n    async with self.session(client) as c:\n        await c.get('/x')",
    "a context manager that cleans up": "@contextlib.asynccontextmanager\nasync def session(self, client):\n    try:\n        yield\n    finally:\n        await client.get('/out')\n@task\nasync def go(self, client):\n    async with self.session(client):\n        await client.get('/x')",
    "a generator": "async def pages(self, client):\n    for n in range(3):\n        yield await client.get(f'/{n}')\n@task\nasync def go(self, client):\n    async for page in self.pages(client):\n        pass",
    "recursion": "async def deep(self, client, n):\n    await client.get('/x')\n    if n:\n        await self.deep(client, n - 1)\n@task\nasync def go(self, client):\n    await self.deep(client, 3)",
    "pages that lead to each other": "@task\nasync def go(self, client):\n    page = await client.get('/x')\n    while page.ok:\n        page = await client.get(page.text)",
    "two at once": "@task\nasync def go(self, client):\n    a, b = client.get('/a'), client.get('/b')\n    await a\n    await b",
    "releasing": "@task\nasync def go(self, client):\n    u = await self.resources.acquire('u')\n    await self.resources.release(u)",
    "a WebSocket that is kept": "async def on_start(self, client):\n    self.feed = await client.websocket('/feed').connect()\n@task\nasync def go(self, client):\n    await self.feed.send('x')\n    return await self.feed.receive()",
    "parts of a batch": "@task\nasync def go(self, client):\n    a, b = await client.batch(['/a', '/b'])\n    await client.get(a.json()['next'])",
    "a coroutine that is kept": "async def on_start(self, client):\n    self.first = self.look(client)\nasync def look(self, client):\n    await client.get('/x')\n@task\nasync def go(self, client):\n    await self.first",
    "imports of Python's": "@task\nasync def go(self, client):\n    import json, uuid\n    await client.get('/x', json=json.loads('1'))",
    "an exit stack": "@task\nasync def go(self, client):\n    async with contextlib.AsyncExitStack() as stack:\n        await client.get('/x')",
}

FOREIGN = {
    "a decorated helper": "@retry\nasync def h(self, client):\n    return await client.get('/x')\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a decorated task": "@task\n@retry\nasync def go(self, client):\n    return await client.get('/x')",
    "a decorated task that hides it": "@task\n@bare\nasync def go(self, client):\n    return await client.get('/x')",
    "a decorated hook": "@retry\nasync def on_start(self, client):\n    return await client.get('/x')\n@task\nasync def go(self, client):\n    await client.get('/x')",
    "two decorators": "@task\n@quiet\n@retry\n@quiet\nasync def go(self, client):\n    return await client.get('/x')",
    "a plain decorator around it": "@task\n@plain\n@retry\nasync def go(self, client):\n    return await client.get('/x')",
    "a retrying object": "@task\n@Retrying\nasync def go(self, client):\n    return await client.get('/x')",
    "a retrying object as a helper": "@Retrying\nasync def h(self, client):\n    return await client.get('/x')\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a decorator inside": "@task\nasync def go(self, client):\n    await retry(fetch)(client)",
    "a partial": "h = functools.partial(nap, 0)\n@task\nasync def go(self, client):\n    await self.h()",
    "a partial inside": "@task\nasync def go(self, client):\n    await functools.partial(nap, 0)()",
    "a nested function": "@task\nasync def go(self, client):\n    async def one():\n        await nap(0)\n    await one()",
    "a helper whose argument is like a user": "@task\nasync def go(self, client):\n    async def h(api):\n        await api.look()\n    await h(API)",
    "an argument": "async def h(self, call):\n    await call\n@task\nasync def go(self, client):\n    await self.h(API.look())",
    "an argument that is assigned again": "async def h(self, call):\n    call = call\n    await call\n@task\nasync def go(self, client):\n    await self.h(API.look())",
    "a function that it hands on": "@task\nasync def go(self, client):\n    await run(nap, 0)",
    "a lambda that it hands on": "@task\nasync def go(self, client):\n    await run(lambda: API.look())",
    "what a helper returns": "@task\nasync def go(self, client):\n    api = await give(API)\n    await api.look()",
    "a plain function that starts a task": "@task\nasync def go(self, client):\n    fire(client)\n    await client.get('/x')",
    "a method that starts a task": "@task\nasync def go(self, client):\n    self.api.fire()\n    await client.get('/x')",
    "a property": "@task\nasync def go(self, client):\n    self.api.later\n    await client.get('/x')",
    "a lambda": "@task\nasync def go(self, client):\n    f = lambda: asyncio.get_running_loop()\n    f()\n    await client.get('/x')",
    "an object of its own": "@task\nasync def go(self, client):\n    await Api(client).look()",
    "a module's object": "@task\nasync def go(self, client):\n    await API.look()",
    "to_thread": "@task\nasync def go(self, client):\n    await asyncio.to_thread(print)",
    "a task group": "@task\nasync def go(self, client):\n    async with asyncio.TaskGroup() as group:\n        group.create_task(fetch(client))",
    "an import inside": "@task\nasync def go(self, client):\n    import asyncio as x\n    x.create_task(fetch(client))",
    "a name imported inside": "@task\nasync def go(self, client):\n    from asyncio import create_task\n    create_task(fetch(client))",
    "a module that is imported inside": "@task\nasync def go(self, client):\n    import importlib\n    importlib.import_module('asyncio').create_task(fetch(client))",
    "__import__": "@task\nasync def go(self, client):\n    __import__('asyncio').create_task(fetch(client))",
    "a module that is not there yet": "@task\nasync def go(self, client):\n    import helper_of_mine\n    await client.get('/x')",
    "eval": "@task\nasync def go(self, client):\n    await eval('nap(0)')",
    "a context manager": "@contextlib.asynccontextmanager\nasync def session(self):\n    await nap(0)\n    yield\n@task\nasync def go(self, client):\n    async with self.session():\n        await client.get('/x')",
    "a generator": "async def pages(self):\n    await nap(0)\n    yield 1\n@task\nasync def go(self, client):\n    async for page in self.pages():\n        pass",
    "a generator in a comprehension": "async def pages(self):\n    await nap(0)\n    yield 1\n@task\nasync def go(self, client):\n    return [page async for page in self.pages()]",
    "a generator that must be closed": "async def pages(self, client):\n    async with client.stream('GET', '/x') as answer:\n        async for piece in answer:\n            yield piece\n@task\nasync def go(self, client):\n    async for page in self.pages(client):\n        break",
    "a method that is replaced": "async def h(self, client):\n    await client.get('/x')\nasync def on_start(self, client):\n    self.h = API.look\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a method that is replaced by name": "async def h(self, client):\n    await client.get('/x')\nasync def on_start(self, client):\n    setattr(self, 'h', API.look)\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a class attribute that is replaced": "async def h(self, client):\n    await client.get('/x')\nasync def on_start(self, client):\n    Shop.h = API.look\n@task\nasync def go(self, client):\n    await self.h(client)",
    "a global that is replaced": "async def on_start(self, client):\n    global fetch\n    fetch = API.look\n@task\nasync def go(self, client):\n    await fetch(client)",
    "a global of another's": "async def on_start(self, client):\n    squall.sleep = API.look\n@task\nasync def go(self, client):\n    await squall.sleep(1)",
    "a closure that is replaced": "@task\nasync def go(self, client):\n    op = client.get('/x')\n    def swap():\n        nonlocal op\n        op = API.look()\n    swap()\n    await op",
    "a subscript": "@task\nasync def go(self, client):\n    await [nap][0](0)",
    "getattr": "@task\nasync def go(self, client):\n    await getattr(asyncio, 'sleep')(0)",
    "a C function of asyncio": "@task\nasync def go(self, client):\n    now()\n    await client.get('/x')",
    "an attribute of an object": "@task\nasync def go(self, client):\n    await box.nap(0)",
    "an object in a list": "@task\nasync def go(self, client):\n    await naps[0](0)",
    "a decorated method of the user": "@retry\nasync def h(self, client):\n    return await client.get('/x')\n@task\n@quiet\nasync def go(self, client):\n    await self.h(client)",
    "a future": "def on_init(self):\n    self.future = asyncio.Future()\n@task\nasync def go(self, client):\n    await self.future",
    "functools.wraps over ours": "@staticmethod\n@functools.wraps(squall.sleep)\nasync def pause(s):\n    await nap(s)\n@task\nasync def go(self, client):\n    await self.pause(0)",
    "a mixin": "@task\nasync def go(self, client):\n    await self.mixed()",
    "super": "async def mixed(self):\n    await super().mixed()\n@task\nasync def go(self, client):\n    await self.mixed()",
    "a comprehension": "def on_init(self):\n    self.futures, _ = [asyncio.Future()], 1\n@task\nasync def go(self, client):\n    [await f for f in self.futures]",
    "something that is kept in a resource": "@task\nasync def go(self, client):\n    u = await self.resources.acquire('u')\n    u['api'] = API\n    await u['api'].look()",
    "something that a resource is asked for": "@task\nasync def go(self, client):\n    u = await self.resources.acquire('u')\n    u['api'] = API\n    await u.get('api').look()",
    "something that is kept in an answer": "@task\nasync def go(self, client):\n    data = (await client.get('/x')).json()\n    data['api'] = API\n    await data.pop('api').look()",
    "something that is kept with answers": "@task\nasync def go(self, client):\n    answers = await client.batch(['/x'])\n    answers.append(API.look())\n    for answer in answers:\n        await answer",
    "something that is hung onto ours": "async def on_start(self, client):\n    self.rpc = squall.JsonRPCClient(client, '/rpc')\n    self.rpc.api = API\n@task\nasync def go(self, client):\n    await self.rpc.api.look()",
    "a long way round": "@task\nasync def go(self, client):\n    import helper_that_is_there\n    helper_that_is_there.prepare(self)\n    await self.c.get('/x')\nasync def on_start(self, client):\n    self.c = client",
    "a __getattribute__": "def __getattribute__(self, name):\n    return API.look if name == 'h' else object.__getattribute__(self, name)\nasync def h(self):\n    pass\n@task\nasync def go(self, client):\n    await self.h()",
}

#: Bodies whose awaited object is an ``Api``, which only its method's name shows.
BY_NAME = {
    "a nested function whose argument is called client": "@task\nasync def go(self, client):\n    async def one(client):\n        await client.get('/x')\n    await one(API)",
    "a client that is another": "@task\nasync def go(self, client):\n    client = self.api\n    await client.get('/x')",
    "a static method": "@staticmethod\nasync def h(client, other):\n    await other.get('/x')\n@task\nasync def go(self, client):\n    await self.h(client, API)",
    "what a context manager gives": "@contextlib.asynccontextmanager\nasync def session(self):\n    yield API\n@task\nasync def go(self, client):\n    async with self.session() as c:\n        await c.get('/x')",
    "an attribute that is unpacked": "async def on_start(self, client):\n    self.c = client\n    self.c, _ = API, 1\n@task\nasync def go(self, client):\n    await self.c.get('/x')",
    "an attribute out of another method": "async def on_start(self, client):\n    self.c = client\nasync def h(self, client):\n    self.c = client\n@task\nasync def go(self, client):\n    await self.h(API)\n    await self.c.get('/x')",
    "resources that are replaced": "async def on_start(self, client):\n    self.resources = API\n@task\nasync def go(self, client):\n    await self.resources.acquire('u')",
    "a name that a match binds": "@task\nasync def go(self, client):\n    op = client.get('/x')\n    match self.api:\n        case op:\n            pass\n    await op",
    "names that swap": "@task\nasync def go(self, client):\n    a = client.get('/x')\n    a = self.api\n    b = client.get('/y')\n    a = b\n    b = a\n    await b",
    "events of something else": "@task\nasync def go(self, client):\n    async for event in squall.events(self.api):\n        pass",
    "a JSON-RPC client over something else": "@task\nasync def go(self, client):\n    await squall.JsonRPCClient(self.api, '/rpc').call('sum')",
}

TAIL = """
class Mixin:
    async def mixed(self):
        await nap(0)

class Base(VUser):
    path = "/x"
    async def on_start(self, client):
        await client.get("/login")

class Shop(Base, Mixin):
"""


def scenario_of(write, body):
    lines = "\n".join("    " + line for line in body.splitlines())
    return str(write(HEAD + TAIL.replace("class Shop", "@scenario()\nclass Shop") + lines))


@pytest.mark.parametrize("shape", OURS)
def test_code_that_awaits_squall_only_runs_stepped_in_any_form(write, shape):
    loaded = load(scenario_of(write, OURS[shape]))
    assert not loaded.on_asyncio, loaded.mode_reason
    assert all(task.requests is None for task in loaded.tasks)


@pytest.mark.parametrize("shape", FOREIGN)
def test_code_that_may_await_asyncio_runs_on_asyncio_in_any_form(write, shape):
    loaded = load(scenario_of(write, FOREIGN[shape]))
    assert loaded.on_asyncio, loaded.mode_reason
    assert "shop.py:" in loaded.mode_reason, loaded.mode_reason


REQUESTS_OF_API = """
class RequestingApi(Api):
    async def get(self, path):
        await nap(0)
    async def request(self, path):
        await nap(0)
    post = acquire = __aiter__ = request

Api = RequestingApi
API = Api(None)
"""


@pytest.mark.parametrize("shape", BY_NAME)
def test_method_of_unknown_object_is_found_by_its_name(write, shape):
    body = BY_NAME[shape].replace("acquire", "request")
    tail = REQUESTS_OF_API + TAIL.replace("class Shop", "@scenario()\nclass Shop").replace('path = "/x"', 'path = "/x"\n    api = API')
    loaded = load(str(write(HEAD + tail + "\n".join("    " + line for line in body.splitlines()))))
    assert loaded.on_asyncio, loaded.mode_reason
    assert "shop.py:" in loaded.mode_reason, loaded.mode_reason


HIDDEN_ASYNCIO = {
    "an await": "await box[0](0)",
    "an await whose exception is caught": "try:\n            await box[0](0)\n        except Exception:\n            pass",
    "a task": "box[1](client.get('/health'))",
    "the loop": "box[2]()",
}


@pytest.mark.parametrize("case", HIDDEN_ASYNCIO)
def test_asyncio_that_no_name_leads_to_fails_with_hint(run, case):
    ended = run(
        f"""
        import asyncio, collections

        box = collections.deque([asyncio.sleep, asyncio.create_task, asyncio.get_running_loop])

        class Shop(VUser):
            @task
            async def go(self, client):
                {HIDDEN_ASYNCIO[case].replace(chr(10), chr(10) + " " * 8)}
        """
    )
    assert ended.metric("go")["errors"] == 5, ended.messages()
    assert "--mode asyncio" in ended.messages()


@pytest.mark.parametrize("strategy", ["SequentialWeightedStrategy", "ParallelReadyStrategy"])
def test_step_strategy_runs_on_asyncio(write, strategy):
    loaded = load(scenario_of(write, f"step_strategy = {strategy}()\n@task\nasync def go(self, client):\n    await client.get('/x')"))
    assert loaded.on_asyncio and loaded.mode_reason == f"{strategy} chooses its steps"


PROBES = {
    "async def look():\n    await sleep(0)": False,
    "async def look(context):\n    return (await context.client.get('/x')).elapsed_ms": False,
    "async def look():\n    await nap(0)": True,
    "async def look(context):\n    await context.get('api').look()": True,
    "@retry\nasync def look(context):\n    return await context.client.get('/x')": True,
}


@pytest.mark.parametrize("probe", PROBES)
def test_probes_are_analysed_like_tasks(write, probe):
    path = scenario_of(write, "@task\nasync def go(self, client):\n    await client.get(self.path)")
    with open(path, "a") as file:
        file.write("\n\n@probe('p')\n" + probe + "\n")
    shop, probes = load_all(path)
    assert not shop.on_asyncio, shop.mode_reason
    assert probes.on_asyncio is PROBES[probe], probes.mode_reason


def test_scenarios_of_one_file_are_analysed_separately(write):
    path = write(
        """
        import asyncio

        @set_up
        async def prepare(params):
            await asyncio.sleep(0)

        @scenario()
        class One(VUser):
            @task
            async def go(self, client):
                await asyncio.sleep(0)

        @scenario()
        class Two(VUser):
            @task
            async def go(self, client):
                await client.get(self.path)
        """
    )
    assert [loaded.on_asyncio for loaded in load_all(str(path))] == [True, False]


def test_imported_scenario_modules_are_analysed(write):
    write("import asyncio\nasync def look(c):\n    return await c.get('/x')\nasync def nap(c):\n    await asyncio.sleep(0)\n", "looks_into.py", head=False)
    write("import asyncio\ndef fire(c):\n    asyncio.ensure_future(c.get('/x'))\n", "fires_off.py", head=False)
    code = "import looks_into, fires_off\nclass Shop(VUser):\n    @task\n    async def go(self, client):\n        {}\n        await client.get(self.path)"
    assert not load(str(write(code.format("await looks_into.look(client)")))).on_asyncio
    assert load(str(write(code.format("await looks_into.nap(client)")))).mode_reason == "looks_into.py:5 uses asyncio.sleep"
    assert load(str(write(code.format("fires_off.fire(client)")))).mode_reason == "fires_off.py:3 uses asyncio.ensure_future"


def test_module_imported_during_run_requires_asyncio(write):
    write("def swap(user):\n    user.look = user.other\n", "swaps_methods.py", head=False)
    code = """
        def early():
            import swaps_methods
        early()
        class Shop(VUser):
            async def look(self, client):
                await client.get("/x")
            @task
            async def go(self, client):
                import swaps_methods
                swaps_methods.swap(self)
                await self.look(client)
    """
    assert "shop.py:11 imports swaps_methods during the run" in load(str(write(code))).mode_reason


def test_retry_helpers_in_hooks_and_tasks_run_stepped(run):
    ended = run(
        """
        import asyncio, functools

        def retry(function):
            @functools.wraps(function)
            async def wrapper(*args):
                await asyncio.sleep(0.001)
                return await function(*args)
            return wrapper

        class Shop(VUser):
            @retry
            async def on_start(self, client):
                await client.get("/api/products/1", name="login")

            @task
            @retry
            async def one(self, client):
                await client.get("/health")

            @retry
            async def helper(self, client):
                return await client.get("/bytes/3")

            @task
            async def two(self, client):
                assert len((await self.helper(client)).content) == 3
        """,
        requests=6,
        users=2,
    )
    assert ended.metric("one")["errors"] == ended.metric("two")["errors"] == 0, ended.messages()
    assert ended.metric("login")["requests"] == 2


@pytest.mark.parametrize("decorator", ["plain", "Object"])
def test_coroutine_hidden_by_decorator_is_awaited(run, target, decorator):
    before = target.counts()["/health"]
    ended = run(
        f"""
        import functools

        def plain(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)
            return wrapper

        class Object:
            def __init__(self, function):
                self.function = function
                functools.update_wrapper(self, function)
            async def __call__(self, *args):
                return await self.function(*args)

        class Shop(VUser):
            @task
            @{decorator}
            async def go(self, client):
                await client.get("/health")
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert target.counts()["/health"] - before == 5


def test_plain_task_that_returns_coroutine_fails(run):
    ended = run(
        """
        async def go(client):
            await client.get("/health")

        class Shop(VUser):
            @task
            def browse(self, client):
                return go(client)
        """
    )
    assert ended.metric("browse")["errors"] == 5
    assert "`go` was not awaited" in ended.messages()


HIDDEN = {
    "setattr in a helper": "class Config: pass\ndef fill(**options):\n    for name in options:\n        setattr(Config, name, options[name])\n",
    "globals in a function without callers": "def debug():\n    return sorted(globals())\n",
    "vars": "def debug(it):\n    return vars(it)\n",
    "a dict": "def debug(it):\n    return it.__dict__\n",
    "eval elsewhere": "def compute(text):\n    return eval(text)\n",
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("use", ["asyncio.create_task(self.push(client))", "later()", "asyncio.get_running_loop()"])
def test_dynamic_code_with_asyncio_requires_asyncio(write, hidden, use):
    head = "import asyncio\ndef later():\n    asyncio.get_running_loop().call_soon(print)\n" + HIDDEN[hidden]
    body = f"class Shop(VUser):\n    async def push(self, client):\n        await client.get('/x')\n    @task\n    async def go(self, client):\n        await client.get(str(self.id))\n        {use}\n"
    loaded = load(str(write(head + body)))
    assert loaded.on_asyncio, loaded.mode_reason
    assert "shop.py:" in loaded.mode_reason


def test_global_rebound_to_asyncio_requires_asyncio(write):
    code = "aio = None\ndef fill():\n    global aio\n    import asyncio as aio\nclass Shop(VUser):\n    def on_init(self):\n        fill()\n    @task\n    async def go(self, client):\n        await client.get(str(self.id))\n        aio.get_running_loop()\n"
    loaded = load(str(write(code)))
    assert loaded.on_asyncio, loaded.mode_reason


@pytest.mark.parametrize("hidden", [hidden for hidden in HIDDEN if hidden != "eval elsewhere"])
def test_dynamic_code_without_loop_library_runs_stepped(write, hidden):
    body = "class Shop(VUser):\n    @task\n    async def go(self, client):\n        await client.get(str(self.id))\n"
    loaded = load(str(write(HIDDEN[hidden] + body)))
    assert not loaded.on_asyncio, loaded.mode_reason

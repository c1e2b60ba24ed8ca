"""Every client feature in every hook and mode, against the real target. One run per hook and mode;
the assertion of a failing feature names it."""

from __future__ import annotations

import textwrap

import pytest

#: Client features, each with an assertion on its effect. `{other}` is an absolute URL of the same
#: target, `{live}` the protocol server.
FEATURES = {
    "get": 'assert (await client.get("/health")).json() == {"status": "ok"}',
    "head": 'assert (await client.head("/health")).content == b""',
    "post json": 'assert "application/json" in (await client.post("/echo", json={"k": [1, 2]})).text',
    "put": 'assert (await client.put("/echo", data=b"raw")).json()["method"] == "PUT"',
    "patch": 'assert (await client.patch("/echo", data="text")).json()["method"] == "PATCH"',
    "delete": 'assert (await client.delete("/echo")).json()["method"] == "DELETE"',
    "request": 'assert (await client.request("options", "/echo")).json()["method"] == "OPTIONS"',
    "headers": 'assert "x-one" in (await client.get("/echo", headers={"X-One": "1"})).text.lower()',
    "params": 'assert "q=a+b&n=1&n=2" in (await client.get("/echo", params={"q": "a b", "n": [1, 2]})).text',
    "form": 'assert "a=1+2" in (await client.post("/echo", data={"a": "1 2"})).text',
    "files": 'assert "a.txt" in (await client.post("/echo", files={"pic": ("a.txt", b"hello", "text/plain")})).text',
    "cookies": 'assert "c=3" in (await client.get("/echo", cookies={"c": "3"})).text',
    "basic": 'assert "Basic bWU6cHc=" in (await client.get("/echo", auth=("me", "pw"))).text',
    "bearer": 'assert "Bearer token" in (await client.get("/echo", auth="token")).text',
    "name": 'assert (await client.get("/bytes/7", name="GET /bytes/{n}")).status_code == 200',
    "timeout": 'assert (await client.get("/health", timeout=60)).ok',
    "batch": 'assert [len(one.content) for one in await client.batch(["/bytes/3", {"path": "/bytes/5"}, ("get", "/bytes/1")])] == [3, 5, 1]',
    "absolute": 'assert (await client.get("{other}/health")).ok',
    "redirect": 'assert (await client.get("/redirect/2")).status_code == 200',
    "stream": 'async with client.stream("GET", "/bytes/9") as one: assert one.status_code == 200 and len(await one.chunk()) == 9',
    "json-rpc": 'assert await JsonRPCClient(client, "http://{live}/rpc").call("sum", [1, 2]) == 3',
    "websocket": 'async with client.websocket("ws://{live}/echo", headers={"X-One": "1"}) as feed: '
    'assert await feed.receive() == "hello 1"; await feed.send(b"x"); assert await feed.receive() == b"x"',
    "events": 'async with client.stream("GET", "http://{live}/events") as one: assert [event.data async for event in events(one)] == ["1", "2\\n3"]',
    "bad status": 'assert not (await client.get("/nothing", name="missing")).ok',
    "response": 'assert (await client.get("/health")).headers["content-type"].startswith("application/json")',
    "refused": 'await self.refused(client)',
    "pause": "await sleep(0.001)",
    "resource": 'taken = await self.resources.acquire("things"); assert taken["n"] >= 0; self.resources.release(taken)',
}

SCENARIO = """
@resource(name="things")
def thing(n):
    return {{"n": n}}

class Shop(VUser):
    {fn} refused(self, client):
        try:
            {wait}client.get("http://127.0.0.1:1/", name="refused")
        except RequestError as error:
            assert error.code == "CONNECT_REFUSED", error.code
        else:
            raise AssertionError("it did not raise")

    {fn} everything(self, client):
{features}
        self.reached = getattr(self, "reached", 0) + 1

    {hook}
"""

HOOKS = {
    "on_start": """{fn} on_start(self, client):
        {wait}self.everything(client)

    @task
    {fn} go(self, client):
        {wait}client.get("/health")
        assert self.reached == 1
""",
    "task": """@task
    {fn} go(self, client):
        {wait}self.everything(client)
""",
    "check": """@task
    {fn} go(self, client):
        {wait}self.everything(client)
        {wait}client.get("/health", name="last")

    def check_go(self, status_code, body):
        assert status_code == 200 and body == {{"status": "ok"}} and self.reached
""",
    "on_init": """{fn} on_init(self, word):
        assert word == "w"
        self.word = word

    @task
    {fn} go(self, client):
        assert self.word == "w"
        {wait}self.everything(client)
""",
    "on_stop": """@task
    {fn} go(self, client):
        {wait}client.get("/health")

    {fn} on_stop(self, client):
        {wait}self.everything(client)
        {wait}client.get("/health", name="stopped")
""",
    "inherited": """@task
    {fn} go(self, client):
        {wait}self.everything(client)
        {wait}self.more(client)

    {fn} on_start(self, client):
        self.more_of_it = 0

    {fn} more(self, client):
        self.more_of_it += 1

@scenario(name="Child")
class Child(Shop):
    def check_go(self, status_code, body):
        assert self.more_of_it > 0
""",
}

MODES = {"stepped": ("async def", "stepped"), "asyncio": ("async def", "asyncio"), "plain": ("def", "stepped")}


def written(features: dict[str, str], target_url: str, live: str, fn: str, indent: int) -> str:
    """Returns the statements indented as a function body."""
    text = "\n".join(f"{statement}  # {name}" for name, statement in features.items())
    text = text.replace("{other}", target_url).replace("{live}", live)
    if fn == "def":
        for word, plain in (("await ", ""), ("async ", ""), ("events(", "events_blocking("), (".call(", ".call_blocking(")):
            text = text.replace(word, plain)
    return textwrap.indent(text, " " * indent)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("mode", MODES)
def test_client_features_work_in_every_hook_and_mode(run, target, live, mode, hook):
    fn, flag = MODES[mode]
    wait = "await " if fn == "async def" else ""
    features = written(FEATURES, target.url, live, fn, 8)
    body = HOOKS[hook].format(fn=fn, wait=wait)
    code = SCENARIO.format(fn=fn, wait=wait, features=features, hook=body)
    params = ["--param", "word=w"] if hook == "on_init" else []
    ended = run(code, "--mode", flag, *params, requests=2)
    # The features cause two errors per pass: a status of 404 and a refused connection.
    passes = {"on_start": 1, "on_stop": 1}.get(hook, 2)
    assert ended.metric("missing")["errors"] == ended.metric("refused")["errors"] == passes, ended.messages()
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.result["totals"]["errors"] == 2 * passes, ended.messages()
    assert not {"on_start", "on_stop"} & ended.names(), ended.messages()
    if hook == "on_stop":
        assert ended.metric("stopped")["requests"] == 1


PROBE = """
import asyncio

looked = []

@probe("look", every=0.01)
{fn} look(context):
    client = context.client
    {pause}
{features}
    looked.append(1)
    return 1

class Shop(VUser):
    @task
    async def go(self, client):
        while len(looked) < 2:  # The first is written down by then, however slow the machine is.
            await sleep(0.01)
        await client.get("/health")
"""


@pytest.mark.parametrize("mode", MODES)
def test_client_features_work_in_probe(run, target, live, mode):
    fn, _ = MODES[mode]
    features = {name: statement for name, statement in FEATURES.items() if "self." not in statement}
    # Squall chooses the mode of a probe by what it awaits.
    pause = "await asyncio.sleep(0)" if mode == "asyncio" else ""
    ended = run(PROBE.format(fn=fn, pause=pause, features=written(features, target.url, live, fn, 4)), requests=2)
    assert ended.metric("probe/look")["errors"] == 0 and ended.metric("look")["requests"] >= 1, ended.messages()
    assert ended.metric("probe/WS /echo receive")["errors"] == 0 and ended.metric("probe/JSON-RPC sum")["errors"] == 0
    assert ended.result["totals"]["requests"] == 2


STATIC = """
    class Shop(VUser):
        @task
        async def constant(self, client):
            await client.get("/health")
            await client.post("/echo", json={"k": [1, "ü"]}, headers={"X-One": "1"}, cookies={"c": "3"}, auth=("me", "pw"), name="echo")
            await client.get("/bytes/7", params={"q": "a b"}, timeout=60)
            await client.put("/echo", data={"a": "1 2"})
            await client.head("/health")
            await client.request("options", "/echo")
            await client.get("/redirect/2")
"""


def test_constant_tasks_send_same_requests_in_every_mode(run, target):
    def counted(mode):
        before = target.counts()
        ended = run(STATIC, "--mode", mode, requests=3)
        assert ended.result["totals"]["errors"] == 0, ended.messages()
        received = {path: count - before.get(path, 0) for path, count in target.counts().items()}
        metrics = {metric["name"]: metric["requests"] for metric in ended.result["metrics"]}
        return {path: count for path, count in received.items() if count}, metrics, ended.result["totals"]["bytes_out"]

    static = counted("static")
    assert static == counted("stepped") == counted("asyncio")

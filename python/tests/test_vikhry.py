"""Scenarios written for vikhry run unchanged where it is not installed: clients, base URLs,
awaitables, responses."""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

VIKHRY = """
from vikhry import VU, between, emit_metric, resource, step, ReqwestClient

@resource(name="users")
async def users(resource_id, ctx):
    return {"username": f"u{resource_id}", "password": "pw"}

class Shop(VU):
    http = ReqwestClient(base_url="")

    async def on_init(self, page: int = 1):
        self.page = page

    async def on_start(self):
        user = await self.resources.acquire("users")
        answer = await self.http.post("/auth/login", json={"username": user["username"], "password": "pw"})
        self.token = answer.json()["access_token"]

    @step(name="browse", weight=3.0)
    async def look(self):
        answer = await self.http.get("/api/products", params={"page": self.page})
        assert answer.status_code == 200
        emit_metric(name="seen", status=True, time=1.5)

    @step(requires=("browse",), every_s=between(0.001, 0.002), timeout=2.0)
    async def order(self):
        await self.http.post("/api/orders", json={"product_id": 1}, headers={"Authorization": f"Bearer {self.token}"})

    async def on_stop(self):
        await self.http.get("/health")
"""

#: A scenario that sets its base URL, by parameter or in the source.
POOLED = """
from vikhry import ReqwestClient, VU, resource, step

@resource(name="users")
async def users(resource_id, _ctx):
    rid = str(resource_id)
    return {{"resource_id": rid, "username": f"user_{{rid}}"}}

class Pooled(VU):
    http = ReqwestClient({template})

    {on_init}

    async def on_start(self) -> None:
        self.user = await self.resources.acquire("users")

    async def on_stop(self) -> None:
        await self.resources.release("users", str(self.user["resource_id"]))

    @step(name="login", timeout{unit}=5.0)
    async def login(self):
        response = await self.http.post("/auth", json={{"username": self.user["username"]}})
        if response.status >= 400:
            raise RuntimeError(f"login returned HTTP {{response.status}}")
        return response

    @step(name="page", requires=("login",), every_s=0.001)
    async def page(self):
        response = await self.http.get("/page", params={{"user": self.user["username"]}})
        if int(getattr(response, "status", 0)) >= 400:
            raise RuntimeError("no page")
"""


class _Shop(http.server.BaseHTTPRequestHandler):
    """Counts requests; /missing responds 404, /rpc is a JSON-RPC endpoint."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.seen[f"{self.command} {path}"] += 1
        body: Any = {"id": 1, "name": "ann"}
        if path == "/rpc":
            question = json.loads(asked)
            body = {"jsonrpc": "2.0", "id": question["id"], "result": [question["method"], question["params"], self.headers.get("X-Tenant")]}
        payload = json.dumps(body).encode()
        self.send_response(404 if path == "/missing" else 200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


class Shop:
    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def seen(self) -> Counter[str]:
        return _Shop.seen


@pytest.fixture
def shop() -> Iterator[Shop]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    server.daemon_threads = True
    _Shop.seen = Counter()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Shop(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()


@pytest.fixture
def alone(squall, write, tmp_path):
    """Runs a scenario without --target."""

    def go(code: str, *arguments: str, requests: int = 8, users: int = 2) -> Any:
        path = write(code, head=False)
        ended = squall("run", str(path), "--json", "result.json", "--users", str(users), "--requests", str(requests), *arguments)
        assert (tmp_path / "result.json").exists(), ended.stdout + ended.stderr
        ended.result = json.loads((tmp_path / "result.json").read_text())
        return ended

    return go


def test_vikhry_scenario_runs_unchanged(run, target):
    before = target.counts()
    ended = run(VIKHRY, "--param", "page=2", requests=12, users=2)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("browse")["requests"] > 0 and ended.metric("order")["requests"] > 0
    assert target.counts()["/auth/login"] - before["/auth/login"] == 2
    assert target.counts()["/health"] - before["/health"] == 2


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_client_takes_base_url_from_parameter(alone, shop, mode):
    on_init = "async def on_init(self, base_url: str) -> None:\n        self.http = self.http(base_url=base_url)"
    code = POOLED.format(template="timeout=5.0", on_init=on_init, unit="")
    ended = alone(code, "--param", f"base_url={shop.url}", "--mode", mode)
    assert ended.code == 0, ended.stdout
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert "on_stop" not in ended.names(), ended.messages()
    assert shop.seen["POST /auth"] + shop.seen["GET /page"] == 8
    assert ended.metric("GET /page")["requests"] == shop.seen["GET /page"]


def test_client_with_base_url_from_parameter_runs_stepped(squall, write):
    on_init = "async def on_init(self, base_url: str) -> None:\n        self.http = self.http(base_url=base_url)"
    path = write(POOLED.format(template="timeout=5.0", on_init=on_init, unit=""), head=False)
    ended = squall("run", str(path), "--check", "--param", "base_url=http://127.0.0.1:1")
    assert "mode stepped" in ended.stdout, ended.stdout + ended.stderr


def test_class_base_url_is_target(alone, shop):
    ended = alone(POOLED.format(template=f'base_url="{shop.url}", timeout=5.0', on_init="", unit="_s"))
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert shop.seen["POST /auth"] + shop.seen["GET /page"] == 8


def test_target_flag_overrides_class_base_url(alone, shop):
    ended = alone(POOLED.format(template='base_url="http://127.0.0.1:1"', on_init="", unit="_s"), "--target", shop.url, requests=4)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert shop.seen["POST /auth"] + shop.seen["GET /page"] == 4


def test_urls_are_joined_with_base_url_like_links(alone, shop):
    code = f"""
from vikhry import ReqwestClient, VU, step

class Paths(VU):
    http = ReqwestClient(base_url="{shop.url}/v1/")

    async def on_init(self):
        self.other = ReqwestClient(base_url="{shop.url}/v2/")

    @step()
    async def paths(self):
        await self.http.get("relative")
        await self.http.get("/absolute")
        await self.other.get("relative")
        await self.http(base_url="{shop.url}/v3/").get("relative")
        await self.http.get("{shop.url}/whole")
"""
    ended = alone(code, requests=1, users=1)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert set(shop.seen) == {"GET /v1/relative", "GET /absolute", "GET /v2/relative", "GET /v3/relative", "GET /whole"}


def test_response_with_error_status_fails_step(alone, shop):
    code = POOLED.format(template="", on_init="", unit="").replace('"/page"', '"/missing"')
    ended = alone(code, "--target", shop.url, requests=4, users=1)
    assert "RuntimeError: no page" in ended.messages()
    assert ended.metric("page")["errors"] == shop.seen["GET /missing"] > 0


def test_step_that_returns_error_response_is_not_completed(alone, shop):
    ended = alone(
        """
        from vikhry import VU, step

        class Steps(VU):
            @step()
            async def bad(self):
                return await self.http.get("/missing")

            @step(requires=("bad",))
            async def never(self):
                await self.http.get("/never")

            @step()
            async def good(self):
                return await self.http.get("/page")

            @step(requires=("good",))
            async def after(self):
                await self.http.get("/after")
        """,
        "--target",
        shop.url,
        requests=12,
        users=1,
    )
    assert "GET /never" not in shop.seen and shop.seen["GET /missing"] == ended.metric("bad")["errors"] > 0, ended.messages()
    assert shop.seen["GET /after"] > 0 and ended.result["totals"]["errors"] == shop.seen["GET /missing"]


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_response_bodies_work_with_and_without_await(alone, shop, mode):
    ended = alone(
        """
        from vikhry import VU, step

        class Bodies(VU):
            @step()
            async def look(self):
                answer = await self.http.get("/page")
                data = await answer.json()
                assert type(data) is dict and data == answer.json() == {"id": 1, "name": "ann"}
                assert answer.json()["name"] == "ann"
                text = await answer.text()
                assert type(text) is str and text == answer.text
                assert await answer.bytes() == text.encode()
                assert answer.status == answer.status_code == 200
                assert answer.get_header("Content-Length") == answer.headers["content-length"]
                answer.error_for_status()
        """,
        "--target",
        shop.url,
        "--mode",
        mode,
        requests=2,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("look")["requests"] == 2


def test_metric_functions_accept_vikhry_arguments(run):
    ended = run(
        """
        from vikhry import VU, emit_metric, metric, step

        class Measured(VU):
            @step(name="work", timeout_s=5.0)
            async def work(self):
                await self.helper()
                emitted = await emit_metric(name="checked", status="ok", time=1.2, source="http", stage="execute", fatal=False, component="x")
                assert emitted is True
                await emit_metric(name="refused", status=False, time=2.0, result_code="NO")

            @metric(name="helper_auth", component="auth")
            async def helper(self):
                await self.named()

            @metric()
            async def named(self):
                await self.http.get("/health")
        """,
        requests=3,
    )
    assert {name: ended.metric(name)["requests"] for name in ("helper_auth", "named", "checked", "refused")} == dict.fromkeys(
        ("helper_auth", "named", "checked", "refused"), 3
    )
    assert ended.metric("refused")["errors"] == 3 and ended.metric("checked")["errors"] == 0


def test_json_rpc_client_takes_base_url_from_parameter(alone, shop):
    code = """
from vikhry import JsonRPCClient, VU, step

class Remote(VU):
    http = JsonRPCClient(timeout=5.0)

    async def on_init(self, base_url: str) -> None:
        self.http = self.http(base_url=base_url)

    @step(name="user.get")
    async def get_user(self):
        result = await self.http.call("user.get", {"user_id": 42}, headers={"X-Tenant": "t"})
        assert result == ["user.get", {"user_id": 42}, "t"], result
"""
    ended = alone(code, "--param", f"base_url={shop.url}/rpc", requests=3)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert shop.seen == {"POST /rpc": 3}


def test_vikhry_strategy_chooses_steps(run):
    ended = run(
        """
        from vikhry import VU, step
        from vikhry.runtime.strategy import StepSelection

        class Urgent:
            def select(self, *, steps, completed_steps, next_allowed_at, now, rng):
                best = max(steps, key=lambda step: step.spec.strategy_kwargs.get("urgency", 0))
                assert best.spec.step_name == "second" and best.spec.weight == 1.0 and best.spec.requires == ()
                return StepSelection(steps=(best,), nearest_ready_at=None)

        class Chosen(VU):
            step_strategy = Urgent

            @step(name="first")
            async def first(self):
                await self.http.get("/health")

            @step(name="second", urgency=2)
            async def second(self):
                await self.http.get("/api/products/1")
        """,
        requests=3,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("second")["requests"] == 3 and "first" not in ended.names()


@pytest.mark.parametrize("http", ["Own()", "Own", "Factory()", "lambda base_url='': Own()"])
def test_custom_transport_is_recorded_as_metric(run, http):
    ended = run(
        f"""
        import asyncio
        from vikhry import VU, step

        class Reply:
            def __init__(self, status): self.status = status

        class Own:
            async def request(self, method, url, **options):
                await asyncio.sleep(0)
                return Reply(404 if "missing" in url else 200)

        class Factory:
            def create(self, *, base_url=""):
                return Own()

        class Strange(VU):
            http = {http}

            @step()
            async def look(self):
                assert (await self.http.get("/strange?x=1")).status == 200
                assert (await self.http.request("POST", "/missing")).status == 404
        """,
        requests=2,
    )
    assert ended.metric("look")["errors"] == 0, ended.messages()
    assert ended.metric("/strange")["requests"] == 2
    assert ended.metric("/missing")["errors"] == 2


def test_user_has_attributes_of_vikhry_user(run):
    ended = run(
        """
        from vikhry import VU, step

        class Base(VU):
            async def on_init(self, **params):
                await super().on_init(**params)
                self.http = self.ensure_http_client()

            async def on_start(self):
                await super().on_start()
                self.started = (await self.http.get("/health")).status

            async def on_stop(self):
                await super().on_stop()
                await self.http.close()

        class Whole(Base):
            def __init__(self, **given):
                super().__init__(**given)
                self.made = True

            @step()
            async def look(self):
                assert self.made and self.started == 200 and self.user_id == "1" and self.worker_id
                await self.http.get("/health")
        """,
        "--scenario",
        "Whole",
        requests=2,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("look")["requests"] == 2


def test_user_close_runs_after_on_stop(run):
    ended = run(
        """
        from vikhry import VU, step

        class Closing(VU):
            async def on_stop(self):
                self.stopped = True

            async def close(self):
                assert self.stopped
                await self.http.get("/bytes/1")
                await super().close()

        class Inherited(Closing):
            @step()
            async def look(self):
                await self.http.get("/health")
        """,
        requests=2,
    )
    assert ended.result["totals"]["errors"] == 0 and ended.metric("GET /bytes/1")["requests"] == 1, ended.messages()


def test_request_without_await_fails_step(run):
    ended = run(
        """
        from vikhry import VU, step

        class Shop(VU):
            @step()
            async def look(self):
                self.http.get("/api/products/1")
        """,
        requests=2,
    )
    assert "get` was not awaited (shop.py:8)" in ended.messages()


def test_client_created_in_a_probe_sends_requests_and_closes(run, target):
    ended = run(
        f"""
        from vikhry import ReqwestClient, VU, probe, step

        looked = []

        @probe(name="version", every_s=0.02)
        async def version():
            client = ReqwestClient(base_url={target.url!r})()
            answer = await client.get("/health")
            posted = await client.post("/auth/login", json={{"username": "u", "password": "p"}})
            await client.close()
            looked.append(answer.status)
            return f"v{{answer.status}}-{{posted.status}}"

        class Shop(VU):
            @step()
            async def look(self):
                from asyncio import sleep
                while len(looked) < 2:
                    await sleep(0.01)
                # Also in a step, without an attribute of the user.
                assert (await ReqwestClient(base_url={target.url!r})().get("/health")).status == 200
        """,
        requests=1,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("probe/version")["errors"] == 0, ended.messages()
    # Each distinct text that the probe returns is a metric of its own.
    texts = [metric["tags"]["text"] for metric in ended.result["metrics"] if metric["name"] == "version"]
    assert texts == ["v200-200"]


def test_client_outside_of_users_and_probes_sends_requests(target):
    import asyncio

    from squall.compat.vikhry import ReqwestClient

    async def use() -> tuple[int, str, int, int]:
        client = ReqwestClient(base_url=f"{target.url}/api/")()
        health = await client.get("/health", params={"a": 1})
        login = await client.post("/auth/login", json={"username": "u", "password": "p"})
        missing = await client.get("no-such-path")
        token = (await login.json())["access_token"]
        await client.close()
        return health.status, token, login.status, missing.status

    health, token, login, missing = asyncio.run(use())
    assert (health, login, missing) == (200, 200, 404)
    assert token
    with pytest.raises(ValueError, match="needs a base_url"):
        asyncio.run(ReqwestClient()().get("/health"))


def test_annotations_of_on_init_are_the_same_with_postponed_evaluation(tmp_path):
    from squall._offer import describe

    for head in ("", "from __future__ import annotations\n"):
        path = tmp_path / f"annotated_{len(head)}.py"
        path.write_text(head + "from vikhry import VU, step\n\nclass Shop(VU):\n    async def on_init(self, page: int, tags: list[str] = ()):\n        pass\n\n    @step()\n    async def look(self):\n        pass\n")
        assert [(name, annotation) for name, _, _, annotation, _ in describe(str(path)).params] == [("page", "int"), ("tags", "list[str]")]


def test_offer_lists_pools_and_probes_and_runs_factories_that_wait(tmp_path):
    from squall._offer import describe

    path = tmp_path / "offered.py"
    path.write_text(
        """
import asyncio
from vikhry import VU, probe, resource, step

@resource(name="users")
async def users(resource_id, ctx):
    await asyncio.sleep(0)
    return {"username": f"u{resource_id}"}

@probe(name="depth", every_s=1.0)
async def depth():
    return 1

class Shop(VU):
    @step()
    async def look(self):
        pass
"""
    )
    offer = describe(str(path))
    assert (offer.resources, offer.probes) == (["users"], ["depth"])
    assert json.loads(offer.make_resource("users", 7) or "") == {"username": "u7"}
    assert offer.make_resource("other", 1) is None


def test_one_of_several_classes_is_offered_with_its_parameters(tmp_path):
    from squall._errors import ScenarioError
    from squall._offer import describe

    path = tmp_path / "two.py"
    classes = (f"class {name}(VU):\n    async def on_init(self, {param}):\n        pass\n\n    @step()\n    async def look(self):\n        pass\n\n" for name, param in (("Light", "page"), ("Heavy", "size")))
    path.write_text("from vikhry import VU, step\n\n" + "".join(classes))
    assert [param[0] for param in describe(str(path), "Heavy").params] == ["size"]
    with pytest.raises(ScenarioError, match=r"--scenario two\.py:Light"):
        describe(str(path))

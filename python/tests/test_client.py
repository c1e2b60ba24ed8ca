"""The HTTP client: requests as the server receives them, and responses."""

from __future__ import annotations

import http.server
import json
import textwrap
import threading

import pytest


@pytest.fixture(params=["stepped", "asyncio", "plain"])
def asks(run, request):
    """Runs a task with the given body in every mode."""

    def go(body: str, *arguments: str, requests: int = 2, expect_errors: bool = False):
        head, mode = ("def", "stepped") if request.param == "plain" else ("async def", request.param)
        body = textwrap.dedent(body)
        if head == "def":
            body = body.replace("await ", "")
        code = f"class Shop(VUser):\n    @task\n    {head} go(self, client):\n" + textwrap.indent(body, " " * 8)
        ended = run(code, "--mode", mode, *arguments, requests=requests)
        if not expect_errors:
            assert ended.result["totals"]["errors"] == 0 and ended.metric("go")["errors"] == 0, ended.messages()
        return ended

    return go


def test_headers_params_and_json_reach_server(asks):
    asks(
        """
        echo = (await client.request("put", "/echo", params={"q": "a b", "n": [1, 2], "none": None}, json={"k": ["ü", 1, 2.5, None, True]},
                                     headers={"X-One": "1"})).json()
        assert echo["method"] == "PUT", echo
        assert echo["path"] == "/echo" and "q=a+b&n=1&n=2" in str(echo), echo
        assert "x-one" in str(echo).lower() and "application/json" in str(echo), echo
        assert "ü" in str(echo), echo
        """
    )


def test_forms_cookies_and_auth_reach_server(asks):
    asks(
        """
        echo = str((await client.post("/echo", data={"a": "1 2", "b": "ü"}, cookies={"c": "3"}, auth=("me", "pw"))).json())
        assert "a=1+2&b=%C3%BC" in echo and "x-www-form-urlencoded" in echo, echo
        assert "c=3" in echo and "Basic bWU6cHc=" in echo, echo
        echo = str((await client.post("/echo", data=b"raw", auth="token")).json())
        assert "raw" in echo and "Bearer token" in echo, echo
        """
    )


def test_files_are_sent_as_multipart(asks):
    asks(
        """
        echo = str((await client.post("/echo", files={"pic": ("a.txt", b"hello", "text/plain")}, data={"k": "v"})).json())
        assert "multipart/form-data" in echo and "a.txt" in echo and "hello" in echo, echo
        """
    )


def test_multipart_fields_follow_form_rules(asks):
    asks(
        """
        boundary = "squall-3f9d1c6a7b2e48d0"
        files = {"f": ('a "b".txt', f"has {boundary} in it"), "g": open("/dev/null", "rb")}
        echo = (await client.post("/echo", files=files, data={"l": ["1", "2"], "no": None, "yes": True})).json()
        text = str(echo)
        assert text.count('name="l"') == 2 and 'name="no"' not in text, text
        assert "true" in text and "a %22b%22.txt" in text and 'filename="null"' in text, text
        assert text.count(f"--{boundary}x") == 6, text
        """
    )


def test_invalid_request_arguments_are_rejected(asks):
    asks(
        """
        for bad in (lambda: client.batch("abc"), lambda: client.get("ftp://x/")):
            try:
                await bad()
            except (TypeError, ValueError):
                pass
            else:
                raise AssertionError("it was sent")
        assert "x-none" not in (await client.get("/echo", headers={"X-None": None})).text.lower()
        """
    )


def test_empty_name_is_ignored(asks):
    ended = asks('await client.get("/health", name="")')
    assert ended.metric("GET /health")["requests"] == 2 and "" not in ended.names()


def test_response_has_status_headers_body_and_time(asks):
    asks(
        """
        answer = await client.get("/health")
        assert answer.status_code == 200 and answer.ok
        assert answer.json() == {"status": "ok"} and answer.json() is answer.json()
        assert answer.text == answer.content.decode()
        assert answer.headers["Content-Type"] == answer.headers.get("content-type")
        assert "content-length" in answer.headers and answer.headers.get("none", "x") == "x"
        assert dict(answer.headers.items())
        assert answer.elapsed_ms > 0 and "200" in repr(answer)
        assert answer.raise_for_status() is answer
        """
    )


def test_error_status_is_counted_without_exception(asks):
    ended = asks(
        """
        answer = await client.get("/nothing")
        assert not answer.ok
        try:
            answer.raise_for_status()
        except StatusError as error:
            assert error.response is answer
        else:
            raise AssertionError("it did not raise")
        """,
        expect_errors=True,
    )
    assert ended.metric("GET /nothing")["errors"] == 2
    assert ended.metric("go")["errors"] == 0


def test_refused_connection_raises_and_is_recorded_once(asks):
    ended = asks(
        """
        try:
            await client.get("http://127.0.0.1:1/nobody")
        except RequestError as error:
            assert error.code == "CONNECT_REFUSED", error.code
        else:
            raise AssertionError("it did not raise")
        """,
        expect_errors=True,
    )
    assert ended.metric("GET /nobody")["errors"] == 2
    assert ended.metric("go")["errors"] == 0


def test_request_timeout_ends_request(asks):
    ended = asks(
        """
        try:
            await client.get("/delay/20000", timeout=0.05)
        except RequestTimeout:
            pass
        """,
        expect_errors=True,
    )
    assert ended.metric("GET /delay/20000")["errors"] == 2


def test_requests_with_name_share_one_series(asks):
    ended = asks(
        """
        for number in range(1, 6):
            await client.get(f"/api/products/{number}", name="GET /api/products/{id}")
        answer = await client.get("/api/products/3", name="GET /api/products/{id}")
        assert answer.json()["id"] == 3, answer.json()
        await client.get("/api/products", params={"page": 2})
        """,
        requests=3,
    )
    assert ended.metric("GET /api/products/{id}")["requests"] == 18
    assert ended.metric("GET /api/products")["requests"] == 3


def test_redirects_are_followed_and_counted(asks):
    ended = asks(
        """
        answer = await client.get("/redirect/2")
        assert answer.json() == {"status": "ok"}, answer
        """
    )
    assert ended.metric("GET /redirect/2")["requests"] == 2
    assert ended.metric("GET /redirect/2 (redirect)")["requests"] == 4


def test_header_with_line_break_is_rejected(asks):
    asks(
        r"""
        for headers in ({"X": "a\r\nY: b"}, {"X Y": "1"}):
            try:
                client.get("/health", headers=headers)
            except ValueError:
                continue
            raise AssertionError("it was accepted")
        await client.get("/health")
        """
    )


def test_unknown_option_is_rejected(asks):
    asks(
        """
        try:
            client.get("/health", heders={})
        except TypeError as error:
            assert "heders" in str(error)
        else:
            raise AssertionError("it was accepted")
        await client.get("/health")
        """
    )


def test_header_flag_adds_header_to_every_request(asks):
    asks(
        """
        assert "from-flag" in str((await client.get("/echo")).json()).lower()
        """,
        "-H",
        "X-Flag: from-flag",
    )


def test_response_json_equals_python_json(asks):
    asks(
        r"""
        import json
        for text in ('[1, -2, 3.5, 1e3, true, false, null, "\\u00fc\\ud83d\\ude00"]', '{"a": {"b": []}, "a": 2}', "12345678901234567890123", '""'):
            answer = await client.post("/echo", data=text)
            assert json.loads(json.dumps(answer.json())) == json.loads(answer.content), text
        answer = await client.get("/bytes/5")
        try:
            answer.json()
        except ValueError as error:
            assert "not JSON" in str(error)
        else:
            raise AssertionError("it was accepted")
        """
    )


@pytest.mark.parametrize("how", ["one after the other", "at once"])
def test_each_user_has_its_own_cookies(run, cookie_server, how):
    both = {
        "one after the other": "[await client.get(BASE + '/show'), await client.get(BASE + '/show')]",
        "at once": "await client.batch([BASE + '/show', BASE + '/show'])",
    }[how]
    for mode in ("stepped", "asyncio", "plain"):
        code = f"""
BASE = "{cookie_server}"
class Shop(VUser):
    async def on_start(self, client):
        await client.get(BASE + "/set?id=" + str(self.id), name="set")

    @task
    async def go(self, client):
        for answer in {both}:
            assert answer.text == "id=" + str(self.id), answer.text
        second = str(self.random.random())
        await client.batch([BASE + "/set?id=" + str(self.id), BASE + "/set?other=" + second])
        assert (await client.get(BASE + "/show")).text.split("; ") == ["id=" + str(self.id), "other=" + second]
        await client.get(BASE + "/forget")
"""
        if mode == "plain":
            code = code.replace("await ", "").replace("async def", "def")
        ended = run(code, "--mode", "asyncio" if mode == "asyncio" else "stepped", users=3, requests=9)
        assert ended.metric("go")["errors"] == 0, (mode, ended.messages())


@pytest.mark.parametrize("mode", ["auto", "stepped", "asyncio"])
def test_call_options_do_not_affect_later_calls_of_same_url(run, mode):
    ended = run(
        """
        def bare(answer):
            text = str(answer.json()).lower()
            assert "page=2" not in text and "x-only" not in text and "bearer" not in text and "once=1" not in text, text
            return text

        class Shop(VUser):
            @task
            async def go(self, client):
                first = await client.post("/echo", params={"page": 2}, headers={"X-Only": "1"}, auth="t", cookies={"once": "1"}, json={"page": "page=2"})
                assert "page=2" in str(first.json()) and "Bearer t" in str(first.json()), first.text
                bare(await client.post("/echo"))
                bare(await client.post("/echo", params={}))
                assert "'a': 'b'" in bare(await client.post("/echo", headers={"A": "b"}))
                bare(await client.post("/echo", timeout=5))
                assert "page=3" in str((await client.post("/echo", params={"page": 3})).json())
                bare((await client.batch([("POST", "/echo")]))[0])
                bare(await client.get("/echo"))
        """,
        "--mode",
        mode,
        requests=3,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_constant_calls_of_one_url_keep_separate_params(run, target):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def search(self, client):
                await client.get("/fail", params={"rate": 0})
            @task
            async def listing(self, client):
                await client.get("/fail")
        """,
        "--mode",
        "static",
        requests=10,
    )
    assert ended.metric("GET /fail")["errors"] == 5


@pytest.mark.parametrize("mode", ["static", "stepped", "asyncio"])
def test_endless_redirects_are_errors(run, mode):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/redirect/30")
        """,
        "--mode",
        mode,
        requests=2,
    )
    assert ended.outcomes("GET /redirect/30 (redirect)")["TOO_MANY_REDIRECTS"] == 2
    assert ended.metric("go")["errors"] == ended.result["totals"]["errors"] == 2, ended.messages()


def test_header_of_none_removes_default_header(asks):
    asks(
        """
        heads = (await client.get("/echo", headers={"User-Agent": None, "X-Gone": None, b"X-Raw": b"raw"})).json()["headers"]
        lower = {name.lower(): value for name, value in heads.items()}
        assert "user-agent" not in lower and "x-gone" not in lower and lower["x-raw"] == "raw", heads
        assert "user-agent" in str((await client.get("/echo")).json()["headers"]).lower()
        """
    )


def test_bodies_files_and_auth_accept_all_types(asks):
    asks(
        """
        import io
        for body in (b"abc", "abc", bytearray(b"abc"), memoryview(b"abc"), io.BytesIO(b"abc"), io.StringIO("abc")):
            echo = (await client.post("/echo", data=body)).json()
            assert echo["body"] == "abc" and "content-type" not in str(echo).lower(), echo
        echo = str((await client.post("/echo", files=[("a", b"one"), ("a", ("two.txt", io.BytesIO(b"two")))], data=[("k", "v")])).json())
        assert "one" in echo and "two.txt" in echo and echo.count("name=") >= 4, echo
        assert "Basic bWU6cHc=" in str((await client.get("/echo", auth=["me", "pw"])).json())
        assert (await client.options("/echo")).json()["method"] == "OPTIONS"
        """
    )


def test_response_json_accepts_same_input_as_python_json(asks, live):
    asks(
        r"""
        import base64, json
        for text in (b"-0", b"-0.0", b"[1e400, -1e400]", b"1" * 400, b"[NaN, Infinity]", b'"\\ud800"', b"[" * 300 + b"]" * 300, b"\xef\xbb\xbf[1]",
                     '{"k": "\u00e9"}'.encode("utf-16"), b"", b"nul", b'{"a":}', b"[1,]", b"01", b"\xe9", b"[1] x"):
            answer = await client.get("http://LIVE/raw/" + base64.urlsafe_b64encode(text).decode(), name="raw")
            assert answer.content == text
            seen = []
            for read in (answer.json, lambda: json.loads(text)):
                try:
                    seen.append(repr(read()))
                except UnicodeDecodeError:
                    seen.append("JSONDecodeError")
                except ValueError as error:
                    seen.append(type(error).__name__)
            assert seen[0] == seen[1], (text, seen)
        """.replace("LIVE", live)
    )


class Own(http.server.BaseHTTPRequestHandler):
    """Returns the requested path; ``/large`` is a large document."""

    def do_GET(self):
        large = [{"n": n, "text": "ü" * 3, "list": [n, None, True, -1.5, -n]} for n in range(60_000)]
        body = json.dumps(large if self.path == "/large" else {"path": self.path}, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def own():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_url_with_path_params_is_one_series(asks, own):
    ended = asks(
        f"""
        for number in (3, 4):
            answer = await client.get("/bytes/{{size}}", path_params={{"size": number}})
            assert len(answer.content) == number, answer
        answer = await client.get("{own}/at/{{what}}?a=1", path_params={{"what": "a/b ü"}}, params={{"b": 2}})
        assert answer.json() == {{"path": "/at/a%2Fb%20%C3%BC?a=1&b=2"}}, answer.text
        await client.get("/bytes/{{size}}", path_params={{"size": 5}}, name="five")
        for wrong in ({{"siez": 3}}, {{"size": 3, "more": 4}}, 3):
            try:
                client.get("/bytes/{{size}}", path_params=wrong)
            except (ValueError, TypeError) as error:
                assert "path_params" in str(error), error
            else:
                raise AssertionError(wrong)
        """
    )
    assert {"GET /bytes/{size}", "GET /at/{what}", "five"} <= ended.names(), ended.names()
    assert ended.metric("GET /bytes/{size}")["requests"] == 4


def test_parsing_large_json_lets_other_threads_run(asks, own):
    asks(
        f"""
        import sys, threading
        sys.setswitchinterval(1e-5)
        turns, over = [0], threading.Event()

        def others():
            while not over.is_set():
                turns[0] += 1

        answer = await client.get("{own}/large")
        thread = threading.Thread(target=others)
        thread.start()
        try:
            while turns[0] == 0:
                pass
            before = turns[0]
            found = answer.json()
            after = turns[0]
        finally:
            over.set()
            thread.join()
        assert found == [{{"n": n, "text": "ü" * 3, "list": [n, None, True, -1.5, -n]}} for n in range(60_000)]
        assert list(found[0]) == ["n", "text", "list"], found[0]
        assert after > before, "no other thread ran"
        """,
        requests=1,
    )


def test_follow_redirects_contrary_to_flag_is_error(asks):
    ended = asks(
        """
        await client.get("/health", follow_redirects=True)
        await client.get("/health", follow_redirects=False)
        """,
        requests=1,
        expect_errors=True,
    )
    assert ended.metric("GET /health")["requests"] == 1 and "--max-redirects 0" in ended.messages(), ended.messages()


def test_too_many_series_are_reported(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                for n in range(1500):
                    await client.get(f"/bytes/1?n={n}", name=f"id {self.id}.{n}")
        """,
        "--mode",
        "stepped",
        requests=1,
    )
    assert ended.metric("(other)")["requests"] > 0
    assert ended.result["totals"]["requests"] == 1500
    assert "more names than are kept apart" in ended.stdout

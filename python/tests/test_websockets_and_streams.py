"""WebSockets, streamed bodies and server-sent events in every mode, against the protocol server."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest
from protocol_server import PACKED


@pytest.fixture(params=["stepped", "asyncio", "plain"])
def asks(run, request):
    def go(body: str, requests: int = 3, users: int = 1, more: Sequence[str] = ()):
        plain = request.param == "plain"
        body = textwrap.dedent(body)
        if plain:
            body = body.replace("async with", "with").replace("async for", "for").replace("await ", "").replace("events(", "events_blocking(")
        head, mode = ("def", "stepped") if plain else ("async def", request.param)
        code = f"class Shop(VUser):\n    @task\n    {head} go(self, client):\n" + textwrap.indent(body, " " * 8)
        return run(code, "--mode", mode, *more, requests=requests, users=users)

    return go


def test_websocket_sends_and_receives_messages(asks, live):
    ended = asks(
        f"""
        async with client.websocket("ws://{live}/echo", headers={{"X-One": "1"}}) as feed:
            assert await feed.receive() == "hello 1"
            await feed.send("ü")
            assert await feed.receive() == "ü"
            await feed.send(b"raw")
            assert await feed.receive() == b"raw"
            await feed.send("bye")
            async for message in feed:
                raise AssertionError(message)
            assert await feed.receive() is None
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("WS /echo")["requests"] == 3 and ended.metric("WS /echo")["errors"] == 0
    assert ended.metric("WS /echo receive")["requests"] == 3 * 5


def test_rejected_websocket_handshake_is_error(asks, live):
    ended = asks(
        f"""
        try:
            async with client.websocket("http://{live}/none", name="WS none"):
                pass
        except RequestError as error:
            assert "403" in str(error)
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("WS none")["errors"] == 3


def test_streamed_body_arrives_in_chunks(asks, live):
    ended = asks(
        f"""
        got = b""
        async with client.stream("GET", "http://{live}/pieces") as answer:
            assert answer.status_code == 200 and answer.headers["content-type"] == "text/plain"
            async for piece in answer:
                got += piece
        assert got == b"onetwo", got
        assert answer.first_chunk_ms > 0
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    for name in ("GET /pieces", "GET /pieces first chunk", "GET /pieces whole"):
        assert ended.metric(name)["requests"] == 3 and ended.metric(name)["errors"] == 0


def test_chunk_returns_none_after_last_chunk(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/pieces") as answer:
            got = b""
            while (piece := await answer.chunk()) is not None:
                got += piece
            assert got == b"onetwo", got
            assert await answer.chunk() is None
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_server_sent_events_are_parsed(asks, live):
    ended = asks(
        f"""
        seen = []
        async with client.stream("GET", "http://{live}/events") as answer:
            async for event in events(answer):
                seen.append((event.event, event.data, event.id))
        assert seen == [("price", "1", "a"), ("message", "2\\n3", None)], seen
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_truncated_stream_is_error(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/cut") as answer:
            async for piece in answer:
                pass
        """
    )
    assert ended.metric("go")["errors"] == 3
    assert ended.metric("GET /cut whole")["errors"] == 3


def test_partly_read_stream_is_closed(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/events") as answer:
            pass
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_streams_and_websockets_use_cookies_of_user(asks, live):
    ended = asks(
        f"""
        base, me = "http://{live}", str(self.id)
        await client.get(base + "/set?plain=" + me)
        async with client.stream("GET", base + "/pieces?stream=" + me) as answer:
            assert "plain=" + me in answer.headers["x-cookies"].split("; "), answer.headers
        async with client.websocket("ws://{live}/echo?socket=" + me, cookies={{"own": "1"}}) as feed:
            received = set((await feed.receive()).split("; "))
            assert received >= {{"own=1", "plain=" + me, "stream=" + me}}, received
        received = sorted((await client.get(base + "/set")).text.split("; "))
        assert received == ["plain=" + me, "socket=" + me, "stream=" + me], received
        """,
        requests=8,
        users=4,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


@pytest.mark.parametrize("coding", PACKED)
def test_streamed_responses_are_decompressed(asks, live, coding):
    ended = asks(
        f"""
        url = "http://{live}/packed/{coding}"
        assert (await client.get(url)).text == "data: packed\\n\\n"
        async with client.stream("GET", url) as answer:
            async for piece in answer:
                assert piece == b"data: packed\\n\\n", piece
        async with client.stream("GET", url) as answer:
            async for event in events(answer):
                assert event.data == "packed"
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric(f"GET /packed/{coding} whole")["requests"] == 6


def test_header_flag_applies_to_websockets(run, live):
    code = f"""
    class Shop(VUser):
        @task
        async def go(self, client):
            async with client.websocket("ws://{live}/echo") as feed:
                assert await feed.receive() == "hello all"
    """
    ended = run(code, "--header", "X-One: all", requests=2)
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_websocket_with_wrong_accept_key_is_rejected(asks, live):
    ended = asks(
        f"""
        try:
            async with client.websocket("ws://{live}/liar"):
                pass
        except RequestError as error:
            assert error.code == "WEBSOCKET_FAILED", error.code
        else:
            raise AssertionError("it was accepted")
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("WS /liar")["errors"] == 3


def test_call_headers_replace_default_headers(asks, live):
    ended = asks(
        f"""
        given = {{"Accept": "text/html", "user-agent": "me", "Accept-Encoding": "identity", "Host": "other", "authorization": "no", "X-Run": "mine"}}
        received = (await client.get("http://{live}/head", headers=given, auth="token")).text.splitlines()
        wanted = {{"accept: text/html", "user-agent: me", "accept-encoding: identity", "host: other", "authorization: bearer token", "x-run: mine"}}
        assert set(received) == wanted and len(received) == len(wanted), received
        received = (await client.get("http://{live}/head")).text.splitlines()
        assert "accept: */*" in received and "x-run: all" in received, received
        """,
        more=["--header", "X-Run: all"],
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_call_cookies_replace_stored_cookies(asks, live):
    ended = asks(
        f"""
        await client.get("http://{live}/set?a=1")
        await client.get("http://{live}/set?b=2")
        received = (await client.get("http://{live}/set", cookies={{"a": "mine"}})).text
        assert sorted(received.split("; ")) == ["a=mine", "b=2"], received
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_websocket_receive_times_out(asks, live):
    ended = asks(
        f"""
        async with client.websocket("ws://{live}/echo", headers={{"X-One": "1"}}) as feed:
            assert await feed.receive(timeout=60) == "hello 1"
            try:
                await feed.receive(timeout=0.01)
            except RequestTimeout:
                pass
            else:
                raise AssertionError("something came")
            await feed.send("still open")
            assert await feed.receive(60) == "still open"
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("WS /echo receive")["errors"] == 3


def test_chunk_returns_whole_body_in_order(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/pieces") as answer:
            got = b""
            while (piece := await answer.chunk()) is not None:
                got += piece
        assert got == b"onetwo", got
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_bytes_of_streams_and_websockets_are_counted(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/pieces") as answer:
            async for piece in answer:
                pass
        async with client.websocket("ws://{live}/echo", name="quiet", headers={{"X-One": "1"}}) as feed:
            assert await feed.receive() == "hello 1"
        async with client.websocket("ws://{live}/echo", name="talks", headers={{"X-One": "1"}}) as feed:
            assert await feed.receive() == "hello 1"
            await feed.send("12345")
            assert await feed.receive() == "12345"
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Cookies: \r\nTransfer-Encoding: chunked\r\n\r\n"
    assert ended.metric("GET /pieces")["bytes_in"] == 3 * len(head + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    quiet, talks = ended.metric("quiet"), ended.metric("talks")
    # A frame has two bytes more than its text, and four more for the mask if the client sends it.
    # The server sends a ping before each message, and the client sends a pong.
    assert talks["bytes_in"] - quiet["bytes_in"] == 3 * (7 + 2)
    assert talks["bytes_out"] - quiet["bytes_out"] == 3 * (11 + 6)
    totals = ended.result["totals"]
    assert totals["bytes_in"] == sum(metric["bytes_in"] for metric in ended.result["metrics"])
    assert totals["bytes_in"] == sum(second["bytes_in"] for second in ended.result["timeline"])


def test_streams_follow_redirects(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/moved/moved/pieces") as answer:
            assert answer.status_code == 200
            got = b""
            async for piece in answer:
                got += piece
        assert got == b"onetwo", got
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("GET /moved/moved/pieces")["requests"] == ended.metric("GET /moved/moved/pieces whole")["requests"] == 3
    assert ended.metric("GET /moved/moved/pieces (redirect)")["requests"] == 6


def test_redirected_websocket_error_names_location(asks, live):
    ended = asks(
        f"""
        try:
            async with client.websocket("ws://{live}/moved/echo"):
                pass
        except RequestError as error:
            assert "302" in str(error) and "it redirects to /echo" in str(error), error
        else:
            raise AssertionError("it was followed")
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("WS /moved/echo")["errors"] == 3 and "does not follow redirects of WebSockets" in ended.messages()


def test_json_with_byte_order_mark_is_parsed(run, live):
    code = f"""
    class Shop(VUser):
        @task
        async def go(self, client):
            assert (await client.get("http://{live}/marked")).json() == {{"marked": True}}

        def check_go(self, status_code, body):
            assert body == {{"marked": True}}, body
    """
    ended = run(code)
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_uncaught_error_of_open_stream_is_run_error(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/cut") as answer:
            async for piece in answer:
                pass
        """,
        more=["-t", "error_rate<1%"],
    )
    assert ended.metric("go (failed)")["errors"] == ended.metric("go")["errors"] == ended.result["totals"]["errors"] == 3
    assert "go (failed)" in ended.names() and ended.code == 1, ended.stdout


def test_uncaught_websocket_timeout_is_run_error(asks, live):
    body = f"""
        async with client.websocket("ws://{live}/echo") as feed:
            await feed.receive()
            {{}}
    """
    ended = asks(body.format("await feed.receive(timeout=0.01)"))
    assert ended.metric("go (failed)")["errors"] == ended.result["totals"]["errors"] == 3, ended.messages()
    caught = "try:\n                await feed.receive(timeout=0.01)\n            except RequestTimeout:\n                pass"
    ended = asks(body.format(caught))
    assert ended.result["totals"]["errors"] == 0, ended.messages()


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_streams_and_websockets_of_late_iterations_count_the_wait(run, live, mode):
    # One user makes ten iterations that are due within 10 ms, and each takes 20 ms or more, so the
    # last one begins at least 170 ms late. Only the first request of an iteration was due then.
    code = """
    class Shop(VUser):
        @task
        async def go(self, client):
            async with client.{} as opened:
                await sleep(0.02)
            await client.get("/health", name="second")
    """
    for opening in [f'stream("GET", "http://{live}/pieces", name="first")', f'websocket("ws://{live}/echo", name="first")']:
        ended = run(code.format(opening), "--mode", mode, "--rate", "1000", "--max-users", "1", users=None, requests=10)
        assert ended.metric("go")["errors"] == 0, ended.messages()
        assert ended.metric("first")["wait_ms"]["max"] >= 160
        assert ended.metric("second")["wait_ms"]["max"] == 0

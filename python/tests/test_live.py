"""WebSockets, streamed bodies and server-sent events, in every mode, against small servers that speak the protocols byte by byte."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socketserver
import textwrap
import threading
import zlib
from collections.abc import Iterator, Sequence

import pytest


def _frame(opcode: int, payload: bytes) -> bytes:
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + payload


def _brotli(text: bytes) -> bytes:
    """Brotli's stored form: a window of 16 bits, one block as it is, an empty last one."""
    return ((len(text) - 1) << 4 | 1 << 20).to_bytes(3, "little") + text + b"\x03"


def _zstd(text: bytes) -> bytes:
    """A frame of one block as it is."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)]) + (len(text) << 3 | 1).to_bytes(3, "little") + text


PACKED = {
    "gzip": gzip.compress(b"data: packed\n\n"),
    "deflate": zlib.compress(b"data: packed\n\n"),
    "br": _brotli(b"data: packed\n\n"),
    "zstd": _zstd(b"data: packed\n\n"),
}


class _Live(socketserver.StreamRequestHandler):
    """/echo speaks WebSocket and repeats what it is told; /pieces sends a body in pieces; /events sends events; /cut breaks off; /packed/gzip
    compresses; /set?a=1 sets a cookie and says which came, and so do /pieces?a=1 and /echo?a=1."""

    def handle(self) -> None:
        first = self.rfile.readline().decode()
        path, _, query = (first.split(" ")[1] if " " in first else "").partition("?")
        self.cookie = f"Set-Cookie: {query}; Path=/\r\n" if query else ""
        headers: dict[str, str] = {}
        self.lines: list[str] = []
        while line := self.rfile.readline().strip():
            self.lines.append(line.decode().lower())
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if path in ("/echo", "/liar"):
            if path == "/liar":
                headers["sec-websocket-key"] = "another"
            self._echo(headers)
        elif path in ("/pieces", "/events", "/cut"):
            self._pieces(path, headers.get("cookie", ""))
        elif path == "/head":
            body = "\n".join(self.lines)
            self.wfile.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        elif path == "/set":
            body = headers.get("cookie", "")
            self.wfile.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{self.cookie}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        elif path.startswith("/packed/"):
            coding = path.removeprefix("/packed/")
            assert coding in headers["accept-encoding"]
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode() + PACKED[coding])
        else:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    def _pieces(self, path: str, cookies: str) -> None:
        kind = "text/event-stream" if path == "/events" else "text/plain"
        more = f"{self.cookie}X-Cookies: {cookies}\r\n"
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Transfer-Encoding: chunked\r\n\r\n".encode())
        bodies = [b"event: price\ndata: 1\nid: a\n\n: a comment\nda", b"ta: 2\r\ndata: 3\r\n\r\n"] if path == "/events" else [b"one", b"two"]
        for body in bodies:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.flush()
        if path != "/cut":
            self.wfile.write(b"0\r\n\r\n")

    def _echo(self, headers: dict[str, str]) -> None:
        key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{self.cookie}\r\n"
        hello = f"hello {headers.get('x-one')}" if "x-one" in headers else headers.get("cookie", "")
        # In one piece: what comes right after the head must not be lost.
        self.wfile.write(head.encode() + _frame(1, hello.encode()))
        closing = False
        while True:
            start = self.rfile.read(2)
            if len(start) < 2:
                return
            size = start[1] & 0x7F
            mask = self.rfile.read(4)
            payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(size)))
            opcode = start[0] & 0x0F
            if opcode == 8:
                if not closing:
                    self.wfile.write(_frame(8, payload))
                return
            if payload == b"bye":
                # Who closes before the goodbye is answered may cut off what it has just said.
                closing = True
                self.wfile.write(_frame(8, b"\x03\xe8"))
            elif opcode in (1, 2):
                self.wfile.write(_frame(9, b"") + _frame(opcode, payload))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    with _Server(("127.0.0.1", 0), _Live) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


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


def test_a_websocket_says_and_hears(asks, live):
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


def test_a_server_without_websockets_is_an_error(asks, live):
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


def test_bodies_come_piece_by_piece(asks, live):
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


def test_pieces_are_asked_for_one_by_one(asks, live):
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


def test_events_are_read(asks, live):
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


def test_a_body_that_breaks_off_is_an_error(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/cut") as answer:
            async for piece in answer:
                pass
        """
    )
    assert ended.metric("go")["errors"] == 3
    assert ended.metric("GET /cut whole")["errors"] == 3


def test_a_stream_nobody_reads_to_its_end_is_left(asks, live):
    ended = asks(
        f"""
        async with client.stream("GET", "http://{live}/events") as answer:
            pass
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_cookies_are_those_of_the_user(asks, live):
    ended = asks(
        f"""
        base, me = "http://{live}", str(self.id)
        await client.get(base + "/set?plain=" + me)
        async with client.stream("GET", base + "/pieces?stream=" + me) as answer:
            assert "plain=" + me in answer.headers["x-cookies"].split("; "), answer.headers
        async with client.websocket("ws://{live}/echo?socket=" + me, cookies={{"own": "1"}}) as feed:
            told = set((await feed.receive()).split("; "))
            assert told >= {{"own=1", "plain=" + me, "stream=" + me}}, told
        told = sorted((await client.get(base + "/set")).text.split("; "))
        assert told == ["plain=" + me, "socket=" + me, "stream=" + me], told
        """,
        requests=8,
        users=4,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


@pytest.mark.parametrize("coding", PACKED)
def test_streams_are_decompressed_like_other_answers(asks, live, coding):
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


def test_headers_of_the_run_reach_websockets_too(run, live):
    code = f"""
    class Shop(VUser):
        @task
        async def go(self, client):
            async with client.websocket("ws://{live}/echo") as feed:
                assert await feed.receive() == "hello all"
    """
    ended = run(code, "--header", "X-One: all", requests=2)
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_an_answer_to_another_handshake_is_refused(asks, live):
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


def test_headers_stand_in_for_the_clients_own(asks, live):
    ended = asks(
        f"""
        given = {{"Accept": "text/html", "user-agent": "me", "Accept-Encoding": "identity", "Host": "other", "authorization": "no", "X-Run": "mine"}}
        told = (await client.get("http://{live}/head", headers=given, auth="token")).text.splitlines()
        wanted = {{"accept: text/html", "user-agent: me", "accept-encoding: identity", "host: other", "authorization: bearer token", "x-run: mine"}}
        assert set(told) == wanted and len(told) == len(wanted), told
        told = (await client.get("http://{live}/head")).text.splitlines()
        assert "accept: */*" in told and "x-run: all" in told, told
        """,
        more=["--header", "X-Run: all"],
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_given_cookies_stand_in_for_kept_ones(asks, live):
    ended = asks(
        f"""
        await client.get("http://{live}/set?a=1")
        await client.get("http://{live}/set?b=2")
        told = (await client.get("http://{live}/set", cookies={{"a": "mine"}})).text
        assert sorted(told.split("; ")) == ["a=mine", "b=2"], told
        """
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_waiting_for_a_message_may_have_an_end(asks, live):
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


def test_pieces_may_be_asked_for_one_by_one(asks, live):
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

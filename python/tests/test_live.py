"""WebSockets, streamed bodies and server-sent events, in every mode, against small servers that speak the protocols byte by byte."""

from __future__ import annotations

import base64
import hashlib
import socketserver
import textwrap
import threading
from collections.abc import Iterator

import pytest


def _frame(opcode: int, payload: bytes) -> bytes:
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + payload


class _Live(socketserver.StreamRequestHandler):
    """/echo speaks WebSocket and repeats what it is told; /pieces sends a body in pieces; /events sends events; /cut breaks off."""

    def handle(self) -> None:
        first = self.rfile.readline().decode()
        path = first.split(" ")[1] if " " in first else ""
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if path == "/echo":
            self._echo(headers)
        elif path in ("/pieces", "/events", "/cut"):
            self._pieces(path)
        else:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    def _pieces(self, path: str) -> None:
        kind = "text/event-stream" if path == "/events" else "text/plain"
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        bodies = [b"event: price\ndata: 1\nid: a\n\n: a comment\nda", b"ta: 2\r\ndata: 3\r\n\r\n"] if path == "/events" else [b"one", b"two"]
        for body in bodies:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.flush()
        if path != "/cut":
            self.wfile.write(b"0\r\n\r\n")

    def _echo(self, headers: dict[str, str]) -> None:
        key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        self.wfile.write(head.encode())
        self.wfile.write(_frame(1, f"hello {headers.get('x-one')}".encode()))
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
    def go(body: str, requests: int = 3):
        plain = request.param == "plain"
        body = textwrap.dedent(body)
        if plain:
            body = body.replace("async with", "with").replace("async for", "for").replace("await ", "").replace("events(", "events_blocking(")
        head, mode = ("def", "stepped") if plain else ("async def", request.param)
        code = f"class Shop(VUser):\n    @task\n    {head} go(self, client):\n" + textwrap.indent(body, " " * 8)
        return run(code, "--mode", mode, requests=requests)

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

"""A server for protocols that `squall target` does not have: WebSockets, streamed bodies,
server-sent events, JSON-RPC. It writes them byte by byte."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import socketserver
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager


def _frame(opcode: int, payload: bytes) -> bytes:
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + payload


def _brotli(text: bytes) -> bytes:
    """Returns uncompressed Brotli: a window of 16 bits, one stored block, an empty last block."""
    return ((len(text) - 1) << 4 | 1 << 20).to_bytes(3, "little") + text + b"\x03"


def _zstd(text: bytes) -> bytes:
    """Returns a zstd frame of one uncompressed block."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)]) + (len(text) << 3 | 1).to_bytes(3, "little") + text


#: One event in every content coding that clients accept; the last is encoded twice.
PACKED = {
    "gzip": gzip.compress(b"data: packed\n\n"),
    "deflate": zlib.compress(b"data: packed\n\n"),
    "br": _brotli(b"data: packed\n\n"),
    "zstd": _zstd(b"data: packed\n\n"),
    "deflate,gzip": gzip.compress(zlib.compress(b"data: packed\n\n")),
}


class Live(socketserver.StreamRequestHandler):
    """The paths:

    - /echo is a WebSocket that repeats messages; /liar one with a wrong accept key
    - /pieces sends a body in chunks, /events server-sent events, /cut a truncated body
    - /packed/gzip compresses
    - /set?a=1 sets a cookie and returns those of the request; /pieces?a=1 and /echo?a=1 do so too
    - /moved/x redirects to /x
    - /marked is JSON with a byte order mark, /raw/x the decoded base64 text x
    - /head returns the headers of the request
    - /rpc adds numbers by JSON-RPC
    """

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
        elif path.startswith("/moved/"):
            self.wfile.write(f"HTTP/1.1 302 Found\r\nLocation: {path.removeprefix('/moved')}\r\nContent-Length: 0\r\n\r\n".encode())
        elif path in ("/marked", "/rpc"):
            self._document(b'\xef\xbb\xbf{"marked": true}' if path == "/marked" else self._sum(int(headers["content-length"])))
        elif path.startswith("/raw/"):
            self._document(base64.urlsafe_b64decode(path.removeprefix("/raw/")))
        elif path.startswith("/packed/"):
            coding = path.removeprefix("/packed/")
            assert all(one in headers["accept-encoding"] for one in coding.split(","))
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode() + PACKED[coding])
        else:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    def _document(self, body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def _sum(self, size: int) -> bytes:
        question = json.loads(self.rfile.read(size))
        return json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": sum(question["params"])}).encode()

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
        # One write for head and frame: the client must not lose a frame that follows the head at
        # once.
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
                # Closing the socket before the client's close frame arrives could cut off the last
                # message.
                closing = True
                self.wfile.write(_frame(8, b"\x03\xe8"))
            elif opcode in (1, 2):
                self.wfile.write(_frame(9, b"") + _frame(opcode, payload))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def live_server() -> Iterator[str]:
    """Runs the server inside the `with` block; yields host and port."""
    with _Server(("127.0.0.1", 0), Live) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()

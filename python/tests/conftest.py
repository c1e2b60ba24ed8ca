"""Fixtures of all tests: a real target and a real `squall` process. Nothing is mocked."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import textwrap
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from protocol_server import live_server
from squall_command import SQUALL


@dataclass
class Target:
    url: str

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(self.url + "/stats") as answer:
            counts: dict[str, int] = json.load(answer)["requests"]
        return counts


@dataclass
class Ended:
    """The exit code, output and result file of one `squall` command."""

    code: int
    stdout: str
    stderr: str
    result: dict[str, Any] = field(default_factory=dict)

    def metric(self, name: str) -> dict[str, Any]:
        found = [metric for metric in self.result["metrics"] if metric["name"] == name]
        assert found, f"no metric {name!r} in {[metric['name'] for metric in self.result['metrics']]}"
        return found[0]

    def outcomes(self, name: str) -> dict[str, int]:
        """Returns the count of each outcome of a metric."""
        return {outcome["code"]: outcome["count"] for outcome in self.metric(name)["outcomes"]}

    def names(self) -> set[str]:
        return {metric["name"] for metric in self.result["metrics"]}

    def messages(self) -> str:
        return "\n".join(error["message"] for error in self.result["errors"])


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    server = subprocess.Popen([*SQUALL, "target", "--listen", "127.0.0.1:0", "--threads", "1"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"http://[\d.]+:\d+", line)
    assert found, line
    yield Target(found.group())
    server.terminate()
    server.wait(10)


@pytest.fixture
def squall(tmp_path: Path) -> Callable[..., Ended]:
    """Runs `squall` with the given arguments until it ends."""

    def run(*arguments: str, timeout: float = 120, env: dict[str, str] | None = None) -> Ended:
        done = subprocess.run([*SQUALL, *arguments], capture_output=True, text=True, timeout=timeout, cwd=tmp_path, env=env)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a scenario file that begins with the usual import."""

    def make(code: str, name: str = "shop.py", head: bool = True) -> Path:
        imports = "from squall import *\n" if head else ""
        path = tmp_path / name
        path.write_text(imports + textwrap.dedent(code))
        return path

    return make


@pytest.fixture
def run(squall: Callable[..., Ended], write: Callable[..., Path], target: Target, tmp_path: Path) -> Callable[..., Ended]:
    """Runs a scenario against the target for a number of iterations and reads its result file."""

    def go(code: str, *arguments: str, requests: int | None = 5, users: int | None = 1, **options: Any) -> Ended:
        path = write(code)
        given = ["run", str(path), "--target", target.url, "--json", "result.json", *arguments]
        if users is not None:
            given += ["--users", str(users)]
        if requests is not None:
            given += ["--requests", str(requests)]
        ended = squall(*given, **options)
        result = tmp_path / "result.json"
        assert result.exists(), f"{ended.code}: {ended.stdout}{ended.stderr}"
        ended.result = json.loads(result.read_text())
        assert ended.result["accounting"]["balanced"], ended.result["accounting"]
        return ended

    return go


class _Cookies(http.server.BaseHTTPRequestHandler):
    """/set?a=1 sets a cookie, /forget deletes `other`, /show returns the cookies of the request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = (self.headers.get("Cookie") or "").encode()
        self.send_response(200)
        if path == "/set":
            self.send_header("Set-Cookie", f"{query}; Path=/")
        elif path == "/forget":
            self.send_header("Set-Cookie", "other=; Path=/; Max-Age=0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def cookie_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Cookies)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def live() -> Iterator[str]:
    """Host and port of the protocol server."""
    with live_server() as place:
        yield place

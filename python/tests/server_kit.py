"""Helpers of the fleet and stream tests: a redis-server per test, and waiting for other
processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def eventually(what: str, look: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Polls until `look` returns a true value, for changes in another process that send no
    event."""
    patience = time.monotonic() + 120
    while not (found := look()):
        assert process is None or process.poll() is None, f"the process ended while waiting for: {what}"
        assert time.monotonic() < patience, f"waited two minutes for: {what}"
        time.sleep(0.01)
    return found


@dataclass
class Server:
    """A redis-server and a folder for files of the test."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def redis(self, *words: str) -> str:
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Runs a redis-server inside the `with` block; yields its port."""
    program = os.environ.get("SQUALL_TEST_REDIS_SERVER", "redis-server")
    assert shutil.which(program), f"these tests need {program}"
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        server = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        if any("Ready to accept connections" in line for line in iter(server.stdout.readline, "")):
            break
    try:
        yield port
    finally:
        end([server])
        server.stdout.close()


def end(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kills the processes that are still running."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()

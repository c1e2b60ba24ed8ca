"""A real redis-server and real workers; each worker is a separate process."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from server_kit import Server, end, eventually, redis_server
from squall_command import SQUALL

__all__ = ["Fleet", "eventually", "fleet"]


@dataclass
class Fleet(Server):
    """A redis-server with any number of workers and orchestrators."""

    target: Any
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, name: str, *arguments: str, program: list[str] | None = None) -> subprocess.Popen[str]:
        with open(self.folder / f"{name}.out", "w") as out, open(self.folder / f"{name}.err", "w") as err:
            command = [*(program or SQUALL), *arguments]
            # Each worker has its own folder, so that it cannot see the scenario's folder, as on
            # another machine.
            away = self.folder / f"machine-{name}"
            away.mkdir()
            self.processes[name] = subprocess.Popen(command, cwd=away, stdout=out, stderr=err, text=True)
        return self.processes[name]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text() + (self.folder / f"{name}.err").read_text()

    def join(self, *names: str, program: list[str] | None = None, patience: str = "2m") -> None:
        """Starts workers and waits until each has joined. The default `patience` is long, so that a
        stalled worker keeps its membership in tests that kill no worker."""
        for name in names:
            arguments = ("--redis", self.url, "--id", name, "--expires-after", patience)
            self.start(name, "worker", *arguments, program=program)
        for name in names:
            eventually(f"{name} to join", lambda name=name: "joined" in self.said(name))

    def run(self, scenario: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a scenario on the fleet until it ends."""
        return self.wait(self.begin(scenario, *arguments))

    def begin(self, scenario: Path, *arguments: str) -> subprocess.Popen[str]:
        command = [*SQUALL, "run", str(scenario), "--cluster", self.url, "--target", self.target.url, "--quiet", "--json", "result.json"]
        return subprocess.Popen([*command, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, run: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        out, err = run.communicate(timeout=180)
        return subprocess.CompletedProcess(run.args, run.returncode, out, err)

    def result(self, ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        path = self.folder / "result.json"
        assert path.exists(), f"{ended.returncode}: {ended.stdout}{ended.stderr}"
        result: dict[str, Any] = json.loads(path.read_text())
        path.unlink()
        return result


@pytest.fixture
def fleet(tmp_path: Path, target: Any) -> Iterator[Fleet]:
    with redis_server(tmp_path) as port:
        fleet = Fleet(tmp_path, port, target)
        yield fleet
        end(fleet.processes.values())

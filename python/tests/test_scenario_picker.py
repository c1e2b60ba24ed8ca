"""`squall run` without a scenario in a real terminal: the picker."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

import pytest
from squall_command import SQUALL

SCENARIO = "from squall import VUser, task\n\nclass Shop(VUser):\n    @task\n    async def a(self, client): await client.get('/health')\n"


class Terminal:
    """A program that runs in its own terminal."""

    def __init__(self, arguments: list[str], folder: str) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen([*SQUALL, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True)
        os.close(theirs)
        self.said = ""

    def read(self) -> bool:
        """Reads more output; returns False at the end."""
        ready, _, _ = select.select([self.ours], [], [], 60)
        assert ready, f"said nothing for a minute after: {self.said}"
        try:
            piece = os.read(self.ours, 4096)
        except OSError:
            return False
        self.said += piece.decode(errors="replace")
        return bool(piece)

    def until(self, words: str) -> None:
        deadline = time.monotonic() + 120
        while words not in self.said:
            assert time.monotonic() < deadline and self.read(), f"never said {words!r}: {self.said}"

    def type(self, keys: str) -> None:
        self.said = ""
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        while self.read():
            pass
        os.close(self.ours)
        return self.process.wait(60)


@pytest.fixture
def folder(tmp_path, target):
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "shop.py").write_text(SCENARIO)
    (tmp_path / "notes.py").write_text("print('no scenario')\n")
    (tmp_path / "tour.toml").write_text(f'target = "{target.url}"\n\n[[task]]\nname = "look"\nget = "/bytes/1"\n')
    return tmp_path


def asked(folder, target):
    given = ["run", "--users", "1", "--requests", "3", "--no-tui", "--target", target.url]
    terminal = Terminal(given, folder)
    terminal.until("Which one?")
    return terminal


def test_picked_scenario_runs(folder, target):
    terminal = asked(folder, target)
    assert "tour.toml" in terminal.said and "shop.py" in terminal.said and "notes.py" not in terminal.said
    terminal.type("7\r")
    terminal.until("Which one?")
    terminal.type("2\r")
    assert terminal.end() == 0, terminal.said
    assert "GET /health" in terminal.said


def test_picker_can_be_left_without_run(folder, target):
    terminal = asked(folder, target)
    terminal.type("q\r")
    assert terminal.end() != 0
    assert "GET /health" not in terminal.said


def test_picker_without_terminal_is_error(squall, folder):
    ended = squall("run")
    assert ended.code == 2 and "nothing to run" in ended.stderr

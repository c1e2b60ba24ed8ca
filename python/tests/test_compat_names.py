"""Files that hide the packages of other tools: a scenario's folder may hold a `loadpilot.py`, a
`vikhry.py`, a `runnel.py` or a `squall.py`, for example one scenario for each tool."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADPILOT = """
from loadpilot import VUser, scenario, task
from loadpilot.dsl import task as same

@scenario(rps=50, mode="constant")
class Flow(VUser):
    @task
    def look(self, client):
        assert client.get("/health").ok
"""

VIKHRY = """
from vikhry import VU, step

class Flow(VU):
    @step()
    async def look(self):
        assert (await self.http.get("/health")).ok
"""

NAMES = ("loadpilot.py", "vikhry.py", "runnel.py", "squall.py")


@pytest.mark.parametrize("code", [LOADPILOT, VIKHRY])
@pytest.mark.parametrize("scenario", ["flow.py", *NAMES])
def test_scenario_gets_package_although_its_folder_has_file_of_that_name(squall, tmp_path, target, code, scenario):
    folder = tmp_path / "bench"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text("raise RuntimeError('this is not the package')\n")
    (folder / scenario).write_text(code)
    before = target.counts().get("/health", 0)
    ended = squall("run", str(folder / scenario), "--target", target.url, "--requests", "3", "--users", "1")
    assert ended.code == 0, ended.stderr
    assert target.counts()["/health"] - before == 3


def test_processes_of_run_find_squall_although_current_folder_has_squall_py(tmp_path, target):
    (tmp_path / "squall.py").write_text("raise RuntimeError('this is not the package')\n")
    (tmp_path / "flow.py").write_text(LOADPILOT)
    words = ["run", "flow.py", "--target", target.url, "--requests", "4", "--users", "2", "--processes", "2"]
    # As the installed command starts: without the current folder on Python's path.
    command = [sys.executable, "-P", "-m", "squall", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_installed_package_takes_precedence(squall, tmp_path, target):
    site = tmp_path / "site"
    site.mkdir()
    (site / "loadpilot.py").write_text("raise RuntimeError('the installed package')\n")
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "flow.py").write_text(LOADPILOT)
    ended = squall("run", str(folder / "flow.py"), "--target", target.url, env={"PYTHONPATH": str(site)})
    assert ended.code == 2 and "the installed package" in ended.stderr, ended.stderr

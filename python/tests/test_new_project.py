"""`squall new --python`: the scenario runs unchanged, and so do the steps of its CI file."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

from squall_command import SQUALL


def test_ci_file_of_a_new_python_project_runs_step_by_step(squall, tmp_path: Path):
    made = squall("new", "shop", "--python")
    assert made.code == 0, made.stderr
    # Port 8089 may be in use here.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = "127.0.0.1:" + str(listener.getsockname()[1])
    for file in (tmp_path / "shop" / "ci.yml", tmp_path / "shop" / "scenario.py"):
        file.write_text(file.read_text().replace("127.0.0.1:8089", free))
    install, *steps = re.findall(r"- run: (.*)", (tmp_path / "shop" / "ci.yml").read_text())
    # This step compiles for minutes; the package that it installs is the one under test.
    assert re.fullmatch(r"pip install git\+https://github\.com/\S+/squall", install)
    # A program of that name: a function would leave its child running when the trap ends the job.
    program = tmp_path / "bin" / "squall"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(SQUALL)} "$@"\n')
    program.chmod(0o755)
    script = "trap 'kill $(jobs -p)' EXIT\nset -e\n" + "\n".join(steps)
    env = {**os.environ, "SQUALL_FOR": "1s", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path / "shop", env=env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "note: ramp_up is 250ms instead of 5s" in ended.stderr
    result = json.loads((tmp_path / "shop" / "result.json").read_text())
    assert (result["verdict"], len(result["thresholds"])) == ("passed", 2)
    assert (tmp_path / "shop" / "report.html").exists()

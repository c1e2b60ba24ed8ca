"""The `squall` command of the Python package: the same program as the binary, inside this
interpreter."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from squall_command import SQUALL

import squall as package

ROOT = Path(__file__).parents[2]
#: cql.py needs a database and runs in test_cql.py.
SCENARIOS = sorted(path for path in (ROOT / "scenarios").glob("*.py") if path.stem != "cql")


def test_url_run_works_from_python_command(squall, target):
    ended = squall("run", f"{target.url}/health", "--users", "2", "--requests", "20")
    assert ended.code == 0, ended.stderr
    assert "20" in ended.stdout


def test_version_equals_program_version(squall):
    import squall as sdk

    version = squall("--version").stdout
    assert sdk.__version__ in version
    if (ROOT / ".git").exists():
        assert re.search(r" \([0-9a-f]{10}\)$", version.strip()), f"it does not say of which commit: {version}"


def test_command_that_needs_no_python_loads_no_scenario_api():
    code = "import sys; from squall.__main__ import main; main(); print(*(name for name in sys.modules if name.startswith('squall')))"
    ended = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1].split() == ["squall", "squall.__main__", "squall._squall"]


def test_command_without_scenario_prints_all_and_keeps_its_exit_code(squall):
    """It ends the process without ending the interpreter."""
    script = squall("completions", "bash")
    assert script.code == 0 and script.stdout.endswith("-o default squall\nfi\n")
    refused = squall("run", "no-such-file.toml")
    assert refused.code == 2 and "no-such-file.toml" in refused.stderr


def test_exit_handlers_of_a_scenario_run(run):
    code = """
        import atexit

        atexit.register(print, "the scenario is over")

        @scenario(users=1)
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/health")
        """
    ended = run(code)
    assert "the scenario is over" in ended.stdout + ended.stderr


def test_unknown_name_is_an_error_of_the_package():
    with pytest.raises(ImportError, match="cannot import name 'Vuser' from 'squall'"):
        from squall import Vuser  # noqa: F401
    with pytest.raises(AttributeError, match="module 'squall' has no attribute 'Vuser'"):
        _ = package.Vuser
    assert {"VUser", "task", "__version__"} <= set(dir(package))


def test_thresholds_decide_exit_code(run):
    code = """
        @scenario(users=1, thresholds={"error_rate": 0.0})
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/fail", params={"rate": 1})
        """
    assert run(code).code == 1


@pytest.mark.parametrize(
    ("threshold", "code"),
    [("GET /health:p99<60s", 0), ("login:p99<60s", 0), ("own:p99<60s", 0), ("login:p99<1ns", 1), ("never seen:p99<60s", 1), ("brwse:p99<60s", 2),
     ("browse (failed):errors<1", 0), ("on_start:errors<1", 0), ("on_start (failed):errors<1", 0), ("brwse (failed):errors<1", 2)],
)
def test_thresholds_may_name_any_series(squall, write, target, threshold, code):
    path = write(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/health")
                await client.post("/echo", name="login")
                emit_metric("own", time=1.0)
        """
    )
    ended = squall("run", str(path), "--target", target.url, "--users", "1", "--requests", "3", "--threshold", threshold)
    assert ended.code == code, ended.stdout + ended.stderr
    assert code != 2 or "did you mean `browse" in ended.stderr


def test_error_threshold_fails_on_one_failure(run):
    code = """
        @scenario(users=1, thresholds={"go (failed):errors": 2, "requests": 1, "p90_ms": 60000, "mean_ms": 60000})
        class Shop(VUser):
            @task
            async def go(self, client):
                raise ValueError("nothing was sent")
        """
    ended = run(code, requests=3)
    assert next((one["threshold"], one["passed"]) for one in ended.result["thresholds"]) == ("go (failed):errors<=2", False)


def test_rate_run_keeps_its_rate(run):
    ended = run(
        """
        @scenario(rate=200, duration="1s")
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/health")
        """,
        users=None,
        requests=None,
    )
    assert ended.metric("GET /health")["requests"] == 200


def test_same_seed_repeats_random_choices(run):
    code = """
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/health", name=f"n{self.random.randrange(1000)}")
        """
    first, again, other = (run(code, "--seed", seed).names() for seed in ("1", "1", "2"))
    assert first == again != other


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_example_scenarios_run(squall, target, tmp_path, path):
    given = ["run", str(path), "--target", target.url, "--users", "3", "--requests", "12", "--json", "result.json"]
    ended = squall(*given)
    assert ended.code == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["totals"]["errors"] == 0
    assert result["totals"]["requests"] >= 12


def test_ctrl_c_drains_run_and_prints_report(write, target, tmp_path):
    path = write(
        """
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/delay/5")
        """
    )
    run = subprocess.Popen(
        [*SQUALL, "run", str(path), "--target", target.url, "--users", "2", "--for", "60s", "--no-tui", "--json", "result.json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The first line with a second of load shows that the run has started.
    assert run.stderr is not None
    assert any("0:01" in line for line in run.stderr)
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=30)
    assert run.returncode == 130, stdout + stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["accounting"]["balanced"]
    assert "KeyboardInterrupt" not in stderr


def test_program_without_python_starts_python_for_scenario(write, target):
    binary = next((path for path in (ROOT / "target/debug/squall", ROOT / "target/release/squall") if path.exists()), None)
    if binary is None:
        pytest.skip("the plain program is not built")
    path = write("class Shop(VUser):\n    @task\n    async def a(self, c): await c.get('/health')")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    given = [str(binary), "run", str(path), "--target", target.url, "--users", "1", "--requests", "3"]
    ended = subprocess.run(given, capture_output=True, text=True, env=env, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "GET /health" in ended.stdout


@pytest.mark.parametrize("flags", [["--json"], ["--json-lines"], ["--csv", "-"], ["--json", "--processes", "2"]])
def test_scenario_output_stays_out_of_documents(squall, write, target, flags):
    path = write(
        """
        print("while it is read")

        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                print("by a user")
        """
    )
    ended = squall("run", str(path), "--target", target.url, "--users", "2", "--requests", "4", *flags)
    assert ended.code == 0, ended.stderr
    assert "while it is read" in ended.stderr and ended.stderr.count("by a user") == 4
    assert ended.stdout and "while it is read" not in ended.stdout and "by a user" not in ended.stdout
    if flags[0] == "--json":
        assert json.loads(ended.stdout)["totals"]["requests"] == 4
    elif flags[0] == "--json-lines":
        assert json.loads(ended.stdout.splitlines()[-1])["phase"] == "done"


def test_scenario_output_goes_to_standard_output(squall, write, target):
    path = write(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                print("by a user")
        """
    )
    ended = squall("run", str(path), "--target", target.url, "--users", "1", "--requests", "2")
    assert ended.stdout.count("by a user") == 2, ended.stdout


def test_fleet_workers_run_in_virtual_environment(tmp_path):
    """The interpreter that the environment is based on does not have the package."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "squall.pth").write_text(str(Path(package.__file__).parent.parent))
    (tmp_path / "run").mkdir(mode=0o700)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SQUALL", "VIRTUAL_ENV"))}
    environment["XDG_RUNTIME_DIR"] = str(tmp_path / "run")

    def call(*words):
        command = [str(venv / "bin" / "python"), "-m", "squall", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        up = call("up", "--in-memory", "--workers", "1", "--listen", f"127.0.0.1:{port}")
        if "cannot listen" not in up.stderr:
            break
    call("down")
    assert up.returncode == 0 and "a fleet of 1 worker is up" in up.stdout, up.stderr

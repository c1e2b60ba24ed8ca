"""LoadPilot's JSON plans: ``squall run --plan``."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from types import SimpleNamespace

import pytest
from squall_command import SQUALL

PLAN = {
    "name": "checkout",
    "rps": 40,
    "duration_secs": 1,
    "ramp_up_secs": 0,
    "mode": "constant",
    "steps": 5,
    "tasks": [
        {"name": "browse", "weight": 3, "url": "/api/products", "method": "GET", "headers": {"X-One": "1"}, "body_template": None},
        {"name": "echo", "weight": 1, "url": "/echo", "method": "POST", "headers": {}, "body_template": '{"a": "ü"}'},
    ],
    "data_pool": [],
    "n_vusers": 5,
    "vuser_configs": [],
    "thresholds": {"p99_ms": 60000, "error_rate": 1.0},
}


def planned(squall, tmp_path, target, **changes):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN | {"target_url": target.url} | changes))
    return squall("run", "--plan", str(plan), "--quiet")


def test_loadpilot_plan_runs_and_prints_loadpilot_lines(squall, tmp_path, target):
    before = target.counts()
    ended = planned(squall, tmp_path, target)
    assert ended.code == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    last = lines[-1]
    assert last["phase"] == "done" and last["requests_total"] == 40 and last["errors_total"] == 0
    assert {"p50_ms", "p95_ms", "p99_ms", "max_ms", "min_ms", "mean_ms"} <= set(last["latency"])
    received = target.counts()
    assert (received["/api/products"] - before["/api/products"], received["/echo"] - before["/echo"]) == (30, 10)


def test_plan_from_standard_input_runs(target, tmp_path):
    before = target.counts().get("/echo", 0)
    plan = json.dumps(PLAN | {"target_url": target.url})
    ended = subprocess.run([*SQUALL, "run", "--plan", "-"], input=plan, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 0, ended.stderr
    # Standard output has only these lines, because the caller parses it.
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[-1]["phase"] == "done" and lines[-1]["requests_total"] == 40
    assert [line["phase"] for line in lines].count("done") == 1
    assert target.counts()["/echo"] - before == 10


def test_standard_input_without_plan_is_rejected(tmp_path):
    ended = subprocess.run([*SQUALL, "run", "--plan", "-"], input="nonsense", capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 2 and ended.stdout == "" and "plan" in ended.stderr, ended.stderr


TWO_SCENARIOS = """
    @scenario(users=2)
    class Buyer(VUser):
        @task
        async def browse(self, client):
            await client.get("/api/products")

    @scenario(users=1)
    class Watcher(VUser):
        @task
        def look(self, client):
            client.get("/health")
            self.seen = 1
"""


def test_plan_with_python_file_runs_its_scenario(squall, write, tmp_path, target):
    path = write(TWO_SCENARIOS)
    ended = planned(squall, tmp_path, target, scenario_file=str(path), scenario_class="Watcher", tasks=[])
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["requests_total"] == 40


class _Writing(http.server.BaseHTTPRequestHandler):
    """Records the requests."""

    protocol_version = "HTTP/1.1"
    came: list[tuple[str, str | None, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.came.append((self.path, self.headers["X-Who"], body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_plan_data_pool_fills_templates(squall, tmp_path):
    came: list[tuple[str, str | None, str]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Writing,), {"came": came}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    task = {"name": "one", "url": "/{{n}}", "method": "POST", "headers": {"X-Who": "{{ who }}"}, "body_template": '{"a": {"n": {{n}}}}'}
    pool = [{"who": "ann", "n": 1}, {"who": "bob", "n": 2, "more": True}]
    try:
        where = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
        ended = planned(squall, tmp_path, where, tasks=[task], data_pool=pool, thresholds={})
    finally:
        server.shutdown()
        server.server_close()
    assert ended.code == 0, ended.stderr
    assert {row: came.count(row) for row in came} == {("/1", "ann", '{"a": {"n": 1}}'): 20, ("/2", "bob", '{"a": {"n": 2}}'): 20}


def test_plan_users_have_separate_headers_and_urls(squall, tmp_path):
    came: list[tuple[str, str | None, str]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Writing,), {"came": came}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    task = {"name": "one", "url": "/all", "method": "POST", "headers": {"X-Who": "nobody", "X-All": "1"}, "body_template": "b"}
    users = [
        {"task_headers": {"one": {"X-Who": "ann"}}, "task_urls": {"one": "/of/ann?q=1"}},
        {"task_headers": {"one": {"X-Who": "bob"}}},
        {},
    ]
    try:
        where = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
        ended = planned(squall, tmp_path, where, tasks=[task], vuser_configs=users, thresholds={}, rps=30, duration_secs=1)
    finally:
        server.shutdown()
        server.server_close()
    assert ended.code == 0, ended.stderr
    expected = {("/of/ann?q=1", "ann", "b"): 10, ("/all", "bob", "b"): 10, ("/all", "nobody", "b"): 10}
    assert {row: came.count(row) for row in came} == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_pool": [{"m": 1}]}, "task `one`, body_template: `{{n}}` is not a column of data_pool (columns of all rows: m)"),
        ({}, "task `one`, body_template: `{{n}}` is not a column of data_pool (columns of all rows: none)"),
        ({"data_pool": [{"n": 1}, 5]}, "data_pool[1]: a row must be an object"),
        ({"vuser_configs": [{"task_headers": 5}]}, "not a LoadPilot plan: invalid type: integer `5`, expected a map"),
    ],
)
def test_unsupported_plan_field_is_named(squall, tmp_path, target, changes, words):
    tasks = [{"name": "one", "url": "/echo", "method": "POST", "body_template": "{{n}}"}]
    ended = planned(squall, tmp_path, target, tasks=tasks, **changes)
    assert ended.code == 2 and words in ended.stderr, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


def test_invalid_plan_file_is_rejected(squall, tmp_path, target):
    (tmp_path / "plan.json").write_text("{}")
    ended = squall("run", "--plan", "plan.json")
    assert ended.code == 2 and "rps" in ended.stderr
    assert planned(squall, tmp_path, target, tasks=[]).code == 2
    assert planned(squall, tmp_path, target, thresholds={"p98": 1}).code == 2

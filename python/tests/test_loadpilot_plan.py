"""LoadPilot's JSON plans: ``squall run --plan``."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
import urllib.request
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


class _Types(_Writing):
    """Records the content type of each request."""

    def do_POST(self) -> None:
        self.headers.add_header("X-Who", self.headers["Content-Type"])
        super().do_POST()


def test_body_template_is_sent_as_json_unless_the_plan_names_another_type(squall, tmp_path):
    came: list[tuple[str, str | None, str]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Types,), {"came": came}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tasks = [
        {"name": "json", "url": "/json", "method": "POST", "body_template": '{"a": 1}'},
        {"name": "text", "url": "/text", "method": "POST", "headers": {"content-type": "text/plain"}, "body_template": "b"},
    ]
    try:
        where = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
        ended = planned(squall, tmp_path, where, tasks=tasks, thresholds={}, rps=10)
    finally:
        server.shutdown()
        server.server_close()
    assert ended.code == 0, ended.stderr
    assert set(came) == {("/json", "application/json", '{"a": 1}'), ("/text", "text/plain", "b")}


HOOKED = """
    from loadpilot import VUser, scenario, task

    @scenario(rps=1, duration="9m")
    class Flow(VUser):
        def on_start(self, client):
            client.get("/api/products")
            {login}

        @task(weight=3)
        def health(self, client):
            client.get("/health")

        @task
        def missing(self, client):
            client.get("/status/404").raise_for_status()
"""


def hooked_lines(squall, write, tmp_path, target, login="pass", **changes):
    path = write(HOOKED.format(login=login))
    ended = planned(squall, tmp_path, target, scenario_file=str(path), scenario_class="Flow", thresholds={}, **changes)
    assert ended.code == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_lines_of_plan_count_tasks_by_name_without_requests_of_on_start(squall, write, tmp_path, target):
    before = target.counts()
    last = hooked_lines(squall, write, tmp_path, target, n_vusers=7)[-1]
    assert target.counts()["/api/products"] - before.get("/api/products", 0) == 7, "each of the plan's users starts once"
    assert (last["requests_total"], last["errors_total"]) == (40, 10)
    tasks = {task["name"]: (task["requests"], task["errors"]) for task in last["tasks"]}
    assert tasks == {"health": (30, 0), "missing": (10, 10)}
    assert last["latency"]["max_ms"] >= last["tasks"][0]["latency"]["p99_ms"] > 0
    loadpilot_fields = {"timestamp_secs", "elapsed_secs", "current_rps", "target_rps", "requests_total", "errors_total"}
    assert set(last) == loadpilot_fields | {"active_workers", "phase", "latency", "tasks"}


def test_failing_on_start_of_plan_does_not_stop_the_tasks(squall, write, tmp_path, target):
    last = hooked_lines(squall, write, tmp_path, target, login="raise RuntimeError('no login')", n_vusers=5)[-1]
    assert (last["requests_total"], last["errors_total"]) == (40, 10)


def test_phases_of_spike_are_those_of_loadpilot(squall, tmp_path, target):
    ended = planned(squall, tmp_path, target, mode="spike", duration_secs=6, rps=20)
    assert ended.code == 0, ended.stderr
    phases = [json.loads(line)["phase"] for line in ended.stdout.splitlines()]
    assert list(dict.fromkeys(phases)) == ["steady", "ramp_up", "ramp_down", "done"], phases


def test_sigterm_ends_plan_with_success(tmp_path, target):
    plan = json.dumps(PLAN | {"target_url": target.url, "duration_secs": 600})
    process = subprocess.Popen([*SQUALL, "run", "--plan", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(plan)
    process.stdin.close()
    first = json.loads(process.stdout.readline())
    assert first["phase"] == "steady"
    process.terminate()
    last = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(60) == 0 and last["phase"] == "done" and last["requests_total"] > 0


def test_prometheus_serves_loadpilot_names(tmp_path, target):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN | {"target_url": target.url, "duration_secs": 600}))
    words = ["run", "--plan", str(plan), "--prometheus", "127.0.0.1:0", "--prometheus-names", "loadpilot"]
    process = subprocess.Popen([*SQUALL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    try:
        found = re.search(r"http://[\d.:]+/metrics", process.stderr.readline())
        assert found
        # When the second line is written, the metrics of the first second are served.
        process.stdout.readline(), process.stdout.readline()
        # Prometheus asks for protobuf first; these names exist as text only.
        accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;q=0.4"
        request = urllib.request.Request(found.group(), headers={"Accept": accept})
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            text = answer.read().decode()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("loadpilot_"))
    assert float(values["loadpilot_requests_total"]) > 0 and float(values["loadpilot_target_rps"]) == 40
    single = {"errors_total", "current_rps", "active_workers", "elapsed_secs", "latency_p50_ms", "latency_p95_ms"}
    single |= {"latency_p99_ms", "latency_max_ms", "latency_mean_ms"}
    assert {f"loadpilot_{name}" for name in single} <= set(values)
    assert values['loadpilot_phase{phase="steady"}'] == "1" and values['loadpilot_phase{phase="done"}'] == "0"
    for name in ("requests_total", "errors_total", "latency_p50_ms", "latency_p99_ms", "latency_mean_ms"):
        assert {f'loadpilot_task_{name}{{task="{task}"}}' for task in ("browse", "echo")} <= set(values)
    assert "squall_requests_total" in text

"""Several scenarios of one file on one timeline, and probes beside them."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from types import SimpleNamespace

import pytest
from running import SQUALL

TWO = """
    @scenario(users=2, thresholds={"browse:p99_ms": 60000, "error_rate": 5})
    class Buyer(VUser):
        async def on_start(self, client):
            await client.post("/auth/login", json={"username": "a", "password": "b"})

        @task
        async def browse(self, client):
            self.seen = (await client.get("/api/products")).status_code

    @scenario(users=1)
    class Watcher(VUser):
        @task
        def look(self, client):
            client.get("/health")
            self.seen = 1

    class Base(VUser):
        @task
        async def never(self, client):
            raise AssertionError("it is only there to be inherited from")
"""


def test_marked_scenarios_run_together(run, target):
    before = target.counts()
    ended = run(TWO, users=None, requests=20)
    received = {path: count - before.get(path, 0) for path, count in target.counts().items()}
    # A flag holds for each of them: 20 iterations of each.
    assert ended.metric("Buyer/browse")["requests"] == ended.metric("Watcher/look")["requests"] == 20
    assert ended.metric("Buyer/GET /api/products")["requests"] == received["/api/products"] == 20
    assert ended.metric("Watcher/GET /health")["requests"] == received["/health"] == 20
    assert ended.result["totals"]["requests"] == 40 + received["/auth/login"]
    assert ended.result["totals"]["errors"] == 0 and ended.code == 0, ended.stderr
    assert len(ended.result["thresholds"]) == 2


def test_one_of_them_can_be_chosen(run):
    ended = run(TWO, "--scenario", "Watcher", requests=5)
    assert ended.names() == {"look", "GET /health"}


def test_check_describes_all_of_them(squall, write, target):
    ended = squall("run", str(write(TWO)), "--target", target.url, "--check")
    assert ended.code == 0
    assert "Buyer: up to 2 users" in ended.stdout and "Watcher: up to 1 users" in ended.stdout
    assert "Base" not in ended.stdout


def test_several_processes_share_all_of_them(run, target):
    before = target.counts()
    ended = run(TWO, "--processes", "2", users=None, requests=30)
    received = {path: count - before.get(path, 0) for path, count in target.counts().items()}
    assert ended.metric("Buyer/browse")["requests"] == ended.metric("Watcher/look")["requests"] == 30
    assert received["/api/products"] == received["/health"] == 30 and received["/auth/login"] == 2
    assert ended.result["totals"]["errors"] == 0 and ended.code == 0, ended.stderr


def test_a_search_takes_one_of_them(squall, write, target):
    ended = squall("run", str(write(TWO)), "--target", target.url, "--find-max", "p99<50ms")
    assert ended.code == 2 and "--scenario" in ended.stderr, ended.stderr


def test_rates_and_users_end_with_the_longest(run):
    ended = run(
        """
        @scenario(rate=50, duration="1s")
        class Open(VUser):
            @task
            async def a(self, client):
                await client.get("/health")

        @scenario(users=1, duration="2s", pause="100ms")
        class Closed(VUser):
            @task
            async def b(self, client):
                await client.get("/health")
        """,
        users=None,
        requests=None,
    )
    assert ended.metric("Open/a")["requests"] == 50
    assert ended.metric("Closed/b")["requests"] >= 1


PROBES = """
    looked = []

    @probe(every="50ms")
    async def depth(context):
        looked.append((await context.client.get("/health", name="asked")).status_code)
        assert context.get("word") == "w"
        return len(looked)

    @probe("broken", every_s=0.05)
    def broken():
        raise RuntimeError("no answer")

    class Shop(VUser):
        def on_init(self, word):
            self.word = word

        @task
        async def go(self, client):
            await client.get("/health")
            await sleep(0.05)
"""


def test_probes_look_for_as_long_as_the_run_lasts(run):
    ended = run(PROBES, "--param", "word=w", requests=30)
    # The scenario itself keeps its names and its count; the probes end with it.
    assert ended.metric("go")["requests"] == 30
    depth = ended.metric("depth")
    assert depth["kind"] == "custom" and depth["errors"] == 0
    assert ended.metric("probe/depth")["errors"] == 0
    assert ended.metric("probe/asked")["requests"] == ended.metric("probe/depth")["requests"] >= 1
    assert ended.metric("probe/broken")["errors"] == ended.metric("probe/broken")["requests"] >= 1
    assert "no answer" in ended.messages()
    # Who looks is no load.
    totals = ended.result["totals"]
    assert (totals["requests"], totals["iterations"], totals["errors"]) == (30, 30, 0)
    assert ended.metric("probe/asked")["kind"] == "custom"
    assert max(second["users"] for second in ended.result["timeline"]) <= 1


def test_a_probe_gives_numbers_from_zero_on(run):
    ended = run(
        """
        looked = []

        @probe(every="20ms")
        def colder():
            looked.append("colder")
            return -3

        @probe(every="20ms")
        def fine():
            looked.append("fine")
            return True

        @probe(every="20ms")
        def broken():
            looked.append("broken")
            return False

        class Shop(VUser):
            @task
            async def go(self, client):
                # The first of each is written down by then, however slow the machine is.
                while min(map(looked.count, ("colder", "fine", "broken"))) < 2:
                    await sleep(0.01)
                await client.get("/health")
        """,
    )
    assert "probe 'colder' returned -3: return a number of 0 or more" in ended.messages()
    assert ended.metric("fine")["errors"] == 0 and ended.metric("fine")["service_ms"]["max"] == 0
    assert ended.metric("broken")["errors"] == ended.metric("broken")["requests"] >= 1


def test_one_process_of_several_looks(run, write):
    """However many share the load, there is one user who looks."""
    code = PROBES.replace("looked = []", "import os\n    looked = []").replace(
        "return len(looked)", 'emit_metric(f"looked in {os.getpid()}")\n        return len(looked)'
    )
    ended = run(code, "--param", "word=w", "--processes", "3", users=3, requests=60)
    assert ended.metric("go")["requests"] == 60
    assert len([name for name in ended.names() if name.startswith("looked in")]) == 1
    assert ended.metric("depth")["errors"] == 0 and ended.metric("depth")["requests"] >= 1


def test_probes_look_while_a_rate_is_searched(squall, write, target, tmp_path):
    """In each of the search's runs, from their beginning to their end."""
    looks = tmp_path / "looks"
    path = write(
        f"""
        @probe(every="20ms")
        def depth():
            with open({str(looks)!r}, "a") as file:
                file.write("x")

        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/delay/200")
        """
    )
    given = ["--find-max", "p99<100ms", "--find-max-probe", "1s", "--rate", "20"]
    ended = squall("run", str(path), "--target", target.url, *given)
    assert "20" in ended.stdout, ended.stdout + ended.stderr
    # Each rate that does not hold is tried twice, and nothing holds.
    assert ended.code == 1 and len(looks.read_text()) >= 2, ended.stdout + ended.stderr


def test_a_probe_alone_is_no_scenario(squall, write, target):
    ended = squall("run", str(write("@probe()\ndef depth(): return 1")), "--target", target.url)
    assert ended.code == 2 and "this file has no scenario" in ended.stderr


STRATEGY = """
    class {name}(VUser):
        step_strategy = {strategy}

        @task(weight=3)
        async def first(self, client):
            await client.get("/health", name="first asked")

        @task(requires="first", every=0.001)
        async def second(self, client):
            await client.get("/bytes/3", name="second asked")

        def check_second(self, status_code, body):
            assert len(body) == 3

        @task(timeout=0.05)
        async def slow(self, client):
            await sleep(30)
"""


def test_parallel_ready_steps_run_at_once(run):
    ended = run(STRATEGY.format(name="Shop", strategy="ParallelReadyStrategy()"), requests=10)
    # In the first iteration `second` may not run yet; `slow` is cut each time, without the others suffering.
    assert ended.metric("first")["requests"] == 10 and ended.metric("first")["errors"] == 0
    assert 1 <= ended.metric("second")["requests"] <= 9 and ended.metric("second")["errors"] == 0
    assert ended.metric("slow")["errors"] == ended.metric("slow")["requests"] == 10
    assert ended.metric("second asked")["requests"] == ended.metric("second")["requests"]


def test_sequential_weighted_steps_run_one_by_one(run):
    ended = run(STRATEGY.format(name="Shop", strategy="SequentialWeightedStrategy()"), requests=12)
    ran = {name: ended.metric(name)["requests"] for name in ("first", "second", "slow") if name in ended.names()}
    assert sum(ran.values()) == 12, ran


def test_a_strategy_of_ones_own_chooses(run):
    ended = run(
        """
        class InTurn:
            def __init__(self):
                self.turn = 0

            def select(self, steps, completed_steps, next_allowed_at, now, rng):
                self.turn += 1
                if self.turn % 3 == 0:
                    return StepSelection((), now + 0.001)
                return StepSelection([steps[self.turn % 2]])

        class Shop(VUser):
            step_strategy = InTurn()

            @task
            async def a(self, client):
                await client.get("/health")

            @task
            async def b(self, client):
                await client.get("/health")
        """,
        requests=8,
    )
    assert ended.metric("a")["requests"] + ended.metric("b")["requests"] == 8
    assert min(ended.metric("a")["requests"], ended.metric("b")["requests"]) >= 2


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


def test_a_loadpilot_plan_runs_and_speaks_its_lines(squall, tmp_path, target):
    before = target.counts()
    ended = planned(squall, tmp_path, target)
    assert ended.code == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    last = lines[-1]
    assert last["phase"] == "done" and last["requests_total"] == 40 and last["errors_total"] == 0
    assert {"p50_ms", "p95_ms", "p99_ms", "max_ms", "min_ms", "mean_ms"} <= set(last["latency"])
    received = target.counts()
    assert (received["/api/products"] - before["/api/products"], received["/echo"] - before["/echo"]) == (30, 10)


def test_a_plan_may_come_by_standard_input(target, tmp_path):
    before = target.counts().get("/echo", 0)
    plan = json.dumps(PLAN | {"target_url": target.url})
    ended = subprocess.run([*SQUALL, "run", "--plan", "-"], input=plan, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 0, ended.stderr
    # Nothing but its lines: whoever started it reads them.
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[-1]["phase"] == "done" and lines[-1]["requests_total"] == 40
    assert [line["phase"] for line in lines].count("done") == 1
    assert target.counts()["/echo"] - before == 10


def test_standard_input_that_is_no_plan_is_refused(tmp_path):
    ended = subprocess.run([*SQUALL, "run", "--plan", "-"], input="nonsense", capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 2 and ended.stdout == "" and "plan" in ended.stderr, ended.stderr


def test_a_plan_of_a_python_scenario_runs_the_scenario(squall, write, tmp_path, target):
    path = write(TWO)
    ended = planned(squall, tmp_path, target, scenario_file=str(path), scenario_class="Watcher", tasks=[])
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["requests_total"] == 40


class _Writing(http.server.BaseHTTPRequestHandler):
    """Writes down what came."""

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


def test_a_plans_pool_of_data_fills_its_templates(squall, tmp_path):
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


def test_a_plans_users_have_their_own_headers_and_urls(squall, tmp_path):
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
        ({"data_pool": [{"m": 1}]}, "task `one`, body_template: `{{n}}` is no column of data_pool (in all of its rows: m)"),
        ({}, "task `one`, body_template: `{{n}}` is no column of data_pool (in all of its rows: none)"),
        ({"data_pool": [{"n": 1}, 5]}, "data_pool[1]: a row is an object"),
        ({"vuser_configs": [{"task_headers": 5}]}, "not a plan: invalid type: integer `5`, expected a map"),
    ],
)
def test_what_a_plan_cannot_say_is_named_by_its_field(squall, tmp_path, target, changes, words):
    tasks = [{"name": "one", "url": "/echo", "method": "POST", "body_template": "{{n}}"}]
    ended = planned(squall, tmp_path, target, tasks=tasks, **changes)
    assert ended.code == 2 and words in ended.stderr, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


def test_a_plan_that_is_none_is_refused(squall, tmp_path, target):
    (tmp_path / "plan.json").write_text("{}")
    ended = squall("run", "--plan", "plan.json")
    assert ended.code == 2 and "rps" in ended.stderr
    assert planned(squall, tmp_path, target, tasks=[]).code == 2
    assert planned(squall, tmp_path, target, thresholds={"p98": 1}).code == 2


def test_too_many_series_are_told(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def go(self, client):
                for n in range(1500):
                    await client.get(f"/bytes/1?n={n}", name=f"id {self.id}.{n}")
        """,
        "--mode",
        "stepped",
        requests=1,
    )
    assert ended.metric("(other)")["requests"] > 0
    assert ended.result["totals"]["requests"] == 1500
    assert "more names than are kept apart" in ended.stdout

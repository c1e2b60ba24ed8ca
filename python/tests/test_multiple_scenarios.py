"""Several scenarios of one file in one run."""

from __future__ import annotations

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


def test_marked_scenarios_of_file_run_together(run, target):
    before = target.counts()
    ended = run(TWO, users=None, requests=20)
    received = {path: count - before.get(path, 0) for path, count in target.counts().items()}
    # The flag applies to each scenario: 20 iterations of each.
    assert ended.metric("Buyer/browse")["requests"] == ended.metric("Watcher/look")["requests"] == 20
    assert ended.metric("Buyer/GET /api/products")["requests"] == received["/api/products"] == 20
    assert ended.metric("Watcher/GET /health")["requests"] == received["/health"] == 20
    assert ended.result["totals"]["requests"] == 40 + received["/auth/login"]
    assert ended.result["totals"]["errors"] == 0 and ended.code == 0, ended.stderr
    assert len(ended.result["thresholds"]) == 2


def test_scenario_flag_runs_one_scenario(run):
    ended = run(TWO, "--scenario", "Watcher", requests=5)
    assert ended.names() == {"look", "GET /health"}


def test_check_command_describes_every_scenario(squall, write, target):
    ended = squall("run", str(write(TWO)), "--target", target.url, "--check")
    assert ended.code == 0
    assert "Buyer: up to 2 users" in ended.stdout and "Watcher: up to 1 users" in ended.stdout
    assert "Base" not in ended.stdout


def test_processes_share_load_of_every_scenario(run, target):
    before = target.counts()
    ended = run(TWO, "--processes", "2", users=None, requests=30)
    received = {path: count - before.get(path, 0) for path, count in target.counts().items()}
    assert ended.metric("Buyer/browse")["requests"] == ended.metric("Watcher/look")["requests"] == 30
    assert received["/api/products"] == received["/health"] == 30 and received["/auth/login"] == 2
    assert ended.result["totals"]["errors"] == 0 and ended.code == 0, ended.stderr


def test_find_max_requires_one_scenario(squall, write, target):
    ended = squall("run", str(write(TWO)), "--target", target.url, "--find-max", "p99<50ms")
    assert ended.code == 2 and "--scenario" in ended.stderr, ended.stderr


def test_run_of_rate_and_users_lasts_as_long_as_longest_scenario(run):
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


def test_output_says_that_scenarios_run_together(run):
    ended = run(TWO, users=None, requests=2)
    assert "scenarios that run together: Buyer, Watcher; --scenario NAME runs one" in ended.stderr
    assert "run together" not in run(TWO, "--scenario", "Watcher", requests=2).stderr


LOADPILOT = """
    from loadpilot import VUser, scenario, task

    @scenario(rps=30, duration="1m", mode="constant")
    class Light(VUser):
        @task
        def look(self, client):
            client.get("/health")

    @scenario(rps=100, duration="2m", mode="spike")
    class Heavy(VUser):
        @task
        def look(self, client):
            client.get("/api/products")
"""


def test_one_scenario_of_loadpilot_file_must_be_chosen_as_in_loadpilot(run, squall, write, target):
    before = target.counts()
    ended = squall("run", str(write(LOADPILOT)), "--target", target.url)
    assert ended.code == 2
    assert "choose one with --scenario: Light (30/s, 60s), Heavy (100/s, 120s)" in ended.stderr, ended.stderr
    assert target.counts() == before
    assert run(LOADPILOT, "--scenario", "Heavy", requests=4).names() == {"look", "GET /api/products"}

"""Several scenarios of a file, and probes, on a fleet."""

from __future__ import annotations

TWO = """
    from squall import *

    @scenario(rate=40, duration="3s", thresholds={"buy:p99_ms": 60000})
    class Buyer(VUser):
        @task
        async def buy(self, client):
            self.seen = (await client.get("/bytes/7")).status_code

    @scenario(rate=20, duration="4s")
    class Watcher(VUser):
        @task
        def look(self, client):
            client.get("/health")
            self.seen = 1
"""


def counted(target, before):
    return {path: count - before.get(path, 0) for path, count in target.counts().items() if count != before.get(path, 0)}


def requests(result):
    return {metric["name"]: metric["requests"] for metric in result["metrics"]}


def told_as_counted(fleet, target, text):
    """Runs the two scenarios on two workers. Returns the result and the requests of each metric,
    after comparing them with the counts of the target."""
    path = fleet.write("shop.py", text)
    fleet.join("one", "two")
    before = target.counts()
    ended = fleet.run(path)
    result = fleet.result(ended)
    assert ended.returncode == 0, ended.stderr
    names = requests(result)
    assert counted(target, before) == {"/bytes/{n}": names["Buyer/GET /bytes/7"], "/health": names["Watcher/GET /health"]}
    return result, names


def test_each_scenario_of_file_runs_its_load_on_fleet(fleet, target):
    result, names = told_as_counted(fleet, target, TWO)
    # Each scenario has its own rate and duration. A stalled machine may drop starts, but the report
    # equals what was sent.
    assert 0 < names["Buyer/buy"] <= 120 and 0 < names["Watcher/look"] <= 80
    assert result["accounting"]["balanced"] and result["totals"]["errors"] == 0
    assert [threshold["metric"] for threshold in result["thresholds"]] == ["Buyer/buy"]
    assert len(result["fleet"]["workers"]) == 2


def test_scenarios_with_users_and_rate_run_together(fleet, target):
    users = TWO.replace('rate=20, duration="4s"', 'users=3, duration="4s", pause="20ms"')
    _, names = told_as_counted(fleet, target, users)
    assert 0 < names["Buyer/buy"] <= 120 and names["Watcher/look"] >= 1


def test_request_count_of_several_scenarios_is_rejected(fleet):
    path = fleet.write("shop.py", TWO.replace("rate=20", "users=2"))
    ended = fleet.run(path, "--requests", "10")
    assert ended.returncode == 2 and "--scenario" in ended.stderr, ended.stderr


def test_probes_run_on_one_worker_at_a_time(fleet, target):
    path = fleet.write(
        "shop.py",
        """
        import os
        from squall import *

        @probe(every="50ms")
        async def depth(context):
            emit_metric(f"looked in {os.getpid()}")
            await context.client.get("/bytes/3", name="asked")
            return 7

        class Shop(VUser):
            @task
            async def go(self, client):
                self.seen = (await client.get("/health")).status_code
        """,
    )
    fleet.join("one", "two", "three")
    before = target.counts()
    ended = fleet.run(path, "--rate", "60", "--for", "3s")
    result = fleet.result(ended)
    assert ended.returncode == 0, ended.stderr
    names = requests(result)
    assert 0 < names["go"] <= 180
    # No worker left, so the probes did not move to another worker.
    assert len([name for name in names if name.startswith("looked in")]) == 1
    assert 1 <= names["depth"] <= names["probe/depth"]
    assert counted(target, before) == {"/health": names["GET /health"], "/bytes/{n}": names["probe/asked"]}

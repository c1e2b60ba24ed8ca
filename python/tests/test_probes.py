"""Probes beside the scenarios of a run."""

from __future__ import annotations

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


def test_probes_run_until_run_ends(run):
    ended = run(PROBES, "--param", "word=w", requests=30)
    # The scenario keeps its names and its count; the probes end with it.
    assert ended.metric("go")["requests"] == 30
    depth = ended.metric("depth")
    assert depth["kind"] == "custom" and depth["errors"] == 0
    assert ended.metric("probe/depth")["errors"] == 0
    assert ended.metric("probe/asked")["requests"] == ended.metric("probe/depth")["requests"] >= 1
    assert ended.metric("probe/broken")["errors"] == ended.metric("probe/broken")["requests"] >= 1
    assert "no answer" in ended.messages()
    # Probes do not count as load.
    totals = ended.result["totals"]
    assert (totals["requests"], totals["iterations"], totals["errors"]) == (30, 30, 0)
    assert ended.metric("probe/asked")["kind"] == "custom"
    assert max(second["users"] for second in ended.result["timeline"]) <= 1


def test_probe_results_decide_success_and_failure(run):
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


def test_texts_of_a_probe_that_always_change_are_few_metrics(run):
    ended = run(
        """
        looked = []

        @probe(every="5ms")
        def state():
            looked.append(1)
            return f"state {len(looked)}"

        class Shop(VUser):
            @task
            async def go(self, client):
                while len(looked) < 30:
                    await sleep(0.01)
                await client.get("/health")
        """,
        requests=1,
    )
    texts = {metric["tags"]["text"]: metric["requests"] for metric in ended.result["metrics"] if metric["name"] == "state"}
    assert len(texts) == 21 and texts["state 1"] == 1
    assert texts["(other texts)"] >= 9


def test_probe_runs_in_one_of_several_processes(run, write):
    """Only one process runs the probes, however many share the load."""
    code = PROBES.replace("looked = []", "import os\n    looked = []").replace(
        "return len(looked)", 'emit_metric(f"looked in {os.getpid()}")\n        return len(looked)'
    )
    ended = run(code, "--param", "word=w", "--processes", "3", users=3, requests=60)
    assert ended.metric("go")["requests"] == 60
    assert len([name for name in ended.names() if name.startswith("looked in")]) == 1
    assert ended.metric("depth")["errors"] == 0 and ended.metric("depth")["requests"] >= 1


def test_probes_run_during_find_max(squall, write, target, tmp_path):
    """Probes run during each run of the search, from start to end."""
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
    # Every rate fails, and the search tries a failing rate twice.
    assert ended.code == 1 and len(looks.read_text()) >= 2, ended.stdout + ended.stderr


def test_file_with_probe_only_is_rejected(squall, write, target):
    ended = squall("run", str(write("@probe()\ndef depth(): return 1")), "--target", target.url)
    assert ended.code == 2 and "this file has no scenario" in ended.stderr


def test_probe_decorator_works_without_parentheses(run):
    ended = run(
        """
        looked = []

        @probe
        def depth():
            looked.append(1)
            return 7

        class Shop(VUser):
            @task
            async def go(self, client):
                while len(looked) < 2:  # The first is written down by then, however slow the machine is.
                    await sleep(0.01)
                await client.get("/health")
        """,
        requests=3,
    )
    assert ended.metric("depth")["requests"] >= 1

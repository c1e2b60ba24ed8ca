"""Invalid scenarios are rejected before the first request: one message with file and line, exit
code 2."""

from __future__ import annotations

import pytest

CASES = {
    "syntax error": ("class Shop(:\n    pass", 2, "not valid Python"),
    "missing import": ("import no_such_module_here", 2, "needs the module 'no_such_module_here'"),
    "raises while read": ("x = 1\nx / 0", 3, "ZeroDivisionError"),
    "no scenario": ("x = 1", None, "this file has no scenario"),
    "no task": ("@scenario(users=1)\nclass Shop(VUser):\n    pass", 2, "Shop has no task"),
    "duplicate method": (
        "class Shop(VUser):\n    @task\n    async def a(self, c): pass\n    @task\n    async def a(self, c): pass",
        5,
        "'a' is already defined in line 3",
    ),
    "duplicate name": (
        "class Shop(VUser):\n    @task('x')\n    async def a(self, c): pass\n    @task('x')\n    async def b(self, c): pass",
        5,
        "'x' is already defined in line 3",
    ),
    "bad duration": (
        "@scenario(users=1, duration='5 parsecs')\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "parsecs",
    ),
    "bad rate": ("@scenario(rate=-5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "-5"),
    "bad rps": ("@scenario(rps=-5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "rps: `-5` is not a rate"),
    "unknown mode": (
        "@scenario(mode='wave')\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "mode: unknown mode `wave`\n   hint: there are constant",
    ),
    "stages and a duration": (
        "@scenario(stages='1s:5', duration=1)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "duration: both `stages` and `duration` are given\n   hint: stages say how long the run lasts: remove `duration`",
    ),
    "two models": (
        "@scenario(rate=5, users=5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "both `rate` and `users`",
    ),
    "rate and rps": ("@scenario(rate=5, rps=5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "give only one"),
    "bad threshold": (
        "@scenario(users=1, thresholds={'p99': 5})\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "threshold 'p99'",
    ),
    "Locust's weight": ("class Shop(VUser):\n    @task(3)\n    async def a(self, c): pass", 3, "write @task(weight=3)"),
    "Locust's file": ("from locust import HttpUser", 2, "write its users as squall.VUser"),
    "Locust's wait_time": (
        "class Shop(VUser):\n    wait_time = between(1, 2)\n    @task\n    async def a(self, c): pass",
        3,
        "@scenario(pause=between(1, 5))",
    ),
    "Locust's client": (
        "class Shop(VUser):\n    @task\n    def a(self, client):\n        self.client.get('/x')",
        5,
        "self.client does not exist",
    ),
    "Locust's catch_response": (
        "class Shop(VUser):\n    @task\n    def a(self, client):\n        with client.get('/x', catch_response=True) as r: pass",
        5,
        "check_<task>(self, response)",
    ),
    "bad weight": ("class Shop(VUser):\n    @task(weight=0)\n    async def a(self, c): pass", 3, "weight=0"),
    "bad every": ("class Shop(VUser):\n    @task(every=print)\n    async def a(self, c): pass", 3, "every="),
    "bad between": ("class Shop(VUser):\n    @task(every=between(5, 2))\n    async def a(self, c): pass", 3, "between(5, 2)"),
    "unknown requirement": (
        "class Shop(VUser):\n    @task(requires='brows')\n    async def a(self, c): pass\n    @task\n    async def browse(self, c): pass",
        3,
        "did you mean 'browse'?",
    ),
    "check without a task": (
        "class Shop(VUser):\n    @task\n    async def a(self, c): pass\n    def check_b(self, status_code, body): pass",
        5,
        "check_b has no task",
    ),
    "async check": (
        "class Shop(VUser):\n    @task\n    async def a(self, c): pass\n    async def check_a(self, status_code, body): pass",
        5,
        "check_a must be a plain def",
    ),
    "check with other arguments": (
        "class Shop(VUser):\n    @task\n    async def a(self, c): pass\n    def check_a(self): pass",
        5,
        "(self, status_code, body)",
    ),
    "generator task": ("class Shop(VUser):\n    @task\n    def a(self, c): yield", 3, "is a generator"),
    "on_init without its parameter": (
        "class Shop(VUser):\n    def on_init(self, region): pass\n    @task\n    async def a(self, c): pass",
        3,
        "region",
    ),
    "several unmarked scenarios": (
        "class A(VUser):\n    @task\n    async def a(self, c): pass\nclass B(VUser):\n    @task\n    async def a(self, c): pass",
        5,
        "choose one with --scenario: A, B",
    ),
    "two scenarios of one name": (
        "@scenario(name='A')\nclass X(VUser):\n    @task\n    async def a(self, c): pass\n"
        "@scenario()\nclass A(VUser):\n    @task\n    async def a(self, c): pass",
        6,
        "scenario 'A' is already defined in line 2",
    ),
    "bad stages": (
        "@scenario(rate=5, stages='soon')\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "soon",
    ),
    "a task that takes too much": ("class Shop(VUser):\n    @task\n    async def a(self, c, more): pass", 3, "'a' must take (self, client)"),
    "a task that takes too little": ("class Shop(VUser):\n    @task\n    async def a(self): pass", 3, "'a' must take (self, client)"),
    "a static task": ("class Shop(VUser):\n    @task\n    @staticmethod\n    async def a(c): pass", 3, "not a staticmethod"),
    "a property as a task": ("class Shop(VUser):\n    @task\n    @property\n    def a(self): pass", 3, "not a property"),
    "a scenario without parentheses": ("@scenario\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "with parentheses"),
    "a metric without a name": ("@metric\nasync def a(): pass", 2, "@metric needs a name"),
    "bad timeout": ("class Shop(VUser):\n    @task(timeout=-1)\n    async def a(self, c): pass", 3, "timeout=-1"),
    "bad probe": ("@probe(every=-1)\nasync def depth(): pass", 2, "every=-1"),
    "a probe with two arguments": (
        "@probe()\ndef depth(a, b): pass\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "must take no argument, or a context",
    ),
    "two probes of one name": (
        "@probe('x')\ndef a(): pass\n@probe('x')\ndef b(): pass",
        4,
        "probe 'x' is already defined in line 2",
    ),
    "two resources of one name": (
        "@resource(name='x')\ndef a(n): return {}\n@resource(name='x')\ndef b(n): return {}",
        4,
        "resource 'x' is already defined in line 2",
    ),
    "a strategy that cannot choose": (
        "class Shop(VUser):\n    step_strategy = object()\n    @task\n    async def a(self, c): pass",
        4,
        "needs a method select",
    ),
    "an every that is not a time": ("class Shop(VUser):\n    @task(every='x')\n    async def a(self, c): pass", 3, "task 'a': every: "),
    "a task's name that is none": ("class Shop(VUser):\n    @task(name=5)\n    async def a(self, c): pass", 3, "name=5: give a string"),
    "a scenario's name that is none": ("@scenario(name=5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "name=5: give a string"),
    "no users": ("@scenario(users=0)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass", 2, "users: `0` is not"),
    "a stage that is none": (
        "@scenario(rate=5, stages=[('1s', 5), 5])\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "stages: 5 is not a pair (duration, level)",
    ),
    "stages that are none": (
        "@scenario(rate=5, stages=5)\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass",
        2,
        "stages=5: give a list of (duration, level)",
    ),
    "a hook that is none": (
        "class Shop(VUser):\n    x = 1\n    on_start = 5\n    @task\n    async def a(self, c): pass",
        4,
        "on_start = 5: it must be a method",
    ),
    "a hook with other arguments": (
        "class Shop(VUser):\n    def on_stop(self, c, more): pass\n    @task\n    async def a(self, c): pass",
        3,
        "on_stop must take (self, client)",
    ),
    "two classes of one name": (
        "@scenario()\nclass Shop(VUser):\n    @task\n    async def a(self, c): pass\n"
        "@scenario()\nclass Shop(VUser):\n    @task\n    async def b(self, c): pass",
        7,
        "class Shop is already defined in line 3",
    ),
    "a pool of nothing": ("@resource(name='x', limit=0)\ndef a(n): return {}", 2, "limit=0"),
    "a pool without a name": ("@resource\ndef a(n): return {}", 2, '@resource(name="users")'),
    "a constant URL that is none": (
        "class Shop(VUser):\n    @task\n    async def a(self, c):\n        await c.get('/x')\n        await c.get('http://[')",
        6,
        "GET http://[ cannot be sent: ",
    ),
    "a constant header that is none": (
        "class Shop(VUser):\n    @task\n    def a(self, c):\n        c.post('/x', headers={'a b': 'c'})",
        5,
        "POST /x cannot be sent: ",
    ),
    "a plain step under a strategy": (
        "class Shop(VUser):\n    step_strategy = ParallelReadyStrategy()\n    @task\n    def a(self, c): pass",
        4,
        "must be async def",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_scenario_is_rejected_with_line(squall, write, target, case):
    code, line, words = CASES[case]
    path = write(code)
    before = sum(target.counts().values())
    ended = squall("run", str(path), "--target", target.url)
    assert ended.code == 2, ended.stdout + ended.stderr
    place = f"shop.py:{line}: " if line else "shop.py: "
    assert place in ended.stderr, ended.stderr
    assert words in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
    assert sum(target.counts().values()) == before


SEVERAL = """
@scenario(rate=5, duration="1s")
class A(VUser):
    @task
    async def a(self, client):
        await client.get("/health")

@scenario(users=2, duration="1s")
class B(VUser):
    @task
    async def a(self, client):
        await client.get("/health")
"""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--find-max", "p99<1s"], "choose it with --scenario"),
        (["--find-max", "p99<1s", "--scenario", "A", "--processes", "2"], "--processes"),
        (["--plan", "-", "--processes", "2"], "--plan"),
    ],
)
def test_conflicting_flags_are_rejected(squall, write, target, flags, words):
    path = write(SEVERAL)
    before = sum(target.counts().values())
    given = ["run", *([] if "--plan" in flags else [str(path)]), "--target", target.url, *flags]
    ended = squall(*given)
    assert ended.code == 2 and words in ended.stderr and len(ended.stderr.strip().splitlines()) <= 6, ended.stderr
    assert sum(target.counts().values()) == before


def test_every_mistake_is_reported_at_its_decorator(squall, write, target):
    path = write(
        """
        @scenario(users=0, duration="soon")
        class Shop(VUser):
            @task(every="never")
            async def a(self, client):
                await client.get("/health")
        """
    )
    ended = squall("run", str(path), "--target", target.url, "--threshold", "p99")
    assert ended.code == 2
    places = ["--threshold: ", "shop.py:3: users: ", "shop.py:3: duration: ", "shop.py:5: task 'a': every: "]
    assert [ended.stderr.count(place) for place in places] == [1, 1, 1, 1], ended.stderr
    assert ended.stderr.endswith("4 problems found; nothing was sent\n"), ended.stderr


def test_mistake_in_inherited_scenario_names_file_of_base(squall, write, target):
    write("from squall import *\n@scenario(duration='soon')\nclass Base(VUser):\n    pass\n", "slow_base.py", head=False)
    path = write("from slow_base import Base\nclass Shop(Base):\n    @task\n    async def a(self, client):\n        await client.get('/health')")
    ended = squall("run", str(path), "--target", target.url)
    assert ended.code == 2 and "slow_base.py:2: duration: `soon` is not a duration" in ended.stderr, ended.stderr


def test_missing_scenario_file_is_rejected(squall):
    ended = squall("run", "nowhere.py")
    assert ended.code == 2
    assert "nowhere.py" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_invalid_flag_value_error_names_flag(squall, write, target):
    path = write("class Shop(VUser):\n    @task\n    async def a(self, c): pass")
    ended = squall("run", str(path), "--target", target.url, "--for", "soon")
    assert ended.code == 2
    assert "--for: " in ended.stderr


def test_scenario_flag_chooses_class(squall, write, target):
    code = CASES["several unmarked scenarios"][0]
    ended = squall("run", str(write(code)), "--target", target.url, "--scenario", "B", "--check")
    assert ended.code == 0
    assert ended.stdout.startswith("B: ")


def test_parameters_without_on_init_are_rejected(squall, write, target):
    path = write("class Shop(VUser):\n    @task\n    async def a(self, c): pass")
    ended = squall("run", str(path), "--target", target.url, "--param", "x=1")
    assert ended.code == 2
    assert "no on_init" in ended.stderr


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"# coding: latin-1\n# \xe4\n"])
def test_scenario_files_in_any_source_encoding_load(squall, target, tmp_path, head):
    code = b"from squall import *\nclass Shop(VUser):\n    @task\n    async def go(self, client):\n        await client.get('/health')\n"
    (tmp_path / "shop.py").write_bytes(head + code)
    for flags in [("--target", target.url), ()]:
        ended = squall("run", "shop.py", *flags, "--users", "1", "--requests", "2")
        assert "Traceback" not in ended.stderr and ended.code == (0 if flags else 2), ended.stderr


def test_self_client_assigned_by_scenario_is_accepted(squall, write, target):
    path = write(
        """
        class Shop(VUser):
            def on_start(self, client):
                self.client = client
                wait_time = 1

            @task
            def a(self, client):
                self.client.get("/health")
        """
    )
    ended = squall("run", str(path), "--target", target.url, "--users", "1", "--requests", "2")
    assert ended.code == 0, ended.stderr


@pytest.mark.parametrize("init", [None, "WHO = 'the package'\n"])
def test_relative_imports_resolve_in_scenario_folder(squall, target, tmp_path, init):
    folder = tmp_path / "load-tests"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "paths.py").write_text("from ..base import HEALTH\n")
    (folder / "base.py").write_text("HEALTH = '/health'\n")
    if init is not None:
        (folder / "__init__.py").write_text(init)
    code = "from squall import *\nfrom .deep.paths import HEALTH\n" + ("" if init is None else "from . import WHO\n")
    code += "class Shop(VUser):\n    @task\n    async def go(self, client):\n        assert (await client.get(HEALTH)).ok\n"
    (folder / "shop.py").write_text(code)
    ended = squall("run", str(folder / "shop.py"), "--target", target.url, "--users", "1", "--requests", "2", "--threshold", "errors<1")
    assert ended.code == 0, ended.stdout + ended.stderr

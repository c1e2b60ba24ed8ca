"""The argument `thresholds` of @scenario: what it accepts, and how the run reads it."""

import pytest

from squall._errors import ScenarioError
from squall._thresholds import read_thresholds


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"p99_ms": 500, "error_rate": 1.5}, ("p99<=500ms", "error_rate<=1.5%")),
        ({"p99": "500ms", "error_rate": "1%", "rate": "450", "errors": "3"}, ("p99<=500ms", "error_rate<=1%", "rate>=450", "errors<=3")),
        ({"browse:p95[10s]": "300ms !abort", "rate[5s]": "90/m"}, ("browse:p95[10s]<=300ms !abort", "rate[5s]>=90/m")),
        ({"p99<500ms": True, "error_rate<1%": None}, ("p99<500ms", "error_rate<1%")),
        ({"p99<": "500ms", "rate >= ": 450}, ("p99<500ms", "rate >= 450")),
        (["p99<500ms", "error_rate<1%"], ("p99<500ms", "error_rate<1%")),
        ({"p99<500ms", "error_rate<1%"}, ("error_rate<1%", "p99<500ms")),
        ("p99<500ms", ("p99<500ms",)),
        (None, ()),
    ],
)
def test_thresholds_are_written_as_on_the_command_line(given, texts):
    declared = read_thresholds(given, "shop.py", 3)
    assert (declared.texts, declared.notes) == (texts, ())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"p99": 5}, "threshold 'p99' is unknown"),
        ({"p99_ms": None}, "None is not a number"),
        ({"error_rate": True}, "True is not a number"),
        ({"p99<500ms": 5}, "5 does not belong to it: write it in a list"),
        ({"p99<": None}, "give a limit such as '500ms'"),
        ({5: 5}, "threshold 5: give a string"),
        (5, "give a list such as"),
    ],
)
def test_wrong_thresholds_say_what_to_write(given, message):
    with pytest.raises(ScenarioError, match=message):
        read_thresholds(given, "shop.py", 3)


def test_number_below_one_percent_is_explained(run):
    code = """
        @scenario(users=1, thresholds={"error_rate": 0.01, "a:error_rate": "1%"})
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/health")
        """
    ended = run(code)
    assert [one["threshold"] for one in ended.result["thresholds"]] == ["error_rate<=0.01%", "a:error_rate<=1%"]
    note = "shop.py:3: thresholds: {'error_rate': 0.01} is read as 0.01 %; write '0.01%' for this, or '1%' for the fraction 0.01"
    assert [line for line in ended.stderr.splitlines() if line.startswith("note: ")] == [f"note: {note}"]
    assert read_thresholds({"error_rate": 0, "x:error_rate": 1}, "shop.py", 3).notes == ()


def test_shorter_run_shortens_the_ramp_and_says_so(run):
    code = """
        @scenario(rate=40, duration="20s", ramp_up="5s")
        class Shop(VUser):
            @task
            async def a(self, client):
                await client.get("/health")
        """
    ended = run(code, "--for", "2s", requests=None, users=None)
    assert "note: ramp_up is 500ms instead of 5s: the run lasts 2s instead of 20s\n" in ended.stderr
    assert ended.result["totals"]["requests"] == 70

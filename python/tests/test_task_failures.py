"""Exceptions in tasks: what they count against, and what the report says about them."""

from __future__ import annotations

import json

import pytest
from function_kinds import BOTH

from squall._errors import describe


@BOTH
def test_exception_in_task_fails_only_its_iteration(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            count = 0

            @task
            {fn} browse(self, client):
                {wait}client.get("/health")
                self.count += 1
                if self.count == 3:
                    raise ValueError("third time")
        """,
        requests=6,
    )
    assert ended.metric("GET /health")["requests"] == 6
    assert ended.metric("GET /health")["errors"] == 1
    assert "ValueError: third time" in ended.messages()
    assert "shop.py:11 in browse" in ended.messages()


@BOTH
def test_exception_before_first_request_is_run_error(run, target, fn, wait):
    """A run with an error threshold must not pass because it sent nothing."""
    before = target.counts().get("/health", 0)
    ended = run(
        f"""
        class Shop(VUser):
            @task(weight=1)
            {fn} broken(self, client):
                raise ValueError("no such thing")

            @task(weight=1, timeout=0.05)
            {fn} hung(self, client):
                {wait}sleep(60)

            @task(weight=2)
            {fn} good(self, client):
                {wait}client.get("/health")
        """,
        "--threshold",
        "error_rate<1%",
        requests=8,
    )
    totals = ended.result["totals"]
    assert (totals["requests"], totals["errors"]) == (8, 4), totals
    assert ended.outcomes("broken (failed)") == {"ValueError": 2}
    assert ended.outcomes("hung (failed)") == {"TASK_TIMEOUT": 2}
    accounting = ended.result["accounting"]
    assert accounting["sent"] == target.counts()["/health"] - before == 4
    assert ended.code == 1


@BOTH
def test_exception_after_pause_is_counted_once(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} browse(self, client):
                {wait}client.get("/health")
                {wait}sleep(0.01)
                raise ValueError("too late to blame the answer")
        """,
        requests=3,
    )
    assert ended.metric("GET /health")["errors"] == 0
    assert (ended.result["totals"]["requests"], ended.result["totals"]["errors"]) == (6, 3)


def test_failures_with_different_messages_are_all_counted(run):
    ended = run(
        """
        class Shop(VUser):
            number = 0
            @task
            async def go(self, client):
                await client.get("/health")
                Shop.number += 1
                raise ValueError(f"distinct {Shop.number}")
        """,
        requests=1000,
    )
    errors = [error for error in ended.result["errors"] if error["code"] == "ValueError"]
    assert len(errors) < 1000 and any(error["message"] == "(other messages)" for error in errors)
    assert sum(error["count"] for error in errors if error["metric"] == errors[0]["metric"]) == 1000


def test_standard_library_frames_have_import_paths():
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert "at json/decoder.py:" in describe(raised.value)


def test_exception_without_text_names_its_line():
    class Odd(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    for error, words in ((Odd(), "Odd: (no text: its __str__ raised KeyError)"), (ValueError("\ud800 é"), "ValueError: ? é")):
        with pytest.raises(type(error)) as raised:
            raise error
        text = describe(raised.value)
        assert text.startswith(words) and "test_task_failures.py:" in text


FAILED_SERIES = {
    "the last request": 'await client.get("/health")',
    "no request": "pass",
    "no request after a pause": 'await client.get("/health"); await sleep(0.01)',
    "no request after a resource": 'await client.get("/health"); await self.resources.acquire("things")',
    "the last of a batch": 'await client.batch(["/health", "/echo"])',
    "the one that failed": 'await client.get("/fail", params={"rate": 1})',
    "the one before the code": 'await sleep(0.01); await client.get("/health"); self.sum = sum(range(1000))',
}


@pytest.mark.parametrize("series", FAILED_SERIES)
def test_failure_counts_against_same_series_in_every_mode(run, series):
    seen = []
    for fn, mode in (("async def", "stepped"), ("def", "stepped"), ("async def", "asyncio")):
        code = f"""
        @resource(name="things")
        def thing(n): return {{}}

        class Shop(VUser):
            @task
            {fn} fails(self, client):
                {FAILED_SERIES[series] if fn == "async def" else FAILED_SERIES[series].replace("await ", "")}
                raise ValueError("it fails")
        """
        ended = run(code, "--mode", mode, requests=3)
        seen.append({m["name"]: (m["requests"], m["errors"]) for m in ended.result["metrics"] if m["name"] != "things"})
        seen[-1]["all"] = (ended.result["totals"]["requests"], ended.result["totals"]["errors"])
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["fails"] == (3, 3) and seen[0]["all"][1] == 3
    assert ("fails (failed)" in seen[0]) == series.startswith("no request")


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_failed_request_message_names_task_and_line(run, mode):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def reach(self, client):
                await client.get("http://127.0.0.1:1/nobody")
        """,
        "--mode",
        mode,
        requests=2,
    )
    errors = [error for error in ended.result["errors"] if "in reach" in error["message"]]
    assert len(errors) == 1 and errors[0]["count"] == 2 and "shop.py:6" in errors[0]["message"], ended.result["errors"]
    assert ended.metric("GET /nobody")["errors"] == ended.result["totals"]["errors"] == 2

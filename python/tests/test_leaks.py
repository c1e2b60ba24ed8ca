"""References and memory: what is awaited a million times must leave nothing behind."""

from __future__ import annotations

import gc
import sys

import pytest

from squall import _squall


def test_an_operation_that_is_dropped_takes_everything_along(recwarn):
    seconds = 1234.5
    before = sys.getrefcount(seconds)
    for _ in range(1000):
        _squall.sleep(seconds)
    gc.collect()
    assert sys.getrefcount(seconds) == before
    assert any("never awaited" in str(warning.message) for warning in recwarn)


SCENARIO = """
    import gc, os, sys

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    total = 0
    marks = {{}}

    class Shop(VUser):
        @task
        {fn} many(self, client):
            global total
            for _ in range({awaits}):
                {wait}sleep(0)
            answer = {wait}client.get("/health", headers={{"X": "1"}})
            answer.json()
            total += 1
            if total in ({early}, {late}):
                gc.collect()
                marks[total] = (resident(), len(gc.get_objects()))
            if total == {late}:
                grown = marks[{late}][0] - marks[{early}][0]
                objects = marks[{late}][1] - marks[{early}][1]
                assert grown < 4 << 20, f"{{grown}} bytes more"
                assert objects < 200, f"{{objects}} objects more"
"""


@pytest.mark.parametrize(("fn", "wait"), [("async def", "await "), ("def", "")], ids=["async", "plain"])
def test_a_million_awaits_leave_memory_flat(run, fn, wait):
    awaits, early, late = 1000, 50, 1050
    ended = run(SCENARIO.format(fn=fn, wait=wait, awaits=awaits, early=early, late=late), requests=late, users=4, timeout=300)
    assert ended.metric("many")["requests"] == late
    assert ended.metric("many")["errors"] == 0, ended.messages()


def test_failures_leave_nothing_behind(run):
    ended = run(
        """
        import gc

        class Marker: pass

        class Shop(VUser):
            @task
            async def fail(self, client):
                marker = Marker()
                if (self.random.random() < 0.5):
                    await client.get("/health", headers={"a b": "refused"})
                await client.get("http://127.0.0.1:1/")

            async def on_stop(self, client):
                gc.collect()
                left = sum(type(thing) is Marker for thing in gc.get_objects())
                assert left == 0, f"{left} left"
        """,
        requests=200,
    )
    assert "on_stop" not in ended.names(), ended.messages()

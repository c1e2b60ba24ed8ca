"""References and memory: awaits and requests must not leak."""

from __future__ import annotations

import gc
import sys

import pytest

from squall import _squall


def test_dropped_operation_frees_its_references(recwarn):
    seconds = 1234.5
    before = sys.getrefcount(seconds)
    for _ in range(1000):
        _squall.sleep(seconds)
    gc.collect()
    assert sys.getrefcount(seconds) == before
    assert any("not awaited" in str(warning.message) for warning in recwarn)


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
                {wait}{what}
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


WAYS = {
    "stepped": ("async def", "await ", "stepped"),
    "asyncio": ("async def", "await ", "asyncio"),
    "plain": ("def", "", "stepped"),
}


@pytest.mark.parametrize("way", WAYS)
def test_million_awaits_do_not_grow_memory(run, way):
    fn, wait, mode = WAYS[way]
    # On asyncio `sleep` is asyncio's; an empty batch is an await of Squall.
    what = "client.batch(())" if way == "asyncio" else "sleep(0)"
    awaits, early, late = 1000, 50, 1050
    code = SCENARIO.format(fn=fn, wait=wait, what=what, awaits=awaits, early=early, late=late)
    ended = run(code, "--mode", mode, requests=late, users=4, timeout=600)
    assert ended.metric("many")["requests"] == late
    assert ended.metric("many")["errors"] == 0, ended.messages()


@pytest.mark.parametrize("way", WAYS)
def test_requests_leave_no_references(run, way):
    """After a call, only the user refers to the objects that it passed to the client or got from
    it."""
    fn, wait, mode = WAYS[way]
    ended = run(
        f"""
        import gc, sys, weakref

        class Thing(dict): pass

        class Shop(VUser):
            @task
            {fn} go(self, client):
                headers, body, params = Thing(), Thing(a=1), Thing(n=1)
                name = "".join(["na", "me", str(self.id)])
                things = (headers, body, params, name)
                before = [sys.getrefcount(thing) for thing in things]
                for _ in range(50):
                    answer = {wait}client.post("/echo", headers=headers, json=body, params=params, name=name)
                    assert answer.json() is answer.json()
                    {wait}client.batch([{{"path": "/health", "headers": headers, "params": params}}] * 3)
                    {wait}sleep(0)
                after = [sys.getrefcount(thing) for thing in things]
                assert [b - a for a, b in zip(before, after)][:3] == [0, 0, 0], (before, after)
                assert after[3] - before[3] <= 1, "the series may keep the name once"
                last = weakref.ref(headers)
                del headers, things, answer
                gc.collect()
                assert last() is None
        """,
        "--mode",
        mode,
        requests=4,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_failed_iterations_leave_no_references(run):
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


def test_failed_request_held_by_variable_is_freed(run):
    ended = run(
        """
        import asyncio, gc, weakref

        failed = weakref.WeakSet()

        class Shop(VUser):
            @task
            async def go(self, client):
                asked = client.get("http://127.0.0.1:1/", name="refused")
                try:
                    await asked
                except RequestError as error:
                    failed.add(error)
                    assert asked.exception() is error
                asked = asyncio.create_task(client.get("http://127.0.0.1:1/", name="refused"))
                try:
                    await asked
                except RequestError as error:
                    failed.add(error)
                del asked
                gc.collect()
                assert len(failed) <= 1, len(failed)
        """,
        "--mode",
        "asyncio",
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()


def test_requests_that_fail_concurrently_leave_no_references(run):
    """An exception refers to its frames, and these refer to the requests that raised it."""
    ended = run(
        """
        import asyncio, gc

        class Marker: pass

        class Shop(VUser):
            @task(timeout=60)
            async def go(self, client):
                await self.refused(client)
                await self.cancelled(client)
                gc.collect()
                left = sum(isinstance(one, Marker) for one in gc.get_objects())
                assert left <= 4, f"{left} are left: more than the last ones"

            async def refused(self, client):
                marker, asked = [Marker()], [client.get("http://127.0.0.1:1/", name="refused") for _ in range(3)]
                try:
                    await asyncio.gather(*asked)
                except RequestError as error:
                    assert "refused" in str(error)
                for one in asked:
                    assert one.exception().code == one.exception().code, "as often as one likes"

            async def cancelled(self, client):
                marker, asked = [Marker()], [client.get("/delay/1000", name="late") for _ in range(3)]
                try:
                    async with asyncio.timeout(0.02):
                        await asyncio.gather(*asked)
                except TimeoutError:
                    pass
        """,
        requests=20,
    )
    assert ended.metric("go")["errors"] == 0, ended.messages()

"""Exception policies, events that cannot be read, middleware, dead letters."""

from __future__ import annotations

import json

import pytest
from streams_kit import Fleet, eventually

#: A processor that fails only at the order with number 13.
FRAGILE = """
@app.processor(orders, {options})
async def printer(events):
    async for order in events.records():
        log("try", order.number)
        if order.number == 13 and not os.path.exists("mended"):
            raise ValueError("unlucky")
        log("done", order.number)
"""


def fragile(fleet: Fleet, options: str = "", partitions: int = 4) -> None:
    fleet.write(FRAGILE.format(options=options), partitions=partitions)


def done(fleet: Fleet) -> set[int]:
    return {int(line[1]) for line in fleet.log("done")}


def test_halt_policy_ends_only_one_worker(fleet: Fleet) -> None:
    fragile(fleet)
    fleet.send(40)
    worker = fleet.start()
    assert worker.wait(120) == 1
    said = fleet.said(worker)
    assert "ValueError: unlucky (shop.py:" in said and "in printer" in said
    assert "squall stream quarantine shop.orders.printer --clear" in said
    second = fleet.start()
    stuck = json.loads(fleet.cli("lag", "shop.orders.printer", "--json"))
    stuck = [one for one in stuck if one["quarantined"]]
    assert len(stuck) == 1
    waiting = {13 + 97 * n for n in range(9)}
    eventually("the other partitions", lambda: len(done(fleet)) >= 40 - stuck[0]["length"], second)
    assert not done(fleet) & waiting
    assert len(fleet.log("try")) < 45, "no worker retried the bad event"
    (fleet.folder / "mended").touch()
    fleet.cli("quarantine", "shop.orders.printer", "--clear", str(stuck[0]["partition"]))
    eventually("everything", lambda: done(fleet) == set(range(40)), second)
    assert fleet.stop(second) == 0


def test_quarantine_policy_continues_other_partitions_and_logs_traceback(fleet: Fleet) -> None:
    fragile(fleet, "exception_policy=ExceptionPolicy.QUARANTINE")
    worker = fleet.start()
    fleet.send(40)
    eventually("the failure", lambda: "xids" in fleet.cli("quarantine", "shop.orders.printer"), worker)
    shown = fleet.cli("quarantine", "shop.orders.printer")
    assert "ValueError: unlucky" in shown
    number = shown.split()[0]
    assert "Traceback" in fleet.said(worker)
    fleet.cli("quarantine", "shop.orders.printer", "--clear", number, "--skip")
    eventually("the rest", lambda: done(fleet) == set(range(40)) - {13}, worker)
    assert fleet.stop(worker) == 0
    assert fleet.pending() == 0


def test_ignore_policy_drops_event_and_continues(fleet: Fleet) -> None:
    fragile(fleet, "exception_policy='ignore'")
    worker = fleet.start()
    fleet.send(40)
    eventually("the rest", lambda: done(fleet) == set(range(40)) - {13}, worker)
    assert fleet.stop(worker) == 0
    assert fleet.pending() == 0


def test_retries_run_before_policy(fleet: Fleet) -> None:
    fragile(fleet, "exception_policy='ignore', retries=2, retry_backoff=0.01")
    worker = fleet.start()
    fleet.send(40)
    eventually("the rest", lambda: done(fleet) == set(range(40)) - {13}, worker)
    assert fleet.stop(worker) == 0
    assert len([line for line in fleet.log("try") if line[1] == "13"]) == 3


@pytest.mark.parametrize("reading", ["events.records()", "events.take(10, within=0.05).records()"])
def test_unreadable_event_follows_policy_after_earlier_events(fleet: Fleet, reading: str) -> None:
    fleet.write(
        f"""
        @app.processor(orders, exception_policy="quarantine")
        async def printer(events):
            async for item in {reading}:
                for order in item if isinstance(item, list) else [item]:
                    log("done", order.number)
        """,
        partitions=1,
    )
    key = "squall:__strm:shop.orders.{0}"
    fleet.cli("send", "shop.orders", '{"order_id": 1, "number": 0}', "--partitions", "1")
    bad = ["not json", '{"number": 1}', '{"order_id": "x"}', "[1]", "\x1f\\x8bnot gzip"]
    for text in bad:
        fleet.redis("xadd", key, "*", "data", text)
        fleet.redis("xadd", key, "*", "data", '{"order_id": 1, "number": 7}')
    fleet.redis("xadd", key, "*", "other", "field")
    fleet.cli("send", "shop.orders", '{"order_id": 1, "number": 8}')
    worker = fleet.start()
    good = 1
    for text in [*bad, None]:
        reason = eventually("a mark", lambda: fleet.redis("get", "squall:__quar:shop.orders.printer.{0}"), worker)
        error = json.loads(reason)["error"]
        assert any(word in error for word in ("JSON", "needs a field", "is not", "dict of fields", "no field `data`", "decompress", "invalid literal")), error
        assert len(fleet.log("done")) == good, f"before {text!r}: {error}"
        good += 1
        fleet.cli("quarantine", "shop.orders.printer", "--clear-all", "--skip")
        eventually("it to go on", lambda good=good: len(fleet.log("done")) == good, worker)
    assert fleet.stop(worker) == 0
    assert fleet.pending() == 0


def test_middleware_sees_skips_and_gets_failures_of_events(fleet: Fleet) -> None:
    fleet.write(
        """
        import json

        class Even(Middleware):
            async def handler(self, parent, **kwargs):
                assert kwargs["events"].stream is orders
                async for event in parent:
                    if json.loads(event.data[b"data"])["number"] % 2 == 0:
                        yield event

        class Shout(Middleware):
            async def handler(self, parent, **kwargs):
                async for event in parent:
                    record = json.loads(event.data[b"data"])
                    event.data = {b"data": json.dumps({**record, "number": record["number"] + 1000}).encode()}
                    try:
                        yield event
                    except GeneratorExit:
                        await asyncio.sleep(0)
                        log("failed", record["number"])
                        raise
                    log("after", record["number"])

        @app.processor(orders, middleware=[Even(), Shout()], exception_policy="ignore")
        async def printer(events):
            async for order in events.records():
                if order.number == 1012:
                    raise ValueError("unlucky")
                log("done", order.number)
        """,
        partitions=2,
    )
    worker = fleet.start()
    fleet.send(40)
    eventually("everything", lambda: len(done(fleet)) == 19 and len(fleet.log("after")) == 19, worker)
    assert done(fleet) == {1000 + number for number in range(0, 40, 2)} - {1012}
    assert fleet.log("failed") == [["failed", "12"]]
    assert fleet.stop(worker) == 0
    assert fleet.pending() == 0, "what was left out counts as processed"


def test_dead_letter_middleware_replaces_policy(fleet: Fleet) -> None:
    fragile(fleet, "middleware=[DeadLetterMiddleware(orders)]")
    worker = fleet.start()
    fleet.send(40)
    eventually("the rest", lambda: done(fleet) == set(range(40)) - {13}, worker)
    letter = json.loads(fleet.cli("tail", "shop.dead.orders", "--from-start", "--count", "1"))["record"]
    assert json.loads(letter["data"])["number"] == 13 and "unlucky" in letter["error"]
    assert fleet.stop(worker) == 0
    assert fleet.pending() == 0


def test_processor_that_takes_no_event_is_not_called_in_tight_loop(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders, exception_policy="quarantine")
        async def printer(events):
            log("called")
        """,
        partitions=1,
    )
    worker = fleet.start()
    fleet.send(5)
    reason = eventually("a mark", lambda: fleet.redis("get", "squall:__quar:shop.orders.printer.{0}"), worker)
    assert "returned without asking for an event" in reason
    assert len(fleet.log("called")) < 5
    assert fleet.stop(worker) == 0


def test_batch_wait_beyond_grace_period_is_rejected(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders, grace_period=2)
        async def printer(events):
            async for batch in events.take(5, within=3):
                pass
        """
    )
    worker = fleet.start()
    fleet.send(1)
    assert worker.wait(120) == 1
    assert "longer than grace_period (2.0 s)" in fleet.said(worker)

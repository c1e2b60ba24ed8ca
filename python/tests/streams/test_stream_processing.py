"""Python processors on the streams engine: order, at-least-once delivery, hand-over, signals."""

from __future__ import annotations

import signal

import pytest
from streams_kit import Fleet, eventually

PRINTER = """
@app.processor(orders)
async def printer(events):
    async for event in events:
        seen(events, event)
"""

BATCHES = """
@app.processor(orders)
async def printer(events):
    async for batch in events.take(7, within=0.05):
        assert 1 <= len(batch) <= 7
        for event in batch:
            seen(events, event)
"""

SLOW = PRINTER + "        await asyncio.sleep(0.001)\n"
SLOW_BATCHES = """
@app.processor(orders)
async def printer(events):
    async for batch in events.take(5, within=0.05):
        for event in batch:
            seen(events, event)
        await asyncio.sleep(0.005)
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("code", [PRINTER, BATCHES], ids=["one by one", "batches"])
def test_every_event_is_processed_once_in_order(fleet: Fleet, code: str, workers: int) -> None:
    fleet.write(code)
    running = [fleet.start() for _ in range(workers)]
    fleet.send(300)
    eventually("half", lambda: len(fleet.seen()) == 300, running[0])
    fleet.send(300, start=300)
    eventually("all", lambda: len(fleet.seen()) == 600, running[0])
    assert [fleet.stop(worker) for worker in running] == [0] * workers
    fleet.check(exactly_once=True)
    assert fleet.pending() == 0
    if workers == 2:
        assert len({line[4] for line in fleet.log("seen")}) == 2, "both had partitions"


def test_joining_and_leaving_workers_repeat_no_event(fleet: Fleet) -> None:
    fleet.write(PRINTER, partitions=8)
    first = fleet.start()
    fleet.send(200)
    eventually("the first events", lambda: len(fleet.seen()) == 200, first)
    second = fleet.start()
    joined = "squall:__held:{shop.orders.printer}"
    eventually("a share for each", lambda: len(set(line.split()[-1] for line in fleet.redis("hvals", joined).split("\n") if " " in line)) == 2)
    fleet.send(200, start=200)
    assert fleet.stop(first) == 0
    fleet.send(200, start=400)
    eventually("all", lambda: len(fleet.seen()) == 600, second)
    assert fleet.stop(second) == 0
    fleet.check(exactly_once=True)


def test_killed_worker_loses_no_event(fleet: Fleet) -> None:
    fleet.write(SLOW, lease=1, partitions=8)
    first, second = fleet.start(), fleet.start()
    fleet.send(1500)
    eventually("both at work", lambda: len({line[4] for line in fleet.log("seen")}) == 2 and len(fleet.seen()) > 150)
    first.kill()
    fleet.send(100, start=1500)
    eventually("all", lambda: len(fleet.seen()) == 1600, second)
    assert fleet.stop(second) == 0
    fleet.check(exactly_once=False)
    assert fleet.pending() == 0


@pytest.mark.parametrize(("code", "in_hand"), [(SLOW, 1), (SLOW_BATCHES, 5)], ids=["one by one", "batches"])
def test_worker_paused_past_its_lease_is_replaced_and_rejoins(fleet: Fleet, code: str, in_hand: int) -> None:
    fleet.write(code, lease=1, partitions=8)
    first = fleet.start()
    fleet.send(800)
    eventually("work in hand", lambda: len(fleet.seen()) > 20, first)
    first.send_signal(signal.SIGSTOP)
    second = fleet.start()
    fleet.send(400, start=800)
    eventually("everything done by the other", lambda: len(fleet.seen()) == 1200, second)
    assert fleet.workers_of(after=0) == {str(first.pid), str(second.pid)}
    newest = max(int(line[3]) for line in fleet.log("seen"))
    # The other worker has processed the events that this one had fetched, so this one must drop
    # them and get partitions again.
    first.send_signal(signal.SIGCONT)
    sent = 1200

    def works_again() -> bool:
        nonlocal sent
        fleet.send(97, start=sent)
        sent += 97
        return str(first.pid) in fleet.workers_of(after=newest)

    eventually("it works again", works_again, first)
    eventually("all", lambda: len(fleet.seen()) == sent, first)
    assert [fleet.stop(first), fleet.stop(second)] == [0, 0]
    fleet.check(exactly_once=False, in_hand=in_hand)
    assert fleet.pending() == 0


def test_sigterm_finishes_current_event(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders)
        async def printer(events):
            async for event in events:
                log("begun")
                while not os.path.exists("go"):
                    await asyncio.sleep(0.01)
                seen(events, event)
        """,
        partitions=1,
    )
    worker = fleet.start()
    fleet.send(3)
    eventually("an iteration", lambda: fleet.log("begun"), worker)
    worker.send_signal(signal.SIGTERM)
    eventually("the signal", lambda: "send the signal again" in fleet.said(worker), worker)
    (fleet.folder / "go").touch()
    assert worker.wait(120) == 0
    assert len(fleet.log("seen")) == 1, "the one in hand, and no other"
    assert fleet.pending() == 2, "it was acknowledged; what was fetched ahead is left to the next owner"


def test_second_signal_ends_worker_at_once(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders, grace_period=600)
        async def printer(events):
            async for event in events:
                log("begun")
                await asyncio.Event().wait()
        """
    )
    worker = fleet.start()
    fleet.send(1)
    eventually("an iteration", lambda: fleet.log("begun"), worker)
    worker.send_signal(signal.SIGINT)
    eventually("the signal", lambda: "send the signal again" in fleet.said(worker), worker)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(120) == 130


def test_event_beyond_grace_period_is_cancelled_and_repeated(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders, grace_period=0.2)
        async def printer(events):
            async for event in events:
                try:
                    log("begun")
                    await asyncio.Event().wait()
                finally:
                    log("cancelled")
        """
    )
    worker = fleet.start()
    fleet.send(1)
    eventually("an iteration", lambda: fleet.log("begun"), worker)
    assert fleet.stop(worker) == 0
    assert fleet.log("cancelled")
    assert fleet.pending() == 1


def test_blocked_event_loop_keeps_lease(fleet: Fleet) -> None:
    fleet.write(
        """
        import time
        @app.processor(orders)
        async def printer(events):
            async for event in events:
                log("blocking")
                while not os.path.exists("go"):
                    time.sleep(0.01)
                seen(events, event)
        """,
        partitions=1,
    )
    worker = fleet.start()
    fleet.send(40)
    eventually("a blocked loop", lambda: fleet.log("blocking"), worker)
    # The engine renews the worker's leases while Python blocks.
    lock, kept = "squall:__lock:shop.orders.printer.{0}", set[str]()
    eventually("five renewals", lambda: kept.add(fleet.redis("hget", lock, "until")) or len(kept) > 5, worker)
    (fleet.folder / "go").touch()
    eventually("all", lambda: len(fleet.seen()) == 40, worker)
    assert fleet.stop(worker) == 0
    fleet.check(exactly_once=True)


def test_two_processors_of_stream_each_get_all_events(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders)
        async def printer(events):
            async for order in events.records():
                log("printer", order.number)

        @app.processor(orders, name="other")
        async def second(events):
            async for order in events.records():
                log("other", order.number)
        """
    )
    worker = fleet.start()
    fleet.send(50)
    for name in ("printer", "other"):
        eventually(name, lambda name=name: len(fleet.log(name)) == 50, worker)
    assert fleet.stop(worker) == 0
    fleet.redis("flushall")
    (fleet.folder / "log").unlink()
    only = fleet.start("--processors", "other")
    fleet.send(50)
    eventually("the chosen one", lambda: len(fleet.log("other")) == 50, only)
    assert fleet.stop(only) == 0
    assert not fleet.log("printer")


def test_busy_partition_does_not_starve_others(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.processor(orders)
        async def printer(events):
            async for order in events.records():
                log(events.partition.number)
        """,
        partitions=2,
    )
    fleet.cli("send", "shop.orders", '{"order_id": 0, "number": 0}', "--partition-by", "order_id", "--partitions", "2")
    other = next(key for key in range(50) if _partition(fleet, key) != _partition(fleet, 0))
    lines = [f'{{"order_id":0,"number":{n}}}' for n in range(3000)] + [f'{{"order_id":{other},"number":0}}']
    (fleet.folder / "orders.jsonl").write_text("\n".join(lines))
    fleet.cli("sendmany", "shop.orders", "orders.jsonl", "--partition-by", "order_id")
    worker = fleet.start()
    eventually("all", lambda: len(fleet.log()) >= 3002, worker)
    assert fleet.stop(worker) == 0
    order = [line[0] for line in fleet.log()]
    assert order.index(_partition(fleet, other)) < 2900


def _partition(fleet: Fleet, key: int) -> str:
    answer = fleet.cli("send", "shop.probe", f'{{"order_id": {key}}}', "--partition-by", "order_id", "--partitions", "2")
    return answer.split("{")[1][0]


def test_runnel_example_runs(fleet: Fleet) -> None:
    # The example of runnel's documentation with another package name.
    fleet.write(
        """
        from squall.streams import App, Record


        app = App(name="myapp", redis_url="redis://127.0.0.1")


        class Order(Record):
            order_id: int
            amount: int


        orders = app.stream("orders", record=Order, partition_by="order_id")


        @app.processor(orders)
        async def printer(events):
            async for order in events.records():
                print(order.amount, flush=True)
        """,
        head=False,
    )
    worker = fleet.start("--namespace", "")
    fleet.cli("send", "myapp.orders", '{"order_id": 1, "amount": 99}', "--partition-by", "order_id", "--namespace", "")
    eventually("the amount", lambda: (fleet.folder / "out.0").read_text() == "99\n", worker)
    assert fleet.stop(worker) == 0
    keys = set(fleet.redis("keys", "*").split("\n"))
    assert "__held:myapp.orders.printer" in keys and any(key.startswith("__strm:myapp.orders.") for key in keys)

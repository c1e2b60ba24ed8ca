"""The same work on runnel (PyPI), the Python system of the seed: 16 partitions, add up a field of every record.

usage: peer.py REDIS_URL EVENTS      prints events per second, from the first event to the last acknowledgement, and CPU µs per event
"""

import asyncio
import os
import resource
import sys
import time


def without_loop(function):
    """aredis 1.1 passes a `loop` argument that Python dropped in 3.10; nothing else stands in its way."""
    return lambda *args, loop=None, **kwargs: function(*args, **kwargs)


for name in ("open_connection", "wait_for", "sleep"):
    setattr(asyncio, name, without_loop(getattr(asyncio, name)))

import anyio
from runnel import App, Record
from runnel.worker import Worker

url, events = sys.argv[1], int(sys.argv[2])
app = App(name="peer", redis_url=url, log_level="error", default_join_delay=0)


class Order(Record):
    order_id: int
    amount: int
    note: str


orders = app.stream("orders", record=Order, partition_by="order_id", partition_count=16, partition_size=10_000_000)
begin = None
cpu_begin = 0.0
seen = 0


@app.processor(orders, prefetch_count=100)
async def summing(stream):
    global begin, seen, cpu_begin
    total = 0
    async for order in stream.records():
        if begin is None:
            begin = time.perf_counter()
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu_begin = used.ru_utime + used.ru_stime
        total += order.amount
        seen += 1


async def fill():
    for start in range(0, events, 1000):
        records = (Order(order_id=n, amount=n * 7, note="a note of some length") for n in range(start, start + 1000))
        await orders.send(*records)


async def report():
    while seen < events:
        await anyio.sleep(0.01)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - cpu_begin
    print(events / (time.perf_counter() - begin), cpu / events * 1e6, flush=True)
    os._exit(0)  # its worker ends by signal only


async def main():
    await fill()
    async with anyio.create_task_group() as tasks:
        await tasks.spawn(report)
        await tasks.spawn(Worker(app)._start)


anyio.run(main)

"""The same work in Python on Squall's engine: what peer.py does on runnel, for a side-by-side run.

usage: python.py REDIS_URL EVENTS      prints events per second, from the first event to the last acknowledgement, and CPU µs per event
"""

import asyncio
import resource
import sys
import threading
import time

from squall.streams import App, Record, Worker

url, events = sys.argv[1], int(sys.argv[2])
app = App("pypeer", redis_url=url, log_level="error", default_join_delay=0)


class Order(Record):
    order_id: int
    amount: int
    note: str


orders = app.stream("orders", record=Order, partition_by="order_id", partition_count=16, partition_size=10_000_000)
state = {"begin": None, "seen": 0, "cpu": 0.0}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@app.processor(orders, prefetch_count=100)
async def summing(stream):
    total = 0
    async for order in stream.records():
        if state["begin"] is None:
            state["begin"], state["cpu"] = time.perf_counter(), cpu()
        total += order.amount
        state["seen"] += 1


async def fill():
    for start in range(0, events, 1000):
        await orders.send(*(Order(order_id=n, amount=n * 7, note="a note of some length") for n in range(start, start + 1000)))


def report():
    while state["seen"] < events:
        time.sleep(0.005)
    took, used = time.perf_counter() - state["begin"], cpu() - state["cpu"]
    print(events / took, used / events * 1e6, flush=True)
    import os
    import signal

    os.kill(os.getpid(), signal.SIGTERM)  # drained like any worker


asyncio.run(fill())
threading.Thread(target=report, daemon=True).start()
Worker(app).start()

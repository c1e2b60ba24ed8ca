"""Tasks, timers, crontab lines, leadership."""

from __future__ import annotations

from streams_kit import Fleet, eventually


def pids(fleet: Fleet, name: str) -> list[str]:
    return [line[1] for line in fleet.log(name)]


def leader(fleet: Fleet) -> str | None:
    """Returns the process that ran the last of all leader tasks, if one process ran them all."""
    last = {*pids(fleet, "leading")[-5:], *pids(fleet, "alone")[-1:], *pids(fleet, "crontab")[-1:]}
    return last.pop() if len(last) == 1 else None


def test_tasks_run_on_every_worker_and_leader_tasks_on_one(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.task
        async def hello():
            log("hello", os.getpid())

        @app.task(on_leader=True)
        async def alone():
            log("alone", os.getpid())

        @app.timer(interval=0.05)
        async def everywhere():
            log("everywhere", os.getpid())

        @app.timer(interval=0.05, on_leader=True)
        async def leading():
            log("leading", os.getpid())
            raise ValueError("a failing task keeps its times")

        @app.crontab("* * * * * *", timezone="Europe/Berlin", on_leader=True)
        async def every_second():
            log("crontab", os.getpid())
        """
    )
    workers = [fleet.start(), fleet.start()]
    eventually("both", lambda: len(set(pids(fleet, "hello"))) == 2 and len(set(pids(fleet, "everywhere"))) == 2)
    # A leader that stalls past its lease loses the lead, so only one leader at the end is certain.
    eventually("the leader's", lambda: len(pids(fleet, "leading")) >= 5 and len(pids(fleet, "crontab")) >= 2 and leader(fleet))
    first = next(worker for worker in workers if str(worker.pid) == eventually("a leader", lambda: leader(fleet)))
    other = next(worker for worker in workers if worker is not first)
    assert "task leading failed" in fleet.said(first)
    first.kill()
    eventually("another leader", lambda: leader(fleet) == str(other.pid), other)
    assert fleet.stop(other) == 0
    assert fleet.redis("get", "squall:__lead:shop") == "", "the last one resigned"


def test_task_can_send_and_is_cancelled_when_worker_stops(fleet: Fleet) -> None:
    fleet.write(
        """
        @app.task
        async def seed():
            await orders.send(*(Order(order_id=n, number=n) for n in range(20)))
            try:
                await asyncio.Event().wait()
            finally:
                log("cancelled")

        @app.processor(orders)
        async def printer(events):
            async for order in events.records():
                log("done", order.number)
        """
    )
    worker = fleet.start()
    eventually("all", lambda: len(fleet.log("done")) == 20, worker)
    assert fleet.stop(worker) == 0
    assert fleet.log("cancelled")

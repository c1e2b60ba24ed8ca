"""Runs an app in one process on one asyncio loop: starts a coroutine when the engine asks for one
and reports how it ended. The engine assigns partitions and reads events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from squall import _squall
from squall.streams._app import App, Processor, Task
from squall.streams._errors import Misconfigured
from squall.streams._events import Events
from squall.streams._mailbox import mailbox

_log = logging.getLogger("squall.streams")


def select_processors(app: App, names: str) -> list[Processor]:
    """Returns the processors that a comma-separated list names."""
    if names == "all":
        return list(app.processors.values())
    found = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        matching = [processor for processor in app.processors.values() if name in (processor.name, processor.id)]
        if not matching:
            known = ", ".join(processor.name for processor in app.processors.values()) or "none"
            raise Misconfigured(f"app {app.name!r} has no processor {name!r}; it has: {known}")
        found += matching
    return found


def run(app: App, names: str = "all", prometheus: str | None = None, announce: Callable[[str], None] | None = None) -> None:
    """Runs until a signal arrives or a processor halts."""
    processors = select_processors(app, names)
    if not processors and not app.tasks:
        raise Misconfigured(f"app {app.name!r} has no processors and no tasks, so there is nothing to run")
    asyncio.run(_WorkerLoop(app, processors).serve(prometheus, announce))


class _WorkerLoop:
    def __init__(self, app: App, processors: list[Processor]) -> None:
        self.app = app
        self.processors = processors
        self.opened: list[_squall.Stream] = []
        self.running: dict[int, tuple[asyncio.Task[None], Events | None]] = {}
        #: One lock per partition, so that a new call waits for a cancelled one that is still
        #: running.
        self.partition_locks: dict[tuple[int, int], asyncio.Lock] = {}

    async def serve(self, prometheus: str | None, announce: Callable[[str], None] | None) -> None:
        box = mailbox()
        worker = _squall.StreamWorker(box.native, await self.app._connect())
        for processor in self.processors:
            stream = await processor.stream._open()
            self.opened.append(stream)
            worker.processor(stream, processor._native_options())
        for task in self.app.tasks:
            worker.task(task.name, on_leader=task.on_leader, interval=task.interval, crontab=task.crontab)
        if prometheus is not None:
            addr = worker.prometheus(prometheus)
            if announce is not None:
                announce(f"metrics at http://{addr}/metrics")
        box.message_handler = self._handle_message
        try:
            await box.wait_for(worker.start(True))
        finally:
            leftovers = [running for running, _ in self.running.values()]
            for running in leftovers:
                running.cancel()
            await asyncio.gather(*leftovers, return_exceptions=True)
            box.message_handler = None

    def _handle_message(self, kind: str, ident: int, content: Any) -> None:
        if kind == "call":
            number, run, source = content
            events = Events(self.processors[number], source, self.opened[number])
            self._start(ident, run, self._process(number, events), events)
        elif kind == "task":
            number, run, _ = content
            self._start(ident, run, self._run_task(self.app.tasks[number]), None)
        elif ident in self.running:
            running, waiting = self.running[ident]
            if kind == "cancel":
                running.cancel()
            elif waiting is not None:
                waiting._wake()

    def _start(self, ident: int, run: _squall.StreamRunHandle, work: Awaitable[None], events: Events | None) -> None:
        task = asyncio.ensure_future(self._run_and_report(run, work))
        self.running[ident] = (task, events)
        task.add_done_callback(lambda _: self.running.pop(ident, None))

    async def _run_and_report(self, run: _squall.StreamRunHandle, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            run.finish("cancelled")
            raise
        except Exception as error:
            run.finish(_error_text(error))
        except BaseException as error:
            # SystemExit and the like fail the event and end the loop.
            run.finish(_error_text(error))
            raise
        else:
            run.finish()

    async def _process(self, number: int, events: Events) -> None:
        processor = self.processors[number]
        async with self.partition_locks.setdefault((number, events.partition.number), asyncio.Lock()):
            try:
                await processor.function(events)
            except Exception:
                _log.warning("processor %s failed in %r", processor.id, events.partition, exc_info=True)
                raise
            finally:
                await events._close()

    async def _run_task(self, task: Task) -> None:
        try:
            await task.function()
        except Exception:
            _log.warning("task %s failed", task.name, exc_info=True)
            raise


def _error_text(error: BaseException) -> str:
    """Returns the exception and its place in the app's code."""
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/squall/streams/" not in code.co_filename:
            place = f" ({code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} in {code.co_name})"
        trace = trace.tb_next
    text = str(error)
    return f"{type(error).__name__}{': ' + text if text else ''}{place}"

"""The asyncio loop of an engine thread and the task of each user on it. The loop never waits: the
engine waits and calls ``run_once``. Called by name from the Rust driver.

Beside what asyncio documents for authors of loops and tasks, this uses ``_run_once``, ``_ready``,
``_scheduled``, ``_stopping``, ``_thread_id`` and the async generator hooks of the base loop, which
are the same in Python 3.8 to 3.14."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from squall import _not_awaited, _squall
from squall._squall import Operation

#: How often the loop runs at the end of a run to let cancelled tasks finish.
_MAX_FINISH_TURNS = 100
#: How long to wait for Playwright's driver to end.
_DRIVER_END_SECONDS = 5.0
#: What Playwright says when its driver has ended.
_DRIVER_ENDED = "Connection closed while reading from the driver"
#: The task that the current user runs.
task_name: contextvars.ContextVar[str | None] = contextvars.ContextVar("squall_task_name", default=None)


#: Thread id to its loop.
_loops: dict[int, EngineDrivenLoop] = {}


def overdue(thread: int) -> bool:
    """Returns whether the function that runs on a thread has passed its time limit. Tasks that the
    scenario created itself have no limit."""
    loop = _loops.get(thread)
    task = None if loop is None else asyncio.current_task(loop)
    queue = None if loop is None or task is None else loop.queues.get(task)
    return queue is not None and queue.overdue()


class EngineDrivenLoop(asyncio.SelectorEventLoop):
    """A loop that the engine drives: ``run_once`` runs what is due and never waits."""

    def __init__(self) -> None:
        super().__init__()
        this: Any = self
        self.descriptor: int = this._selector.fileno()
        self._found_events = False
        self.finishing = False
        #: The queue of each user's task.
        self.queues: dict[asyncio.Task[None], Any] = {}
        #: Playwright's driver, once it runs.
        self._browser_driver: asyncio.SubprocessTransport | None = None
        self._starts_browser_driver = False
        self._driver_folder = ""
        # A stopping loop polls its selector without waiting, which is what this loop must always
        # do.
        this._stopping = True
        this._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(firstiter=this._asyncgen_firstiter_hook, finalizer=this._asyncgen_finalizer_hook)
        asyncio._set_running_loop(self)
        _loops[threading.get_ident()] = self

    def run_once(self) -> float | None:
        """Runs what is due. Returns the seconds until the next timer, or None without one."""
        this: Any = self
        this._run_once()
        if this._ready or self._found_events:
            return 0.0
        if this._scheduled:
            return max(0.0, float(this._scheduled[0]._when) - self.time())
        return None

    def start_user_task(self, queue: Any, context: contextvars.Context) -> asyncio.Task[None]:
        """Starts the task that runs the functions of one user."""
        task = self.create_task(_run_user(self, queue), context=context)
        self.queues[task] = queue
        task.add_done_callback(self.queues.pop)
        return task

    def connect_browser(self, on_connected: Callable[[str | None], None]) -> None:
        """Starts Playwright and its browser, and calls ``on_connected`` with what is wrong, or None."""
        from squall import _browser

        def report(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            on_connected(None if error is None else str(error))

        self.create_task(_browser.connect()).add_done_callback(report)

    @contextlib.contextmanager
    def starting_browser_driver(self) -> Iterator[None]:
        """Makes the process that is started inside a part of the generator, in a process group of its own:
        Ctrl-C must not end it before the run."""
        self._starts_browser_driver = True
        try:
            yield
        finally:
            self._starts_browser_driver = False

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        if not self._starts_browser_driver:
            return await super().subprocess_exec(protocol_factory, *args, **options)
        self._driver_folder = tempfile.mkdtemp(prefix="squall-playwright-")
        options |= {"env": {**(options.get("env") or os.environ), "TMPDIR": self._driver_folder}, "process_group": 0}
        transport, protocol = await super().subprocess_exec(protocol_factory, *args, **options)
        self._browser_driver = transport
        _squall.register_browser_driver(transport.get_pid())
        return transport, protocol

    def _end_browser_driver(self) -> None:
        """Ends Playwright's driver and waits until it has ended, because asyncio complains of a process that
        outlives its loop."""
        from squall import _browser

        _browser.forget(self)
        transport, self._browser_driver = self._browser_driver, None
        if transport is None:
            return
        _squall.release_browser_driver()
        # The driver ends when its input does.
        pipe: Any = transport.get_pipe_transport(0)
        pipe.close()
        self._run_until_ended(transport)
        if transport.get_returncode() is None:
            transport.kill()
            self._run_until_ended(transport)
        shutil.rmtree(self._driver_folder, ignore_errors=True)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # Playwright keeps the end of its driver as an error that nobody reads, and asyncio would print it.
        if not (self.finishing and str(context.get("exception")) == _DRIVER_ENDED):
            super().call_exception_handler(context)

    def _run_until_ended(self, process: asyncio.SubprocessTransport) -> None:
        this: Any = self
        deadline = time.monotonic() + _DRIVER_END_SECONDS
        while process.get_returncode() is None and time.monotonic() < deadline:
            this._run_once()
            time.sleep(0.001)

    def finish(self) -> None:
        """Cancels all tasks and closes the loop."""
        this: Any = self
        self.finishing = True
        if self._browser_driver is not None:
            self._end_browser_driver()
        for _ in range(_MAX_FINISH_TURNS):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            this._run_once()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        _loops.pop(this._thread_id, None)
        this._thread_id = None
        sys.set_asyncgen_hooks(None, None)
        asyncio._set_running_loop(None)
        self.close()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        # asyncio accepts coroutines only, but scenarios also make tasks of client calls.
        if not isinstance(coro, Operation):
            return super().create_task(coro, **options)
        task = super().create_task(_await_operation(coro), **options)
        coro.start_background()
        task.add_done_callback(coro.finish_background)
        return task

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = super().call_at(when, callback, *args, context=context)
        if self._scheduled[0] is handle:  # type: ignore[attr-defined]
            # The engine sets its timer after `run_once`, so this makes it call `run_once` again.
            self.call_soon(_noop)
        return handle

    def _process_events(self, event_list: Any) -> None:
        self._found_events = bool(event_list)
        super()._process_events(event_list)  # type: ignore[misc]


def start_loop() -> EngineDrivenLoop:
    """Creates the loop of this thread and marks it as running."""
    return EngineDrivenLoop()


async def _run_user(loop: EngineDrivenLoop, queue: Any) -> None:
    """Runs the functions that the queue delivers, one after the other. All run in one task, so
    on_stop may close what on_start opened."""
    _not_awaited.current_queue.set(queue)
    while True:
        try:
            work = await queue.next()
        except asyncio.CancelledError:
            # The scenario cancelled the task between two functions: there is no function to cancel.
            if loop.finishing:
                raise
            _clear_cancellation()
            continue
        if work is None:
            return
        function, arguments = work
        mark = getattr(function, "__squall_task__", None)
        task_name.set(None if mark is None else mark.name)
        try:
            await function(*arguments)
            if (browser := _browser_of(arguments[0])) is not None:
                await browser.read_outside_steps()
        except BaseException as error:
            if loop.finishing and isinstance(error, GeneratorExit):
                raise
            browser = _finish_browser(arguments[0])
            queue.done(error)
            _clear_cancellation()
        else:
            browser = _finish_browser(arguments[0])
            queue.done()
        if browser is not None:
            await browser.close()


def _browser_of(user: Any) -> Any:
    """Returns the browser of a user, or None if it has used none."""
    browser: Any = getattr(user, "__dict__", {}).get("browser")
    return browser if type(browser).__module__ == "squall._browser" else None


def _finish_browser(user: Any) -> Any:
    """Records what the pages of a user have measured. Returns its browser, or None if it has used none."""
    if (browser := _browser_of(user)) is not None:
        browser.finish()
    return browser


def _clear_cancellation() -> None:
    """Clears the cancellation of the last function, so that it does not cancel the next one."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def _await_operation(operation: Any) -> Any:
    return await operation


def _noop() -> None:
    pass

"""The asyncio loop of an engine thread, and the life of a user on it. The engine sleeps and wakes; this loop only takes turns.

What is used of asyncio beyond its public face is what its documentation names for other loops and tasks, and of the base loop
``_run_once``, ``_ready``, ``_scheduled``, ``_stopping``, ``_thread_id`` and the hooks for asynchronous generators, which have been the same
from Python 3.8 to 3.14."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

from squall import _not_awaited
from squall._squall import Operation

#: Turns that tasks have to end in when the run is over.
_MAX_FINISH_TURNS = 100


#: The loop of each thread that has one.
_loops: dict[int, EngineDrivenLoop] = {}


def overdue(thread: int) -> bool:
    """Whether the time of the function is over that now runs on a thread. What a task of its own runs is nobody's here."""
    loop = _loops.get(thread)
    task = None if loop is None else asyncio.current_task(loop)
    queue = None if loop is None or task is None else loop.queues.get(task)
    return queue is not None and queue.overdue()


class EngineDrivenLoop(asyncio.SelectorEventLoop):
    """A loop that is turned from outside and never waits."""

    def __init__(self) -> None:
        super().__init__()
        this: Any = self
        self.descriptor: int = this._selector.fileno()
        self._found_events = False
        self.finishing = False
        #: Whose task is whose.
        self.queues: dict[asyncio.Task[None], Any] = {}
        # A loop that is about to stop looks at its selector without waiting: so does this one, always.
        this._stopping = True
        this._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(firstiter=this._asyncgen_firstiter_hook, finalizer=this._asyncgen_finalizer_hook)
        asyncio._set_running_loop(self)
        _loops[threading.get_ident()] = self

    def run_once(self) -> float | None:
        """Runs what is due; says in how many seconds something will be."""
        this: Any = self
        this._run_once()
        if this._ready or self._found_events:
            return 0.0
        if this._scheduled:
            return max(0.0, float(this._scheduled[0]._when) - self.time())
        return None

    def start_user_task(self, queue: Any, context: contextvars.Context) -> asyncio.Task[None]:
        task = self.create_task(_run_user(self, queue), context=context)
        self.queues[task] = queue
        task.add_done_callback(self.queues.pop)
        return task

    def finish(self) -> None:
        """Ends all tasks, and the loop."""
        this: Any = self
        self.finishing = True
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
        # Elsewhere a client's methods are coroutines, and people make tasks of them.
        if not isinstance(coro, Operation):
            return super().create_task(coro, **options)
        task = super().create_task(_await_operation(coro), **options)
        coro.promise()
        task.add_done_callback(coro.kept)
        return task

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = super().call_at(when, callback, *args, context=context)
        if self._scheduled[0] is handle:  # type: ignore[attr-defined]
            # The engine's own timer has to be set anew, which happens after the next turn.
            self.call_soon(_noop)
        return handle

    def _process_events(self, event_list: Any) -> None:
        self._found_events = bool(event_list)
        super()._process_events(event_list)  # type: ignore[misc]


def start_loop() -> EngineDrivenLoop:
    """A loop that counts as running on this thread from now on."""
    return EngineDrivenLoop()


async def _run_user(loop: EngineDrivenLoop, queue: Any) -> None:
    """Runs whatever the port is given, one thing after the other, in one task: what is opened in on_start may be closed in on_stop."""
    _not_awaited.current_queue.set(queue)
    while True:
        try:
            work = await queue.next()
        except asyncio.CancelledError:
            # Somebody cancelled the task between two functions, when there was nothing to cancel.
            if loop.finishing:
                raise
            _clear_cancellation()
            continue
        if work is None:
            return
        function, arguments = work
        try:
            await function(*arguments)
        except BaseException as error:
            if loop.finishing and isinstance(error, GeneratorExit):
                raise
            queue.done(error)
            _clear_cancellation()
        else:
            queue.done()


def _clear_cancellation() -> None:
    """The next function shall not be cancelled because the last one was."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def _await_operation(operation: Any) -> Any:
    return await operation


def _noop() -> None:
    pass

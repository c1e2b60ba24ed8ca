"""Apps: streams, processors and background tasks, and the worker that runs them."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, overload

from squall import _squall
from squall.streams._errors import Misconfigured
from squall.streams._formats import Serializer
from squall.streams._loop import mailbox
from squall.streams._middleware import DeadLetterMiddleware, Middleware
from squall.streams._settings import ExceptionPolicy, Settings, zone_name
from squall.streams._stream import Stream

_Function = Callable[[], Awaitable[Any]]


@dataclass
class Task:
    """Something a worker does beside processing."""

    function: _Function
    on_leader: bool
    interval: float | None = None
    crontab: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "task")


class Processor:
    """An async function over the events of one partition. Made by :meth:`App.processor`."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], stream: Stream, options: dict[str, Any]) -> None:
        settings = stream.app.settings
        self.function = function
        self.stream = stream
        self.name: str = options["name"] or getattr(function, "__name__", "processor")
        self.policy = ExceptionPolicy.read(options["exception_policy"] or settings.default_exception_policy)
        self.middleware: list[Middleware] = list(options["middleware"] or [])
        self.retries: int = options["retries"]
        self.retry_backoff: float = options["retry_backoff"]
        self.lock_expiry = float(_chosen(options["lock_expiry"], settings.default_lock_expiry))
        self.grace_period = float(_chosen(options["grace_period"], settings.default_grace_period))
        self.prefetch_count = int(_chosen(options["prefetch_count"], settings.default_prefetch_count))
        self.pool_size = int(_chosen(options["pool_size"], settings.default_pool_size))
        self.join_delay = float(_chosen(options["join_delay"], settings.default_join_delay))
        self.report: float = options["report"]
        for step in self.middleware:
            if not hasattr(step, "handler"):
                raise Misconfigured(f"middleware {step!r} of processor {self.name!r} has no method handler(parent, **kwargs)")
            if isinstance(step, DeadLetterMiddleware) and step.source is not stream:
                raise Misconfigured(f"the dead letters of processor {self.name!r} are of another stream ({step.source.id})")
        for what in ("lock_expiry", "prefetch_count", "pool_size"):
            if getattr(self, what) <= 0:
                raise Misconfigured(f"{what} of processor {self.name!r} must be above zero")

    @property
    def id(self) -> str:
        return f"{self.stream.id}.{self.name}"

    @property
    def handlers(self) -> list[Middleware]:
        """Middleware that sees events; dead letters see failures only."""
        return [step for step in self.middleware if not isinstance(step, DeadLetterMiddleware)]

    def manner(self) -> dict[str, Any]:
        """How the engine is to run it."""
        return {
            "name": self.name,
            "shape": self.stream._shape,
            "policy": self.policy.value,
            "retries": self.retries,
            "backoff": self.retry_backoff,
            "beat": min(1.0, self.lock_expiry / 3.5),
            "lease": self.lock_expiry,
            "join_delay": self.join_delay,
            "grace": self.grace_period,
            "prefetch": self.prefetch_count,
            "fetches": self.pool_size,
            "report": self.report,
            "dead_letters": any(isinstance(step, DeadLetterMiddleware) for step in self.middleware),
        }

    def __repr__(self) -> str:
        return f"<Processor {self.id}>"


def _chosen(given: Any, default: Any) -> Any:
    return default if given is None else given


def _check_async(what: str, function: Any) -> None:
    if not inspect.iscoroutinefunction(function):
        name = getattr(function, "__name__", repr(function))
        raise Misconfigured(f"{what} {name!r} must be an async function: write async def {name}")


class App:
    """An app on Redis: ``app = App("shop", redis_url="redis://127.0.0.1")``. Keyword arguments are settings, see docs/streams.md."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.settings = Settings.read(settings)
        self.processors: dict[str, Processor] = {}
        self.tasks: list[Task] = []
        self._connected: _squall.StreamLink | None = None

    def __repr__(self) -> str:
        return f"<App {self.name}>"

    def stream(
        self,
        name: str,
        record: type[Any],
        partition_by: str | Callable[[Any], Any],
        serializer: Serializer | None = None,
        partition_count: int | None = None,
        partition_size: int | None = None,
        hasher: str | Callable[[Any], int] | None = None,
        wait: float | None = 30,
        drop_unread: bool = False,
    ) -> Stream:
        """A stream of this app. ``wait``: how long sending waits for room, ``None`` to fail at once."""
        return Stream(self, name, record, partition_by, serializer, partition_count, partition_size, hasher, wait, drop_unread)

    def processor(
        self,
        stream: Stream,
        *,
        name: str | None = None,
        exception_policy: ExceptionPolicy | str | None = None,
        middleware: list[Any] | None = None,
        lock_expiry: float | None = None,
        read_timeout: float | None = None,
        prefetch_count: int | None = None,
        assignment_attempts: int | None = None,
        assignment_sleep: float | None = None,
        grace_period: float | None = None,
        pool_size: int | None = None,
        join_delay: float | None = None,
        retries: int = 0,
        retry_backoff: float = 0.1,
        report: float = 10,
    ) -> Callable[[Callable[[Any], Awaitable[Any]]], Processor]:
        """Registers an async function that iterates over the events of one partition; it is called once for each."""
        if not isinstance(stream, Stream):
            raise Misconfigured("@app.processor needs a stream: @app.processor(orders), not @app.processor")
        options = {
            "name": name,
            "exception_policy": exception_policy,
            "middleware": middleware,
            "lock_expiry": lock_expiry,
            "prefetch_count": prefetch_count,
            "grace_period": grace_period,
            "pool_size": pool_size,
            "join_delay": join_delay,
            "retries": retries,
            "retry_backoff": retry_backoff,
            "report": report,
        }

        def register(function: Callable[[Any], Awaitable[Any]]) -> Processor:
            _check_async("processor", function)
            processor = Processor(function, stream, options)
            if processor.id in self.processors:
                raise Misconfigured(f"there are two processors {processor.name!r} on stream {stream.name!r}; give one a name of its own")
            self.processors[processor.id] = processor
            return processor

        return register

    @overload
    def task(self, function: _Function) -> _Function: ...
    @overload
    def task(self, function: None = None, *, on_leader: bool = False) -> Callable[[_Function], _Function]: ...
    def task(self, function: _Function | None = None, *, on_leader: bool = False) -> Any:
        """Runs an async function once, when a worker starts; or when a worker becomes the leader."""

        def register(function: _Function) -> _Function:
            _check_async("task", function)
            self.tasks.append(Task(function, on_leader))
            return function

        return register if function is None else register(function)

    def timer(self, *, interval: float, on_leader: bool = False) -> Callable[[_Function], _Function]:
        """Runs an async function every ``interval`` seconds, one run after the other."""
        if not interval > 0:
            raise Misconfigured(f"a timer needs an interval above zero, not {interval!r}")

        def register(function: _Function) -> _Function:
            _check_async("timer", function)
            self.tasks.append(Task(function, on_leader, interval=float(interval)))
            return function

        return register

    def crontab(
        self, spec: str, *, timezone: datetime.tzinfo | str | None = None, on_leader: bool = False
    ) -> Callable[[_Function], _Function]:
        """Runs an async function at the times of a crontab line: ``@app.crontab("45 17 * * *", timezone="Europe/Berlin")``."""

        def register(function: _Function) -> _Function:
            _check_async("crontab", function)
            zone = zone_name(self.settings.timezone if timezone is None else timezone)
            self.tasks.append(Task(function, on_leader, crontab=(spec, zone)))
            return function

        return register

    async def _link(self) -> _squall.StreamLink:
        if self._connected is None:
            box, settings = mailbox(), self.settings
            self._connected = await box.answer(_squall.connect(box.post, self.name, settings.redis_url, settings.namespace))
        return self._connected


class Worker:
    """Runs an app from a program of your own: ``Worker(app).start()`` returns when it was stopped by a signal."""

    def __init__(self, app: App) -> None:
        self.app = app

    def start(self, processors: str = "all") -> None:
        from squall.streams._worker import run

        run(self.app, processors)

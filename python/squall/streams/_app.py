"""Apps with their streams, processors and background tasks. The worker that runs them is in
``_worker``."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Unpack, overload

from squall import _squall
from squall.streams._errors import Misconfigured
from squall.streams._mailbox import mailbox
from squall.streams._middleware import DeadLetterMiddleware, Middleware
from squall.streams._options import ProcessorOptions, StreamOptions, check_names, count, or_default, seconds
from squall.streams._settings import ExceptionPolicy, Settings, zone_name
from squall.streams._stream import Stream

_Function = Callable[[], Awaitable[Any]]


@dataclass
class Task:
    """A function that a worker runs beside its processors."""

    function: _Function
    on_leader: bool
    interval: float | None = None
    crontab: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "task")


class Processor:
    """An async function that processes the events of one partition. Created by
    :meth:`App.processor`."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], stream: Stream, **options: Unpack[ProcessorOptions]) -> None:
        settings = stream.app.settings
        self.function = function
        self.stream = stream
        self.name = str(options.get("name") or getattr(function, "__name__", "processor"))
        of = f"of processor {self.name!r}"
        check_names(f"processor {self.name!r} has no option", options, ProcessorOptions.__annotations__)
        self.policy = ExceptionPolicy.read(or_default(options.get("exception_policy"), settings.default_exception_policy))
        self.middleware: list[Middleware] = list(options.get("middleware") or [])
        self.retries = count(f"retries {of}", options.get("retries", 0), least=0)
        self.retry_backoff = seconds(f"retry_backoff {of}", options.get("retry_backoff", 0.1))
        lock_expiry = or_default(options.get("lock_expiry"), settings.default_lock_expiry)
        self.lock_expiry = seconds(f"lock_expiry {of}", lock_expiry, above_zero=True)
        self.grace_period = seconds(f"grace_period {of}", or_default(options.get("grace_period"), settings.default_grace_period))
        self.prefetch_count = count(f"prefetch_count {of}", or_default(options.get("prefetch_count"), settings.default_prefetch_count))
        self.pool_size = count(f"pool_size {of}", or_default(options.get("pool_size"), settings.default_pool_size))
        self.join_delay = seconds(f"join_delay {of}", or_default(options.get("join_delay"), settings.default_join_delay))
        self.report = seconds(f"report {of}", options.get("report", 10), above_zero=True)
        for step in self.middleware:
            if not hasattr(step, "handler"):
                raise Misconfigured(f"middleware {step!r} of processor {self.name!r} has no method handler(parent, **kwargs)")
            if isinstance(step, DeadLetterMiddleware) and step.source is not stream:
                raise Misconfigured(f"the dead-letter middleware of processor {self.name!r} is for another stream ({step.source.id})")

    @property
    def id(self) -> str:
        return f"{self.stream.id}.{self.name}"

    @property
    def handlers(self) -> list[Middleware]:
        """The middleware that sees events; dead-letter middleware sees failures only."""
        return [step for step in self.middleware if not isinstance(step, DeadLetterMiddleware)]

    def _native_options(self) -> dict[str, Any]:
        """Returns the options for the engine."""
        return {
            "name": self.name,
            "shape": self.stream._format,
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


def _check_async(what: str, function: Any) -> None:
    if not inspect.iscoroutinefunction(function):
        name = getattr(function, "__name__", repr(function))
        raise Misconfigured(f"{what} {name!r} must be an async function: write async def {name}")


class App:
    """An app on Redis: ``app = App("shop", redis_url="redis://127.0.0.1")``. Keyword arguments are
    settings, see docs/streams.md."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.settings = Settings.read(settings)
        self.processors: dict[str, Processor] = {}
        self.tasks: list[Task] = []
        self._connected: _squall.StreamAppConnection | None = None

    def __repr__(self) -> str:
        return f"<App {self.name}>"

    def stream(self, name: str, record: type[Any], partition_by: str | Callable[[Any], Any], **options: Unpack[StreamOptions]) -> Stream:
        """Creates a stream of this app. ``partition_by`` is an attribute or a function of the
        record. Options: :class:`StreamOptions`."""
        return Stream(self, name, record, partition_by, **options)

    def processor(self, stream: Stream, **options: Unpack[ProcessorOptions]) -> Callable[[Callable[[Any], Awaitable[Any]]], Processor]:
        """Registers an async function that iterates over the events of one partition. The worker
        calls it once for each of its partitions. Options: :class:`ProcessorOptions`.
        """
        if not isinstance(stream, Stream):
            raise Misconfigured("@app.processor needs a stream: @app.processor(orders), not @app.processor")

        def register(function: Callable[[Any], Awaitable[Any]]) -> Processor:
            _check_async("processor", function)
            processor = Processor(function, stream, **options)
            if processor.id in self.processors:
                raise Misconfigured(f"stream {stream.name!r} has two processors {processor.name!r}; give one another name")
            self.processors[processor.id] = processor
            return processor

        return register

    @overload
    def task(self, function: _Function) -> _Function: ...
    @overload
    def task(self, function: None = None, *, on_leader: bool = False) -> Callable[[_Function], _Function]: ...
    def task(self, function: _Function | None = None, *, on_leader: bool = False) -> Any:
        """Runs an async function once when a worker starts, or with ``on_leader`` when it becomes
        the leader."""

        def register(function: _Function) -> _Function:
            _check_async("task", function)
            self.tasks.append(Task(function, on_leader))
            return function

        return register if function is None else register(function)

    def timer(self, *, interval: float, on_leader: bool = False) -> Callable[[_Function], _Function]:
        """Runs an async function every ``interval`` seconds. Runs do not overlap."""
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
        """Runs an async function at the times of a crontab line:
        ``@app.crontab("45 17 * * *", timezone="Europe/Berlin")``."""

        def register(function: _Function) -> _Function:
            _check_async("crontab", function)
            zone = zone_name(self.settings.timezone if timezone is None else timezone)
            self.tasks.append(Task(function, on_leader, crontab=(spec, zone)))
            return function

        return register

    async def _connect(self) -> _squall.StreamAppConnection:
        if self._connected is None:
            box, settings = mailbox(), self.settings
            self._connected = await box.wait_for(_squall.connect(box.native, self.name, settings.redis_url, settings.namespace))
        return self._connected


class Worker:
    """Runs an app from your own program: ``Worker(app).start()`` returns after a signal stops the
    worker."""

    def __init__(self, app: App) -> None:
        self.app = app

    def start(self, processors: str = "all") -> None:
        from squall.streams._worker import run

        run(self.app, processors)

"""The API of vikhry: steps without a client argument, which use ``self.http``, and awaitable
functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from squall import _dsl, _metrics
from squall._current_client import current_client
from squall._dsl import Between, VUser, between, probe, resource
from squall._errors import ScenarioError, StatusError
from squall._jsonrpc import JsonRPCError, JsonRPCProtocolError
from squall._probe import ProbeContext
from squall._strategy import ParallelReadyStrategy, SequentialWeightedStrategy, StepSelection, StepStrategy
from squall.compat._reqwest import ClientTemplate, JsonRPCClient, ReqwestClient, ReqwestResponse, UserClient, awaitable, transport

__all__ = [
    "VU",
    "JsonRPCClient",
    "JsonRPCError",
    "JsonRPCProtocolError",
    "ParallelReadyStrategy",
    "ProbeContext",
    "ReqwestClient",
    "SequentialWeightedStrategy",
    "StepSelection",
    "StepStrategy",
    "between",
    "emit_metric",
    "metric",
    "probe",
    "resource",
    "step",
]

F = TypeVar("F", bound=Callable[..., Any])

#: Status names that vikhry's ``emit_metric`` accepts, and whether each means success.
_STATUS = {"ok": True, "success": True, "error": False, "failed": False}


class VU(VUser):
    """A virtual user whose client is ``self.http``."""

    http: Any = ReqwestClient()
    #: The engine's client; None until the user has one.
    _squall_client: Any = None

    def __init__(self, **_: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.http, ClientTemplate) and cls.http.target:
            cls.__squall_target__ = cls.http.target  # type: ignore[attr-defined]
        if cls.close is not VU.close and not hasattr(cls.on_stop, "__squall_closes__"):
            cls.on_stop = _closing_afterwards(cls.on_stop)  # type: ignore[method-assign]
        for name in ("on_start", "on_stop"):
            hook = cls.__dict__.get(name)
            if hook is not None and len(inspect.signature(hook).parameters) == 1:
                setattr(cls, name, _with_client(hook))

    async def on_init(self, **_: Any) -> None:
        pass

    async def on_start(self) -> None:
        pass

    async def on_stop(self) -> None:
        pass

    async def close(self) -> None:
        """Releases what the user holds; Squall calls it after ``on_stop``."""

    on_init.__squall_nothing__ = on_start.__squall_nothing__ = on_stop.__squall_nothing__ = True  # type: ignore[attr-defined]

    @property
    def user_id(self) -> str:
        """From 1, as in vikhry's commands and keys; ``id`` counts from 0."""
        return str(self.id + 1)

    @property
    def worker_id(self) -> str:
        """A constant: vikhry gives each worker an id, but in Squall users do not depend on their
        worker."""
        return "squall"

    def ensure_http_client(self) -> Any:
        return self.http

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ClientTemplate) and self._squall_client is not None:
            value = value.bind_to(self._squall_client)
        super().__setattr__(name, value)

    def __squall_client__(self, client: Any) -> None:
        """Sets the user's client before its first function, and again if the client changes."""
        if self._squall_client is client:
            return
        self._squall_client = client
        http = self.__dict__.get("http", type(self).http)
        if isinstance(http, ClientTemplate):
            self.http = http.bind_to(client, at_target=http is type(self).http)
        else:
            self.http = http.rebind_to(client) if isinstance(http, UserClient) else transport(http)


def _closing_afterwards(on_stop: Callable[..., Any]) -> Callable[..., Any]:
    async def both(self: Any) -> None:
        try:
            # An inherited on_stop is already wrapped and takes the client.
            await (on_stop(self) if len(inspect.signature(on_stop).parameters) == 1 else on_stop(self, self._squall_client))
        finally:
            await self.close()

    both.__squall_closes__ = True  # type: ignore[attr-defined]
    return both


def step(
    name: str | None = None,
    *,
    weight: float = 1.0,
    every_s: float | Between | None = None,
    requires: Sequence[str] = (),
    timeout: float | None = None,
    timeout_s: float | None = None,
    **strategy_kwargs: Any,
) -> Callable[[F], F]:
    """vikhry's ``@step``: makes a method a task."""
    file, line = _dsl._caller()
    if every_s is not None and not isinstance(every_s, (int, float, Between)):
        raise ScenarioError(f"every_s={every_s!r}: give seconds or between(2, 5)", file, line)
    limit = timeout_s if timeout is None else timeout

    def decorate(function: F) -> F:
        if not inspect.iscoroutinefunction(function):
            raise ScenarioError(f"step {function.__name__!r} must be async def", file, line)
        every = None if every_s is None else _dsl._text(every_s, seconds=True)
        mark = _dsl.TaskMark(name or function.__name__, weight, tuple(requires), every, limit, file, line, strategy_kwargs)
        return _dsl._mark(_with_client(function, is_step=True), mark)

    return decorate


def _with_client(function: F, is_step: bool = False) -> F:
    @functools.wraps(function)
    async def call(self: Any, client: Any) -> Any:
        self.__squall_client__(client)
        current_client.set(client)
        result = await function(self)
        if is_step and isinstance(result, ReqwestResponse) and not result.ok:
            # The step has failed, so steps that require it must not run.
            raise StatusError(f"the step returned a response with status {result.status}", result._response)
        return result

    # `inspect.signature` must see this function's arguments, not those of the wrapped one.
    del call.__wrapped__
    return call  # type: ignore[return-value]


def emit_metric(*, name: str, status: bool | str = True, time: float = 0.0, result_code: str | None = None, **_: Any) -> Awaitable[bool]:
    """Adds a sample to the metric ``name``; ``await`` is optional. Ignores further fields."""
    passed = _STATUS[status.strip().lower()] if isinstance(status, str) else bool(status)
    _metrics.emit_metric(name, time=time, status=passed, result_code=result_code)
    return awaitable(True)


def metric(*, name: str | None = None, **_: Any) -> Callable[[F], F]:
    """Records the time of every call of a function in the metric ``name``. Ignores further
    fields."""

    def decorate(function: F) -> F:
        return _metrics.metric(name or function.__name__)(function)

    return decorate

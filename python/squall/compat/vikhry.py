"""vikhry's words: tasks without a client argument that reach it as ``self.http``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from squall import _dsl
from squall._dsl import Between, VUser, between, probe, resource
from squall._errors import ScenarioError
from squall._jsonrpc import JsonRPCClient as _JsonRPC
from squall._jsonrpc import JsonRPCError, JsonRPCProtocolError
from squall._metrics import emit_metric, metric
from squall._probe import ProbeContext
from squall._strategy import ParallelReadyStrategy, SequentialWeightedStrategy, StepSelection, StepStrategy

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


class ReqwestClient:
    """Stands where a scenario says which client it wants; the user gets Squall's."""

    def __init__(self, base_url: str = "", timeout: float = 30.0) -> None:
        self.base_url = base_url
        self.timeout = timeout


class JsonRPCClient:
    """Stands where a scenario wants JSON-RPC: ``http = JsonRPCClient("/rpc")``, then ``await self.http.call("sum", [1, 2])``."""

    def __init__(self, base_url: str, timeout: float = 30.0) -> None:
        self.base_url = base_url
        self.timeout = timeout

    def create(self, client: Any) -> _JsonRPC:
        """The same over a user's own client."""
        return _JsonRPC(client, self.base_url, timeout=self.timeout)


class VU(VUser):
    """A virtual user whose client is ``self.http``."""

    http: Any = ReqwestClient()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("on_start", "on_stop"):
            hook = cls.__dict__.get(name)
            if hook is not None and len(inspect.signature(hook).parameters) == 1:
                setattr(cls, name, _with_client(hook))


def step(
    name: str | None = None,
    *,
    weight: float = 1.0,
    every_s: float | Between | None = None,
    requires: Sequence[str] = (),
    timeout: float | None = None,
) -> Callable[[F], F]:
    """Makes a method one of the things that a user does: vikhry's ``@step``."""
    file, line = _dsl._caller()

    def decorate(function: F) -> F:
        if not inspect.iscoroutinefunction(function):
            raise ScenarioError(f"step {function.__name__!r} must be async def", file, line)
        every = None if every_s is None else _dsl._text(every_s, seconds=True)
        mark = _dsl.TaskMark(name or function.__name__, weight, tuple(requires), every, timeout, file, line)
        return _dsl._mark(_with_client(function), mark)

    return decorate


def _with_client(function: F) -> F:
    @functools.wraps(function)
    async def call(self: Any, client: Any) -> Any:
        wanted = type(self).http
        if not isinstance(wanted, JsonRPCClient):
            self.http = client
        elif "http" not in self.__dict__:
            self.http = wanted.create(client)
        return await function(self)

    # The signature is this function's, not the wrapped one's.
    del call.__wrapped__
    return call  # type: ignore[return-value]

"""Probes: looks at something beside the load, by a user of their own who sends nothing of the scenario's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from squall._dsl import ProbeMark, TaskMark
from squall._errors import ScenarioError
from squall._metrics import emit_metric


class ProbeContext:
    """What a probe may ask for: the run's parameters and a client of its own."""

    __slots__ = ("client", "init_params")

    def __init__(self, init_params: Mapping[str, Any], client: Any) -> None:
        self.init_params = dict(init_params)
        self.client = client

    def get(self, name: str, default: Any = None) -> Any:
        """One of the run's parameters (``--param name=value``)."""
        return self.init_params.get(name, default)


def probe_task(mark: ProbeMark, params: Mapping[str, Any]) -> tuple[TaskMark, Callable[..., Any]]:
    """The probe as a task: looks, and writes down what it saw."""
    takes = len(inspect.signature(mark.function).parameters)
    if takes > 1:
        raise ScenarioError(f"probe {mark.name!r} must take nothing, or a context", mark.file, mark.line)
    function = mark.function
    task = TaskMark(mark.name, 1, (), mark.every, mark.timeout, mark.file, mark.line)

    if takes:

        def call_function(client: Any) -> Any:
            return function(ProbeContext(params, client))

    else:

        def call_function(client: Any) -> Any:
            return function()

    if inspect.iscoroutinefunction(function):

        async def awaited(user: Any, client: Any) -> None:
            _record_result(mark.name, await call_function(client))

        return task, awaited

    def called(user: Any, client: Any) -> None:
        _record_result(mark.name, call_function(client))

    return task, called


def _record_result(name: str, seen: Any) -> None:
    if isinstance(seen, Awaitable):
        raise TypeError(f"probe {name!r} returned something to await: make it async def")
    if isinstance(seen, bool) or seen is None:
        emit_metric(name, status=seen is not False, result_code="PROBE_OK" if seen is not False else "PROBE_FALSE")
        return
    if not isinstance(seen, (int, float)):
        raise TypeError(f"probe {name!r} returned {type(seen).__name__}: give a number, True, False or None")
    if not seen >= 0:
        raise ValueError(f"probe {name!r} returned {seen}: a series holds numbers from 0 on")
    emit_metric(name, time=float(seen), result_code="PROBE_OK")

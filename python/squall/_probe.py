"""Probes: functions that measure something beside the load. They run as the tasks of an extra user,
which runs no task of the scenario."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from squall import _squall
from squall._current_client import current_client
from squall._dsl import ProbeMark, TaskMark
from squall._errors import ScenarioError
from squall._metrics import emit_metric

#: Most characters of a text that a probe returns; each distinct text is a metric.
_MAX_TEXT = 100
#: Most distinct texts of one probe. Further ones are counted together, so that a text that changes
#: every time leaves room for the metrics of the scenario.
_MAX_TEXTS = 20
_OTHER_TEXTS = "(other texts)"
_texts: dict[str, set[str]] = {}


class ProbeContext:
    """The argument of a probe: the run's parameters and a client of its own."""

    __slots__ = ("client", "init_params")

    def __init__(self, init_params: Mapping[str, Any], client: Any) -> None:
        self.init_params = dict(init_params)
        self.client = client

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a parameter of the run (``--param name=value``)."""
        return self.init_params.get(name, default)


def probe_task(mark: ProbeMark, params: Mapping[str, Any]) -> tuple[TaskMark, Callable[..., Any]]:
    """Returns the probe as a task that calls the function and records its result."""
    takes = len(inspect.signature(mark.function).parameters)
    if takes > 1:
        raise ScenarioError(f"probe {mark.name!r} must take no argument, or a context", mark.file, mark.line)
    function = mark.function
    task = TaskMark(mark.name, 1, (), mark.every, mark.timeout, mark.file, mark.line)

    if takes:

        def call_function(client: Any) -> Any:
            current_client.set(client)
            return function(ProbeContext(params, client))

    else:

        def call_function(client: Any) -> Any:
            current_client.set(client)
            return function()

    if inspect.iscoroutinefunction(function):

        async def awaited(user: Any, client: Any) -> None:
            _record_result(mark.name, await call_function(client))

        return task, awaited

    def called(user: Any, client: Any) -> None:
        _record_result(mark.name, call_function(client))

    return task, called


def _record_result(name: str, result: Any) -> None:
    if isinstance(result, Awaitable):
        raise TypeError(f"probe {name!r} returned an awaitable: make it async def")
    if isinstance(result, bool) or result is None:
        emit_metric(name, status=result is not False, result_code="PROBE_OK" if result is not False else "PROBE_FALSE")
        return
    if isinstance(result, str):
        _squall.emit(name, 0.0, True, "PROBE_OK", text=_text_of_metric(name, result[:_MAX_TEXT]))
        return
    if not isinstance(result, (int, float)):
        raise TypeError(f"probe {name!r} returned {type(result).__name__}: return a number, a text, True, False or None")
    if not result >= 0:
        raise ValueError(f"probe {name!r} returned {result}: return a number of 0 or more")
    emit_metric(name, time=float(result), result_code="PROBE_OK")


def _text_of_metric(name: str, text: str) -> str:
    texts = _texts.setdefault(name, set())
    if text not in texts and len(texts) >= _MAX_TEXTS:
        return _OTHER_TEXTS
    texts.add(text)
    return text

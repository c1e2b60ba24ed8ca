"""Custom metrics that a scenario records beside its requests."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from squall import _squall

F = TypeVar("F", bound=Callable[..., Any])


def emit_metric(name: str, *, time: float = 0.0, status: bool = True, result_code: str | None = None) -> None:
    """Adds a sample to the metric ``name``: ``time`` in milliseconds, ``status`` True for
    success."""
    if not name:
        raise ValueError("emit_metric needs a name")
    _squall.emit(name, time / 1e3, status, result_code or ("METRIC_OK" if status else "METRIC_EXCEPTION"))


def metric(name: str) -> Callable[[F], F]:
    """Records the time of every call of a function in the metric ``name``; a call that raises
    counts as failed."""
    if not isinstance(name, str):
        raise TypeError("@metric needs a name: @metric('checkout')")

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                begun = time.perf_counter()
                passed = False
                try:
                    result = await function(*args, **kwargs)
                    passed = True
                    return result
                finally:
                    emit_metric(name, time=(time.perf_counter() - begun) * 1e3, status=passed)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            passed = False
            try:
                result = function(*args, **kwargs)
                passed = True
                return result
            finally:
                emit_metric(name, time=(time.perf_counter() - begun) * 1e3, status=passed)

        return called  # type: ignore[return-value]

    return decorate

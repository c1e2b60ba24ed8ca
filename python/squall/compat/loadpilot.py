"""The API of LoadPilot: ``VUser``, ``scenario``, ``task``, ``LoadClient``. Keeps its defaults, its
meaning of ``ramp_up`` (added before the duration, not part of it) and its client, which coroutines
do not await."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from squall import _dsl
from squall._errors import ScenarioError
from squall._squall import Client as LoadClient
from squall._thresholds import read_thresholds
from squall.compat._sync_client import with_sync_client

__all__ = ["LoadClient", "VUser", "scenario", "task"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


class VUser(_dsl.VUser):
    """A virtual user with LoadPilot's empty hooks, which subclasses may call."""

    def on_start(self, client: Any) -> None:
        pass

    def on_stop(self, client: Any) -> None:
        pass

    on_start.__squall_nothing__ = on_stop.__squall_nothing__ = True  # type: ignore[attr-defined]


def scenario(
    rps: float = 10,
    duration: str = "1m",
    ramp_up: str = "10s",
    mode: str = "ramp",
    steps: int = 5,
    thresholds: Mapping[str, float] | None = None,
) -> Callable[[C], C]:
    """LoadPilot's ``@scenario``: sets the load."""
    file, line = _dsl._caller()
    if mode not in ("ramp", "constant", "step", "spike"):
        raise ScenarioError(f"mode={mode!r} is unknown: there are ramp, constant, step and spike", file, line)
    ramp = _seconds(ramp_up, file, line) if mode == "ramp" else 0
    load: dict[str, Any] = {"rps": rps, "duration": _seconds(duration, file, line) + ramp}
    if mode == "ramp":
        load["ramp_up"] = ramp
    else:
        load["mode"] = mode
    if mode == "step":
        load["steps"] = steps
    texts = {key: _dsl._text(value, seconds=key in ("duration", "ramp_up")) for key, value in load.items()}
    if not ramp:
        texts.pop("ramp_up", None)
    mark = _dsl.ScenarioMark(None, None, texts, read_thresholds(thresholds, file, line), file, line, from_loadpilot=True)

    def decorate(cls: C) -> C:
        cls.__squall_scenario__ = mark  # type: ignore[attr-defined]
        for name in ("on_start", "on_stop"):
            hook = getattr(cls, name, None)
            if inspect.iscoroutinefunction(hook):
                setattr(cls, name, _with_sync_client(hook))
        return cls

    return decorate


def task(function: Callable[..., Any] | None = None, /, *, weight: float = 1) -> Any:
    """LoadPilot's ``@task``: makes a method a task, with or without parentheses."""
    file, line = _dsl._caller()
    if not (isinstance(weight, (int, float)) and 0 < weight < float("inf")):
        raise ScenarioError(f"weight={weight!r}: give a number above 0", file, line)

    def decorate(function: F) -> F:
        return _dsl._mark(_with_sync_client(function), _dsl.TaskMark(function.__name__, weight, (), None, None, file, line))

    return decorate if function is None else decorate(function)


def _with_sync_client(function: F) -> F:
    """Returns a coroutine function whose client calls need no ``await``; other functions
    unchanged."""
    if not inspect.iscoroutinefunction(function) or hasattr(function, "__squall_sync_client__"):
        return function
    return with_sync_client(function)  # type: ignore[return-value]


def _seconds(text: str | float, file: str, line: int) -> float:
    if isinstance(text, (int, float)):
        return text
    parts = re.fullmatch(r"\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s?)?\s*", text)
    if not parts or not any(parts.groups()):
        raise ScenarioError(f"{text!r} is not a duration: write 30s, 2m or 1m30s", file, line)
    return int(parts[1] or 0) * 60 + int(parts[2] or 0)

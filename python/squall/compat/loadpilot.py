"""LoadPilot's words. Its defaults and its reading of ``ramp_up`` (a part before the run, not of it) are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from squall import _dsl
from squall._dsl import VUser, task
from squall._errors import ScenarioError
from squall._squall import Client as LoadClient

__all__ = ["LoadClient", "VUser", "scenario", "task"]

C = TypeVar("C", bound=type)


def scenario(
    rps: float = 10,
    duration: str = "1m",
    ramp_up: str = "10s",
    mode: str = "ramp",
    steps: int = 5,
    thresholds: Mapping[str, float] | None = None,
) -> Callable[[C], C]:
    """How much load: LoadPilot's ``@scenario``."""
    file, line = _dsl._caller()
    if mode not in ("ramp", "constant", "step", "spike"):
        raise ScenarioError(f"mode={mode!r}: there are ramp, constant, step and spike", file, line)
    ramp = _seconds(ramp_up, file, line) if mode == "ramp" else 0
    load: dict[str, Any] = {"rate": rps, "for": _seconds(duration, file, line) + ramp}
    if mode == "ramp":
        load["ramp_up"] = ramp
    else:
        load["profile"] = mode
    if mode == "step":
        load["steps"] = steps
    texts = {key: _dsl._text(value, seconds=key in ("for", "ramp_up")) for key, value in load.items()}
    if not ramp:
        texts.pop("ramp_up", None)
    mark = _dsl.ScenarioMark(None, None, texts, _dsl._thresholds(thresholds, file, line), file, line)

    def decorate(cls: C) -> C:
        cls.__squall_scenario__ = mark  # type: ignore[attr-defined]
        return cls

    return decorate


def _seconds(text: str | float, file: str, line: int) -> float:
    if isinstance(text, (int, float)):
        return text
    parts = re.fullmatch(r"\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s?)?\s*", text)
    if not parts or not any(parts.groups()):
        raise ScenarioError(f"{text!r} is no duration: write 30s, 2m or 1m30s", file, line)
    return int(parts[1] or 0) * 60 + int(parts[2] or 0)

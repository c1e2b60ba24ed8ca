"""Reads the argument ``thresholds`` of ``@scenario`` into thresholds as the command line writes them.
It checks only the shape: squall-scenario parses the texts. ``_dsl`` and ``compat.loadpilot`` call it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from squall._errors import ScenarioError, display_path

_KNOWN = (
    "p50_ms (any percentile), mean_ms, min_ms, max_ms, error_rate, errors, dropped, late, mean_bytes; requests, rate (at least); "
    "or keys and values of the command line: 'p99': '500ms', 'error_rate': '1%', 'p99<': '500ms'"
)


@dataclass(frozen=True)
class DeclaredThresholds:
    """Thresholds as text, and what the reader of the scenario should know about them."""

    texts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_thresholds(given: Any, file: str, line: int) -> DeclaredThresholds:
    """Returns the thresholds of a text, a list of texts or a dict of limits."""
    if given is None:
        return DeclaredThresholds()
    if isinstance(given, str):
        return DeclaredThresholds((given,))
    if isinstance(given, Mapping):
        texts = tuple(_threshold(key, limit, file, line) for key, limit in given.items())
        notes = (_percent_note(key, limit, file, line) for key, limit in given.items())
        return DeclaredThresholds(texts, tuple(note for note in notes if note))
    if not isinstance(given, Iterable):
        raise ScenarioError(f"thresholds={given!r}: give a list such as ['p99<500ms', 'error_rate<1%']", file, line)
    # A set has no order of its own, and the report should not change between runs.
    texts = tuple(str(threshold) for threshold in given)
    return DeclaredThresholds(tuple(sorted(texts)) if isinstance(given, (set, frozenset)) else texts)


def _threshold(key: Any, limit: Any, file: str, line: int) -> str:
    if not isinstance(key, str):
        raise ScenarioError(f"threshold {key!r}: give a string such as 'p99_ms' or 'p99<500ms'", file, line)
    if re.search("[<>]", key):
        return _threshold_with_comparison(key, limit, file, line)
    metric, _, statistic = key.rpartition(":")
    at = f"{metric}:" if metric else ""
    if isinstance(limit, str):
        # The command line's own form: the limit has its unit.
        comparison = ">=" if re.sub(r"\[.*", "", statistic) in ("requests", "rate") else "<="
        return f"{at}{statistic}{comparison}{limit}"
    if not _is_number(limit):
        raise ScenarioError(f"threshold {key!r}: {limit!r} is not a number", file, line)
    if statistic == "error_rate":
        return f"{at}error_rate<={number_text(limit)}%"
    if statistic.endswith("_ms"):
        return f"{at}{statistic.removesuffix('_ms')}<={number_text(limit)}ms"
    if statistic in ("errors", "dropped", "late", "mean_bytes"):
        return f"{at}{statistic}<={number_text(limit)}"
    if statistic in ("requests", "rate"):
        return f"{at}{statistic}>={number_text(limit)}"
    raise ScenarioError(f"threshold {key!r} is unknown; there are {_KNOWN}", file, line)


def _threshold_with_comparison(key: str, limit: Any, file: str, line: int) -> str:
    """Returns the threshold of ``{"p99<500ms": True}`` or ``{"p99<": "500ms"}``."""
    is_whole = not re.search("[<>]=?\\s*$", key)
    if is_whole and limit in (True, None):
        return key
    if not is_whole and (isinstance(limit, str) or _is_number(limit)):
        return f"{key}{limit if isinstance(limit, str) else number_text(limit)}"
    write = "write it in a list, or as {'p99<500ms': True}" if is_whole else "give a limit such as '500ms' or '1%'"
    raise ScenarioError(f"threshold {key!r}: {limit!r} does not belong to it: {write}", file, line)


def _percent_note(key: Any, limit: Any, file: str, line: int) -> str | None:
    """Returns how a number below 1 is read that may be meant as a fraction."""
    if str(key).rpartition(":")[2] != "error_rate" or not _is_number(limit) or not 0 < limit < 1:
        return None
    read, meant = number_text(limit), number_text(float(f"{limit * 100:.12g}"))
    where = f"{display_path(file)}:{line}: thresholds"
    return f"{where}: {{{key!r}: {limit!r}}} is read as {read} %; write '{read}%' for this, or '{meant}%' for the fraction {limit!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_text(number: float) -> str:
    """Returns a number without an exponent, which squall-scenario does not read."""
    return f"{number:.9f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)

"""The options of streams and processors, each listed once, and the functions that check them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from squall.streams._errors import Misconfigured

if TYPE_CHECKING:
    from squall.streams._formats import Serializer
    from squall.streams._settings import ExceptionPolicy

_T = TypeVar("_T")


class StreamOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`App.stream`. A missing option, or ``None``, takes the app's
    ``default_…`` setting."""

    serializer: Serializer | None
    partition_count: int | None
    #: How many events a partition holds before senders wait for a processor.
    partition_size: int | None
    #: ``"xxh64"`` or ``"md5"``.
    hasher: str | Callable[[Any], int] | None
    #: Seconds that a sender waits for space, by default 30; ``None`` raises :class:`PartitionFull`
    #: at once.
    wait: float | None
    #: Whether a full partition without a processor drops its oldest events.
    drop_unread: bool


class ProcessorOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`App.processor`. A missing option, or ``None``, takes the app's
    ``default_…`` setting."""

    name: str | None
    exception_policy: ExceptionPolicy | str | None
    middleware: list[Any] | None
    lock_expiry: float | None
    grace_period: float | None
    prefetch_count: int | None
    pool_size: int | None
    join_delay: float | None
    #: How often a failed event is retried before the policy acts, and the seconds before the first
    #: retry.
    retries: int
    retry_backoff: float
    #: Seconds between two counts of lag and rate, which are logged.
    report: float
    # Options of runnel that have no effect here: reads do not block, and assignments are not
    # retried.
    read_timeout: float | None
    assignment_attempts: int | None
    assignment_sleep: float | None


def check_names(refusal: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises :class:`Misconfigured` for an unknown name, with the closest known one."""
    known = list(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise Misconfigured(f"{refusal} {name!r}; {hint}")


def or_default(given: _T | None, default: _T) -> _T:
    """Returns ``given``, or ``default`` if it is None. Zero is not None."""
    return default if given is None else given


def count(what: str, value: object, *, least: int = 1) -> int:
    """Returns ``value`` if it is a whole number of at least ``least``; raises otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Misconfigured(f"{what} must be a whole number of at least {least}, not {value!r}")
    return value


def seconds(what: str, value: object, *, above_zero: bool = False) -> float:
    """Returns ``value`` as seconds; raises if it is not a duration."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf") or (above_zero and value == 0):
        raise Misconfigured(f"{what} must be seconds{' above zero' if above_zero else ''}, not {value!r}")
    return float(value)

"""What can be said about a stream and about a processor. Every option is listed once, here, and checked where it is used."""

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
    """Keyword arguments of :meth:`App.stream`; what is left out, or ``None``, comes from the app's ``default_…`` settings."""

    serializer: Serializer | None
    partition_count: int | None
    #: How many events a partition holds before sending has to wait for a processor.
    partition_size: int | None
    #: ``"xxh64"`` or ``"md5"``.
    hasher: str | Callable[[Any], int] | None
    #: How many seconds sending waits for room, by default 30; ``None`` to raise :class:`PartitionFull` at once.
    wait: float | None
    #: Whether a full partition that no processor reads drops its oldest events.
    drop_unread: bool


class ProcessorOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`App.processor`; what is left out, or ``None``, comes from the app's ``default_…`` settings."""

    name: str | None
    exception_policy: ExceptionPolicy | str | None
    middleware: list[Any] | None
    lock_expiry: float | None
    grace_period: float | None
    prefetch_count: int | None
    pool_size: int | None
    join_delay: float | None
    #: How often a failed event is tried again before the policy acts, and how many seconds after the first failure.
    retries: int
    retry_backoff: float
    #: Every how many seconds lag and rate are counted and logged.
    report: float
    # Known to the original system and without meaning here: nothing blocks in a read, and assignments are not attempts.
    read_timeout: float | None
    assignment_attempts: int | None
    assignment_sleep: float | None


def check_names(refusal: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a name that is not known, with the one that was probably meant."""
    known = list(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise Misconfigured(f"{refusal} {name!r}; {hint}")


def or_default(given: _T | None, default: _T) -> _T:
    """What was given, or else the app's default. Zero is something that was given."""
    return default if given is None else given


def count(what: str, value: object, *, least: int = 1) -> int:
    """A whole number, not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Misconfigured(f"{what} must be a whole number of at least {least}, not {value!r}")
    return value


def seconds(what: str, value: object, *, above_zero: bool = False) -> float:
    """A length of time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf") or (above_zero and value == 0):
        raise Misconfigured(f"{what} must be seconds{' above zero' if above_zero else ''}, not {value!r}")
    return float(value)

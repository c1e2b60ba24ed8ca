"""The exceptions of ``squall.streams``."""

from __future__ import annotations


class StreamError(Exception):
    """The base of all exceptions of streams."""


class Misconfigured(StreamError):
    """An app, stream or processor has an invalid definition."""


class Unreachable(StreamError):
    """Redis does not respond."""


class NotSent(StreamError):
    """Records were not appended, or it is unknown whether they were."""


class PartitionFull(NotSent):
    """The partition is full and has no events that may be dropped."""


class Halted(StreamError):
    """A processor failed and its exception policy stopped the worker."""


_KINDS: dict[str, type[StreamError]] = {
    "misconfigured": Misconfigured,
    "unreachable": Unreachable,
    "full": PartitionFull,
    "not_sent": NotSent,
    "halted": Halted,
}


def make_error(kind: str, text: str) -> StreamError:
    """Returns the exception for an error of the engine."""
    return _KINDS[kind](text)

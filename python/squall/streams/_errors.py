"""What can go wrong with streams, as exceptions."""

from __future__ import annotations


class StreamError(Exception):
    """Anything below."""


class Misconfigured(StreamError):
    """An app, stream or processor that cannot work as it is written."""


class Unreachable(StreamError):
    """Redis does not answer."""


class NotSent(StreamError):
    """Records were not, or perhaps not, appended."""


class PartitionFull(NotSent):
    """There is no room, and nothing that may be dropped."""


class Halted(StreamError):
    """A processor failed and its policy ended the worker."""


_KINDS: dict[str, type[StreamError]] = {
    "misconfigured": Misconfigured,
    "unreachable": Unreachable,
    "full": PartitionFull,
    "not_sent": NotSent,
    "halted": Halted,
}


def make_error(kind: str, text: str) -> StreamError:
    """The exception for what the engine reports."""
    return _KINDS[kind](text)

"""Middleware between a stream and a processor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.streams._stream import Stream


class Middleware:
    """Sees events, or batches of them, before the processor does."""

    def handler(self, parent: AsyncIterator[Any], **kwargs: Any) -> AsyncIterator[Any]:
        """An async generator over ``parent`` that yields its items, changed or not. An item that it
        skips counts as processed when it requests the next. If the processor raises, ``yield``
        raises GeneratorExit, which must not be caught.
        """
        raise NotImplementedError


class DeadLetterMiddleware(Middleware):
    """Sends failed events to the stream ``dead.<name>`` and continues with the next, whatever the
    exception policy."""

    def __init__(self, source: Stream) -> None:
        self.source = source

"""Steps between a stream and a processor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.streams._stream import Stream


class Middleware:
    """A step that sees events, or batches of them, before the processor does."""

    def handler(self, parent: AsyncIterator[Any], **kwargs: Any) -> AsyncIterator[Any]:
        """An async generator over ``parent``: yields what it gets, changed or not. What it leaves out counts as processed when it asks
        for more. If the processor raises, GeneratorExit is raised at its ``yield`` and must leave it.
        """
        raise NotImplementedError


class DeadLetterMiddleware(Middleware):
    """Sends events that failed to the stream ``dead.<name>`` and goes on; the exception policy does not act."""

    def __init__(self, source: Stream) -> None:
        self.source = source

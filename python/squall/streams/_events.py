"""The events of one partition as a processor iterates over them: single events, records or
batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall import _squall
from squall.streams._errors import Misconfigured

if TYPE_CHECKING:
    from squall.streams._app import Processor
    from squall.streams._stream import Stream

#: Events that a processor takes before it yields to other partitions.
_EVENTS_PER_TURN = 64


@dataclass(frozen=True)
class Partition:
    """The partition of an event."""

    stream: Stream
    number: int
    #: The Redis key.
    key: str

    def __repr__(self) -> str:
        return f"partition {self.number} of {self.stream.id}"


class Events:
    """The argument of a processor. Iterate over it for events, over :meth:`records` for records,
    and over :meth:`take` for batches of either. Requesting the next item acknowledges the previous
    one. Return when the iteration ends: the partition moves to another worker, or the exception
    policy handles an event that cannot be read. If the partition stays, the worker calls the
    processor again.
    """

    def __init__(self, processor: Processor, source: _squall.StreamSource, opened: _squall.Stream) -> None:
        self.processor = processor
        self.stream = processor.stream
        self.partition = Partition(processor.stream, source.partition, opened.key(source.partition))
        self._source = source
        self._batch: tuple[int, float] | None = None
        self._as_records = False
        self._waiter: asyncio.Future[None] | None = None
        self._running: list[AsyncIterator[Any]] = []

    @property
    def fence(self) -> tuple[str, int]:
        """Key and epoch of the partition's lock. This processor owns the partition while the hash
        at the key has this epoch."""
        return self._source.fence

    def __call__(self) -> Events:
        return self

    def records(self) -> Events:
        """Makes items records."""
        self._as_records = True
        return self

    def take(self, n: int, within: float) -> Events:
        """Makes items lists of up to ``n``: waits for the first event, then at most ``within``
        seconds for the others. A batch is acknowledged, or fails, as a whole.
        """
        if n < 1:
            raise Misconfigured(f"take({n}, …): a batch needs at least one event")
        if within > self.processor.grace_period:
            raise Misconfigured(f"take(…, within={within}): longer than grace_period ({self.processor.grace_period} s)")
        self._batch = (n, within)
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        middleware = self.processor.handlers
        if self._as_records and self._batch is None and not middleware:
            return self._register(self._records_direct())
        items = self._register(self._single_events() if self._batch is None else self._batches(*self._batch))
        for step in middleware:
            items = self._register(step.handler(items, events=self))
        return self._register(self._decode_items(items)) if self._as_records else items

    def _register(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        self._running.append(items)
        return items

    async def _close(self) -> None:
        """Closes all generators, the outermost first, so that middleware ends before the next
        call."""
        while self._running:
            closing = getattr(self._running.pop(), "aclose", None)
            if closing is not None:
                await closing()

    # Waiting. The engine sends one `ready` for each `want`; the next wait reuses an abandoned one.

    async def _wait_ready(self) -> None:
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
            self._source.request_ready()
        await asyncio.shield(self._waiter)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # Taking events.

    async def _records_direct(self) -> AsyncGenerator[Any, None]:
        record, read = self._source.record, self.stream._read
        turn = 0
        while True:
            item = record(read)
            if item is None:
                await self._wait_ready()
                turn = 0
            elif item is ...:
                return
            else:
                yield item
                turn += 1
                if turn == _EVENTS_PER_TURN:
                    turn = 0
                    await asyncio.sleep(0)

    async def _single_events(self) -> AsyncGenerator[Any, None]:
        turn = 0
        while True:
            self._source.complete()
            event = await self._next_event()
            if event is None:
                return
            yield event
            turn += 1
            if turn == _EVENTS_PER_TURN:
                turn = 0
                await asyncio.sleep(0)

    async def _next_event(self) -> Any:
        while (event := self._take()) is None:
            await self._wait_ready()
        return None if event is ... else event

    def _take(self) -> Any:
        return self._source.take(self.partition, self.processor.name)

    async def _batches(self, n: int, within: float) -> AsyncGenerator[Any, None]:
        loop = asyncio.get_running_loop()
        while True:
            self._source.complete()
            first = await self._next_event()
            if first is None:
                return
            batch, deadline = [first], loop.time() + within
            while len(batch) < n:
                event = self._take()
                if event is ...:
                    break
                if event is not None:
                    batch.append(event)
                    continue
                try:
                    await asyncio.wait_for(self._wait_ready(), deadline - loop.time())
                except TimeoutError:
                    break
            yield batch
            await asyncio.sleep(0)

    async def _decode_items(self, items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        read = self.stream._read
        async for item in items:
            events = item if isinstance(item, list) else [item]
            records: list[Any] = []
            broken: Exception | None = None
            for event in events:
                try:
                    records.append(event.load(read))
                except Exception as error:
                    broken = error
                    break
            if broken is not None:
                # The processor gets the records before the broken event first. The event then comes
                # again as the first of its batch, and the exception policy handles it.
                self._source.put_back(len(events) - max(len(records), 1))
                if not records:
                    self._source.reject_last(f"{type(broken).__name__}: {broken}")
                    return
            yield records if isinstance(item, list) else records[0]

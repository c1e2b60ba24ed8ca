"""Parses server-sent events from the chunks of a streamed response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class _Parser:
    """Parses bytes into events, as the HTML standard defines."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, piece: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            if text:
                name, _, value = text.partition(":")
                if name:
                    self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            fields, self._fields = self._fields, {}
            if "data" in fields:
                retry = fields.get("retry", [""])[-1]
                yield Event(
                    "\n".join(fields["data"]),
                    fields.get("event", ["message"])[-1],
                    fields.get("id", [None])[-1],
                    int(retry) if retry.isdigit() else None,
                )


async def events(answer: Any) -> AsyncIterator[Event]:
    """Yields the server-sent events of a streamed response: ``async for event in
    squall.events(answer)``."""
    parser = _Parser()
    async for piece in answer:
        for event in parser.feed(piece):
            yield event


def events_blocking(answer: Any) -> Iterator[Event]:
    """:func:`events` for plain functions."""
    parser = _Parser()
    for piece in answer:
        yield from parser.feed(piece)

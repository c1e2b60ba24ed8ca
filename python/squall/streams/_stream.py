"""Streams: their records, their order, and sending."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from squall import _squall
from squall.streams._errors import Misconfigured
from squall.streams._formats import JSONSerializer
from squall.streams._mailbox import mailbox
from squall.streams._options import StreamOptions, check_names, count, or_default, seconds
from squall.streams._record import Record
from squall.streams._settings import hasher_name

if TYPE_CHECKING:
    from squall.streams._app import App


class Stream:
    """A stream of records in partitions. Created by :meth:`App.stream`."""

    def __init__(
        self,
        app: App,
        name: str,
        record: type[Any],
        partition_by: str | Callable[[Any], Any],
        **options: Unpack[StreamOptions],
    ) -> None:
        check_names(f"stream {name!r} has no option", options, StreamOptions.__annotations__)
        if not (isinstance(record, type) and (issubclass(record, Record) or hasattr(record, "model_validate"))):
            raise Misconfigured(f"record of stream {name!r} must be a subclass of Record, not {record!r}")
        if not (isinstance(partition_by, str) or callable(partition_by)):
            raise Misconfigured(f"partition_by of stream {name!r} must name an attribute or be a function of the record")
        settings, serializer, wait = app.settings, options.get("serializer"), options.get("wait", 30)
        primitive = issubclass(record, Record) and record._primitive
        if primitive and serializer is not None:
            raise Misconfigured(f"stream {name!r} has primitive records, which are not serialized: leave out the serializer")
        self.app = app
        self.name = name
        self.record = record
        self.partition_by = partition_by
        self.serializer = None if primitive else serializer or settings.default_serializer or JSONSerializer()
        partitions = or_default(options.get("partition_count"), settings.default_partition_count)
        self.partition_count = count(f"partition_count of stream {name!r}", partitions)
        size = or_default(options.get("partition_size"), settings.default_partition_size)
        self.partition_size = count(f"partition_size of stream {name!r}", size)
        self.hasher = hasher_name(or_default(options.get("hasher"), settings.default_hasher))
        self.wait = None if wait is None else seconds(f"wait of stream {name!r}", wait)
        self.drop_unread = bool(options.get("drop_unread", False))
        self._opened: _squall.Stream | None = None
        self._read: Callable[[Any], Any] = self._reader()

    @property
    def id(self) -> str:
        return f"{self.app.name}.{self.name}"

    def __repr__(self) -> str:
        return f"<Stream {self.id}>"

    @property
    def _format(self) -> str:
        """The form in which the engine passes an event to the record class."""
        if self.serializer is None:
            return "flat"
        return "json" if self._native else "bytes"

    @property
    def _native(self) -> bool:
        serializer = self.serializer
        return serializer is not None and serializer.native and (serializer.compressor is None or serializer.compressor.native is not None)

    def _reader(self) -> Callable[[Any], Any]:
        if not issubclass(self.record, Record):
            plain: Callable[[Any], Any] = getattr(self.record, "model_validate")  # noqa: B009
        elif self.serializer is None:
            return self.record._read_flat
        else:
            plain = self.record._read
        if self._native:
            return plain
        return lambda data: plain(self._loads(data))

    def _loads(self, data: bytes) -> Any:
        assert self.serializer is not None
        if self.serializer.compressor is not None:
            data = self.serializer.compressor.decompress(data)
        return json.loads(data) if self.serializer.native else self.serializer.loads(data)

    def _encode(self, record: Any) -> tuple[str | None, bytes | None, list[tuple[bytes, bytes]]]:
        if not isinstance(record, self.record):
            raise TypeError(f"stream {self.name!r} holds {self.record.__name__}, not {record!r}")
        key = repr(self.key(record))
        if self.serializer is None:
            return key, None, record._wire_flat()
        plain = record._wire() if isinstance(record, Record) else record.model_dump(mode="json")
        if self.serializer.native:
            data = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
        else:
            data = self.serializer.dumps(plain)
        if not self._native and self.serializer.compressor is not None:
            data = self.serializer.compressor.compress(data)
        return key, data, []

    def key(self, record: Any) -> Any:
        """Returns the key of a record. Records of one key stay in order."""
        return getattr(record, self.partition_by) if isinstance(self.partition_by, str) else self.partition_by(record)

    async def route(self, key: Any) -> int:
        """Returns the partition of a key."""
        return (await self._open()).route(repr(key))

    async def send(self, *records: Any, stream_ids: None = None) -> list[str]:
        """Appends records and returns their ids. Records of one key stay in order. Waits while a
        partition is full, up to the stream's ``wait``. After a lost reply it asks again without
        appending twice.
        """
        if stream_ids is not None:
            raise Misconfigured("stream_ids is not supported: only ids of the server make it safe to send a batch again")
        encoded = [self._encode(record) for record in records]
        stream, box = await self._open(), mailbox()
        ids: list[str] = await box.wait_for(stream.send(box.native, encoded, not self._native))
        return ids

    async def _open(self) -> _squall.Stream:
        if self._opened is None:
            link, box = await self.app._connect(), mailbox()
            compressor = self.serializer.compressor if self.serializer is not None and self._native else None
            definition = {
                "name": self.name,
                "partitions": self.partition_count,
                "size": self.partition_size,
                "hasher": self.hasher,
                "compression": (compressor.native if compressor is not None else None) or "none",
                "wait": self.wait,
                "drop_unread": self.drop_unread,
            }
            self._opened = await box.wait_for(link.open(box.native, definition))
        return self._opened

"""How records are written: serializers and compressors. The built-in ones only name what the engine does; own ones do it themselves."""

from __future__ import annotations

from typing import Any, ClassVar


class Compressor:
    """Compresses what a serializer has written."""

    #: What the engine calls it; none for one of your own.
    native: ClassVar[str | None] = None

    def compress(self, value: bytes) -> bytes:
        raise NotImplementedError

    def decompress(self, value: bytes) -> bytes:
        raise NotImplementedError


class Gzip(Compressor):
    native = "gzip"


class LZ4(Compressor):
    """LZ4 frames."""

    native = "lz4"


class Zstd(Compressor):
    native = "zstd"


class Serializer:
    """Writes and reads the plain form of a record: a dict of what JSON knows."""

    #: Whether the engine reads and writes it.
    native: ClassVar[bool] = False
    compressor: Compressor | None = None

    def __init__(self, compressor: Compressor | None = None) -> None:
        if compressor is not None:
            self.compressor = compressor

    def dumps(self, value: Any) -> bytes:
        raise NotImplementedError

    def loads(self, value: bytes) -> Any:
        raise NotImplementedError


class JSONSerializer(Serializer):
    """Compact JSON, read by the engine. Whichever way an event is compressed, it is recognised."""

    native = True


class FastJSONSerializer(JSONSerializer):
    """The same; there is only a fast one."""

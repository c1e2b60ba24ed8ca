"""Serializers and compressors of records. The built-in ones only name a format of the engine;
subclasses implement their own."""

from __future__ import annotations

from typing import Any, ClassVar


class Compressor:
    """Compresses the output of a serializer."""

    #: The engine's name of the format; None for your own.
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
    """Writes and reads the plain form of a record: a dict of JSON values."""

    #: Whether the engine reads and writes the format.
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
    """Compact JSON, which the engine reads. It detects the compression of each event."""

    native = True


class FastJSONSerializer(JSONSerializer):
    """The same as :class:`JSONSerializer`, for code written for runnel."""

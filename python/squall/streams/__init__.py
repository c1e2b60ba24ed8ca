"""Ordered stream processing on Redis. A record's key selects its partition. One worker at a time
processes a partition, in order, each event at least once. Run with ``squall stream worker
module:app``; see docs/streams.md.
"""

from squall._squall import StreamEvent as Event
from squall.streams._app import App, Processor, Worker
from squall.streams._errors import Misconfigured, NotSent, PartitionFull, StreamError, Unreachable
from squall.streams._events import Events, Partition
from squall.streams._formats import LZ4, Compressor, FastJSONSerializer, Gzip, JSONSerializer, Serializer, Zstd
from squall.streams._middleware import DeadLetterMiddleware, Middleware
from squall.streams._options import ProcessorOptions, StreamOptions
from squall.streams._record import Record
from squall.streams._settings import ExceptionPolicy, fasthash, md5hash
from squall.streams._stream import Stream

__all__ = [
    "LZ4",
    "App",
    "Compressor",
    "DeadLetterMiddleware",
    "Event",
    "Events",
    "ExceptionPolicy",
    "FastJSONSerializer",
    "Gzip",
    "JSONSerializer",
    "Middleware",
    "Misconfigured",
    "NotSent",
    "Partition",
    "PartitionFull",
    "Processor",
    "ProcessorOptions",
    "Record",
    "Serializer",
    "Stream",
    "StreamError",
    "StreamOptions",
    "Unreachable",
    "Worker",
    "Zstd",
    "fasthash",
    "md5hash",
]

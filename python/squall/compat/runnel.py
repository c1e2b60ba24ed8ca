"""The API of runnel: ``App``, ``Record`` and the rest of :mod:`squall.streams`. An app has runnel's
key names in Redis and reads runnel's environment variables (``RUNNEL_REDIS_URL``)."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from squall import streams
from squall.streams import (
    LZ4,
    Compressor,
    DeadLetterMiddleware,
    Event,
    Events,
    ExceptionPolicy,
    FastJSONSerializer,
    Gzip,
    JSONSerializer,
    Middleware,
    Misconfigured,
    Partition,
    Processor,
    Record,
    Serializer,
    Stream,
    Worker,
    fasthash,
    md5hash,
)
from squall.streams._settings import Settings

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
    "Partition",
    "Processor",
    "Record",
    "Serializer",
    "Stream",
    "Worker",
    "fasthash",
    "md5hash",
]


class App(streams.App):
    """An app whose keys in Redis have runnel's names, so that it continues streams of runnel."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **{"namespace": "", **_environment(), **settings})


def _environment() -> dict[str, Any]:
    """Returns the settings of the variables ``RUNNEL_…`` that have a number or a text."""
    given: dict[str, Any] = {}
    for setting in fields(Settings):
        text = os.environ.get(f"RUNNEL_{setting.name.upper()}")
        if text is None or not isinstance(setting.default, (bool, int, float, str)):
            continue
        kind = type(setting.default)
        try:
            given[setting.name] = text.lower() in ("1", "true", "yes", "on") if kind is bool else kind(text)
        except ValueError:
            raise Misconfigured(f"RUNNEL_{setting.name.upper()}={text!r} is not a number") from None
    return given

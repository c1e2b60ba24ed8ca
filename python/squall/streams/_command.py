"""``squall stream worker MODULE:APP``, and ``send`` and ``sendmany`` to MODULE:STREAM: find the object,
use it and return the exit code. Report a mistake in the app in one line. The Rust host calls
:func:`work` and :func:`send` by name."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import json
import logging
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from squall import _squall, compat
from squall.streams._app import App
from squall.streams._errors import Halted, Misconfigured, StreamError, Unreachable
from squall.streams._record import Record
from squall.streams._stream import Stream
from squall.streams._worker import run

STOPPED, HALTED, UNUSABLE, UNREACHABLE = 0, 1, 2, 3
#: Lines of a file that are sent together.
_CHUNK_LINES = 1000

_Kind = TypeVar("_Kind", App, Stream)


def work(
    spec: str,
    *,
    processors: str = "all",
    redis_url: str | None = None,
    namespace: str | None = None,
    prometheus: str | None = None,
    allow_remote: bool = False,
    log_level: str | None = None,
    log_format: str | None = None,
) -> int:
    """Runs a worker until it stops and returns the exit code."""
    try:
        if prometheus is not None and not allow_remote and not ipaddress.ip_address(prometheus.rpartition(":")[0].strip("[]")).is_loopback:
            raise Misconfigured(
                f"--prometheus {prometheus} is reachable from other machines and has no login; add --allow-remote if you want that"
            )
        app = find(spec)
        settings = app.settings
        settings.redis_url = redis_url or settings.redis_url
        settings.namespace = settings.namespace if namespace is None else namespace
        level, form = log_level or settings.log_level, log_format or settings.log_format
        _squall.stream_logs(level.lower(), form == "json")
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        run(app, processors, prometheus, lambda line: print(line, file=sys.stderr, flush=True))
    except Halted as error:
        return _fail(str(error), HALTED)
    except Unreachable as error:
        return _fail(str(error), UNREACHABLE)
    except (StreamError, ValueError) as error:
        return _fail(str(error), UNUSABLE)
    return STOPPED


def _fail(text: str, code: int) -> int:
    print(f"squall: {text}", file=sys.stderr, flush=True)
    return code


def send(
    spec: str,
    *,
    record: str | None,
    file: Path | None,
    redis_url: str | None = None,
    namespace: str | None = None,
    no_wait: bool = False,
    drop_unread: bool = False,
) -> int:
    """Sends the JSON object ``record``, or those of ``file`` (``-``: standard input), one per line,
    to the stream MODULE:STREAM, and returns the exit code."""
    try:
        stream = _find(spec, Stream)
        settings = stream.app.settings
        settings.redis_url = redis_url or settings.redis_url
        settings.namespace = settings.namespace if namespace is None else namespace
        stream.wait = None if no_wait else stream.wait
        stream.drop_unread = drop_unread or stream.drop_unread
        if record is not None:
            print(asyncio.run(_send_one(stream, parse_record(stream, record, "the record"))))
        else:
            with sys.stdin.buffer if str(file) == "-" else open(str(file), "rb") as lines:
                asyncio.run(_send_lines(stream, lines))
    except OSError as error:
        return _fail(f"cannot read `{error.filename}`: {error.strerror}", UNUSABLE)
    except Unreachable as error:
        return _fail(str(error), UNREACHABLE)
    except (StreamError, ValueError) as error:
        return _fail(str(error), UNUSABLE)
    return STOPPED


def parse_record(stream: Stream, text: str | bytes, place: str) -> Any:
    """Returns the record of the stream's type that a JSON object describes."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place} is not a JSON object: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{place} is not a JSON object but a {type(values).__name__}")
    try:
        if issubclass(stream.record, Record):
            return stream.record(**values)
        return getattr(stream.record, "model_validate")(values)  # noqa: B009
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from None


async def _send_one(stream: Stream, record: Any) -> str:
    opened = await stream._open()
    [xid] = await stream.send(record)
    return f"{opened.key(await stream.route(stream.key(record)))} {xid}"


async def _send_lines(stream: Stream, lines: Iterable[bytes]) -> None:
    sent = 0
    chunk: list[Any] = []
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                chunk.append(parse_record(stream, line, f"line {number}"))
            except ValueError:
                sent += len(await stream.send(*chunk))
                raise
            if len(chunk) == _CHUNK_LINES:
                sent += len(await stream.send(*chunk))
                chunk.clear()
        sent += len(await stream.send(*chunk))
    except (StreamError, ValueError) as error:
        if not sent:
            raise
        raise type(error)(f"{sent} {'record was' if sent == 1 else 'records were'} sent before the error: {error}") from None
    print(f"sent {sent} records to {stream.id} in {stream.partition_count} partitions")


def find(spec: str) -> App:
    """Returns the app that MODULE:APP names."""
    app = _find(spec, App)
    if app.settings.autodiscover:
        for path in sorted(Path().glob(app.settings.autodiscover)):
            _import_module(".".join(path.with_suffix("").parts))
    return app


def _find(spec: str, kind: type[_Kind]) -> _Kind:
    """Returns the app or stream that MODULE:NAME names."""
    module_name, colon, name = spec.partition(":")
    what, article = kind.__name__, "an" if kind is App else "a"
    if not colon or not module_name or not name:
        example = "shop:app" if kind is App else "shop:orders"
        raise Misconfigured(f"{spec!r} does not name {article} {what.lower()}; write it as MODULE:{what.upper()}, for example {example}")
    if module_name.endswith(".py"):
        raise Misconfigured(f"{module_name!r} is a file; write its module, as in {module_name[:-3].replace('/', '.')}:{name}")
    folder = str(Path.cwd())
    compat.install(folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import_module(module_name)
    try:
        found = getattr(module, name)
    except AttributeError:
        known = ", ".join(f"{module_name}:{key}" for key, value in vars(module).items() if isinstance(value, kind))
        hint = f"; it has {known}" if known else f"; it has no {what}"
        raise Misconfigured(f"module {module_name!r} has no {name!r}{hint}") from None
    if not isinstance(found, kind):
        raise Misconfigured(f"{spec} is not {article} {what} of squall.streams but a {type(found).__name__}")
    return found


def _import_module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another name means that the module exists and an import inside it failed.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise Misconfigured(f"module {name!r} is neither in {Path.cwd()} nor on Python's path (PYTHONPATH)") from None
        raise Misconfigured(f"cannot import {name!r}: {_trace(error)}") from None
    except (StreamError, Exception, SystemExit) as error:
        raise Misconfigured(f"cannot import {name!r}: {_trace(error)}") from None


def _trace(error: BaseException) -> str:
    """Returns the exception and the frames of its traceback that belong to the app."""
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).strip()
    skipped = ("importlib", "/squall/streams/")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not any(part in frame.filename for part in skipped)]
    place = "".join(f"\n  {frame.filename}:{frame.lineno}: {frame.line}" for frame in frames)
    return f"{type(error).__name__}: {error}{place}"

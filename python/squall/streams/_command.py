"""``squall stream worker MODULE:APP``: finds the app, runs it and returns the exit code. Reports a
mistake in the app in one line. The Rust host calls :func:`work` by name."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import sys
import traceback
from pathlib import Path

from squall import _squall
from squall.streams._app import App
from squall.streams._errors import Halted, Misconfigured, StreamError, Unreachable
from squall.streams._worker import run

STOPPED, HALTED, UNUSABLE, UNREACHABLE = 0, 1, 2, 3


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


def find(spec: str) -> App:
    """Returns the app that MODULE:APP names."""
    module_name, colon, name = spec.partition(":")
    if not colon or not module_name or not name:
        raise Misconfigured(f"{spec!r} does not name an app; write it as MODULE:APP, for example shop:app")
    if module_name.endswith(".py"):
        raise Misconfigured(f"{module_name!r} is a file; write its module, as in {module_name[:-3].replace('/', '.')}:{name}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import_module(module_name)
    try:
        app = getattr(module, name)
    except AttributeError:
        apps = ", ".join(f"{module_name}:{key}" for key, value in vars(module).items() if isinstance(value, App))
        hint = f"; it has {apps}" if apps else "; it has no App"
        raise Misconfigured(f"module {module_name!r} has no {name!r}{hint}") from None
    if not isinstance(app, App):
        raise Misconfigured(f"{spec} is not an App of squall.streams but a {type(app).__name__}")
    if app.settings.autodiscover:
        for path in sorted(Path().glob(app.settings.autodiscover)):
            _import_module(".".join(path.with_suffix("").parts))
    return app


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

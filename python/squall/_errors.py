"""The exceptions that scenarios meet, and the words for those that they raise."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall._squall import Port, Response

_HERE = os.path.dirname(os.path.abspath(__file__))
_MAX_FRAMES = 12
#: Most characters of an exception's own text, and of those behind it: some carry the whole body of an answer, and a report keeps 2,000.
_MAX_TEXT, _MAX_CAUSE_TEXT = 500, 200
#: Where what is not the scenario's is installed: its files are called as they are imported, the deepest folder first.
_INSTALLED = sorted({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, key=len, reverse=True)
#: The folder that a travelled scenario was unpacked in: its files are called what they were called at home.
bundle_folder: list[str] = []


class ScenarioError(Exception):
    """A scenario cannot be used as it is written; says where and why."""

    def __init__(self, message: str, file: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part)
        return f"{place}: {self.message}" if place else self.message


class RequestError(Exception):
    """A request got no usable answer. It is recorded as failed already; catching it is up to you."""

    #: Not so if a stream or a WebSocket broke after it had been opened: not caught, that is a failure of the task.
    recorded = True

    def __init__(self, message: str, code: str = "REQUEST_FAILED", category: str = "transport_error") -> None:
        super().__init__(message)
        #: What happened, as in the report: ``CONNECT_REFUSED``, ``TIMEOUT``, …
        self.code = code
        #: ``transport_error``, ``protocol_error`` or ``timeout``.
        self.category = category


class RequestTimeout(RequestError, TimeoutError):
    """No complete answer within the request's timeout."""


class StatusError(Exception):
    """``raise_for_status`` met a status of 400 or above."""

    def __init__(self, message: str, response: Response) -> None:
        super().__init__(message)
        self.response = response


class TaskTimeout(TimeoutError):
    """A task took longer than its ``timeout``."""

    def __init__(self, message: str = "it took longer than its timeout, and was cut while its code was running") -> None:
        super().__init__(message)


class NotAwaited(RuntimeError):
    """A function called something that has to be awaited, and did not await it: nothing was sent."""


class ResourcesExhausted(RuntimeError):
    """A pool of resources has a limit, and all of them are held."""


def describe(error: BaseException) -> str:
    """The exception in words for the report: its text, then where it came from, the innermost place first.

    Cheap enough to be called for every failing iteration: no source is read.
    """
    text = _error_text(error, _MAX_TEXT)
    if isinstance(error, RuntimeError) and "no running event loop" in text:
        text += " (it was run without asyncio: repeat with --mode asyncio)"
    places = [*_group_members(error), *_traceback_lines(error.__traceback__)]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        places += [f"because of {_error_text(cause, _MAX_CAUSE_TEXT)}", *_group_members(cause), *_traceback_lines(cause.__traceback__)]
    return "\n  ".join([text, *places])


def _error_text(error: BaseException, most: int) -> str:
    try:
        # Halves of surrogate pairs are no text, and nobody could write them down.
        text = str(error).encode(errors="replace").decode()
    except Exception as broken:
        text = f"(it has no text: {type(broken).__name__} in its __str__)"
    if len(text) > most:
        text = f"{text[:most]}… ({len(text) - most:,} more characters)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _group_members(error: BaseException) -> list[str]:
    """What a group of exceptions, as a TaskGroup raises it, is made of: the group alone says nothing. Alike ones are told once."""
    found: dict[str, list[str]] = {}
    rest = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    while rest and len(found) < _MAX_FRAMES:
        member = rest.pop(0)
        if isinstance(member, BaseExceptionGroup):
            rest += member.exceptions
        else:
            found.setdefault(f"one of them: {_error_text(member, _MAX_CAUSE_TEXT)}", _traceback_lines(member.__traceback__))
    return [line for text, places in found.items() for line in (text, *places)]


def display_path(file: str) -> str:
    """How a file is called in what people read."""
    full = os.path.abspath(file)
    return os.path.relpath(full, next((folder for folder in (*bundle_folder, *_INSTALLED) if full.startswith(folder + os.sep)), None))


def _traceback_lines(trace: TracebackType | None) -> list[str]:
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append(f"at {display_path(code.co_filename)}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return found[::-1][:_MAX_FRAMES]


def warn_unawaited(what: str, sent: str, queue: Port | None = None) -> None:
    """Says that nobody awaited ``what`` to the function that is running, which fails for it. Called when ``what`` is given up: on the very
    line, unless a variable held it."""
    from squall import _squall

    here = _scenario_frame(sys._getframe())
    place = f" ({display_path(here.f_code.co_filename)}:{here.f_lineno})" if here else ""
    message = f"`{what}` was not awaited{place}, so {sent or 'it'} was never {'sent' if sent else 'done'}"
    _squall.forgot(message, queue)
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _scenario_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame


def line_in_file(error: BaseException, file: str) -> int | None:
    """The last line of ``file`` on the way to ``error``."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def location_of(thread: int) -> str:
    """Where a thread is right now, in the scenario's own code."""
    frame = _scenario_frame(sys._current_frames().get(thread))
    return f"{display_path(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}" if frame else "somewhere"

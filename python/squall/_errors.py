"""The exceptions of the scenario API, and the texts that the report shows for exceptions of a
scenario."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall._squall import OperationQueue, Response

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Parts of paths of Playwright, whose frames hide the line of the scenario.
_PLAYWRIGHT = tuple(os.sep + os.path.join("playwright", part, "") for part in ("_impl", "async_api"))
_MAX_FRAMES = 12
#: Longest text of an exception and of its cause. Some texts contain the whole body of a response,
#: and a report keeps 2,000 characters.
_MAX_TEXT, _MAX_CAUSE_TEXT = 500, 200
#: Folders of installed packages, longest first: their files are shown relative to the folder.
_INSTALLED = sorted({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, key=len, reverse=True)
#: The folder that a worker unpacked the scenario in: its files are shown relative to it, as in the
#: original folder.
bundle_folder: list[str] = []


class ScenarioError(Exception):
    """The scenario file has a mistake; the message names file, line and reason."""

    def __init__(self, message: str, file: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part)
        return f"{place}: {self.message}" if place else self.message


class RequestError(Exception):
    """A request got no usable response. It is already recorded as failed; you need not catch it."""

    #: False if a stream or a WebSocket broke after it was opened: uncaught, that fails the task.
    recorded = True

    def __init__(self, message: str, code: str = "REQUEST_FAILED", category: str = "transport_error") -> None:
        super().__init__(message)
        #: The outcome, as in the report: ``CONNECT_REFUSED``, ``TIMEOUT``, …
        self.code = code
        #: ``transport_error``, ``protocol_error`` or ``timeout``.
        self.category = category


class RequestTimeout(RequestError, TimeoutError):
    """The response was not complete within the request's timeout."""


class CqlError(RequestError):
    """A CQL statement failed. It is already recorded; ``code`` is that of the report: ``READ_TIMEOUT``,
    ``UNAVAILABLE``, ``SYNTAX_ERROR``, …"""


class StatusError(Exception):
    """``raise_for_status`` found a status of 400 or above."""

    def __init__(self, message: str, response: Response) -> None:
        super().__init__(message)
        self.response = response


class TaskTimeout(TimeoutError):
    """A task took longer than its ``timeout``."""

    def __init__(self, message: str = "it took longer than its timeout, and was interrupted while its code was running") -> None:
        super().__init__(message)


class NotAwaited(RuntimeError):
    """A function did not await a call that must be awaited, so nothing was sent."""


class ResourcesExhausted(RuntimeError):
    """All resources of a limited pool are in use."""


def describe(error: BaseException) -> str:
    """Returns the report's text of an exception: its message, then its traceback, innermost frame
    first.

    Reads no source files, so it is cheap enough for every failing iteration.
    """
    text = _error_text(error, _MAX_TEXT)
    if isinstance(error, RuntimeError) and "no running event loop" in text:
        text += " (the task runs without an asyncio loop: run with --mode asyncio)"
    places = [*_group_members(error), *_traceback_lines(error.__traceback__)]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        places += [f"because of {_error_text(cause, _MAX_CAUSE_TEXT)}", *_group_members(cause), *_traceback_lines(cause.__traceback__)]
    return "\n  ".join([text, *places])


def _error_text(error: BaseException, most: int) -> str:
    try:
        # Unpaired surrogates cannot be encoded, so they are replaced.
        text = str(error).encode(errors="replace").decode()
    except Exception as broken:
        text = f"(no text: its __str__ raised {type(broken).__name__})"
    if type(error).__module__.startswith("playwright."):
        text = text.partition("Call log:")[0].strip()
    if len(text) > most:
        text = f"{text[:most]}… ({len(text) - most:,} more characters)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _group_members(error: BaseException) -> list[str]:
    """Returns texts and tracebacks of the exceptions in a group, such as a TaskGroup raises,
    because the group's own text does not name them. Equal texts appear once."""
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
    """Returns the path of a file for messages."""
    full = os.path.abspath(file)
    return os.path.relpath(full, next((folder for folder in (*bundle_folder, *_INSTALLED) if full.startswith(folder + os.sep)), None))


def _traceback_lines(trace: TracebackType | None) -> list[str]:
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_HERE) and not any(folder in code.co_filename for folder in _PLAYWRIGHT):
            found.append(f"at {display_path(code.co_filename)}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return found[::-1][:_MAX_FRAMES]


def warn_unawaited(what: str, sent: str, queue: OperationQueue | None = None) -> None:
    """Warns that ``what`` was not awaited and makes the running function fail. Python calls this
    when it drops ``what``: on the same line, unless a variable holds it."""
    from squall import _squall

    frame = _scenario_frame(sys._getframe())
    place = f" ({display_path(frame.f_code.co_filename)}:{frame.f_lineno})" if frame else ""
    message = f"`{what}` was not awaited{place}, so {sent or 'it'} was never {'sent' if sent else 'done'}"
    _squall.report_not_awaited(message, queue)
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _scenario_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame


def line_in_file(error: BaseException, file: str) -> int | None:
    """Returns the last line of ``file`` in the traceback of ``error``."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def location_of(thread: int) -> str:
    """Returns the line of scenario code that a thread runs now."""
    frame = _scenario_frame(sys._current_frames().get(thread))
    return f"{display_path(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}" if frame else "somewhere"

"""Reports coroutines of the scenario that were never awaited. ``self.login(client)`` without
``await`` sends nothing, so the iteration must fail in the report; a Python warning is easy to miss.
Operations of the client report themselves."""

from __future__ import annotations

import os
import warnings
from contextvars import ContextVar
from types import CoroutineType
from typing import Any

from squall import _errors
from squall._squall import OperationQueue

#: The queue of the user whose asyncio task runs; tasks that the user starts inherit it.
current_queue: ContextVar[OperationQueue | None] = ContextVar("current_queue", default=None)

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def install_hook() -> None:
    """Replaces the function of ``warnings`` that Python calls when it collects a coroutine that
    never ran. Its name is the same since Python 3.7."""
    warnings._warn_unawaited_coroutine = _report_coroutine  # type: ignore[attr-defined]


def _report_coroutine(coroutine: CoroutineType[Any, Any, Any]) -> None:
    # A private coroutine of Squall wraps a client call, and that call reports itself.
    if coroutine.__name__.startswith("_") and coroutine.cr_code.co_filename.startswith(_HERE):
        return
    _errors.warn_unawaited(coroutine.__qualname__.rpartition("<locals>.")[2], "", current_queue.get())

"""Coroutines of the scenario's own that nobody awaited: whoever calls ``self.login(client)`` and forgets the ``await`` sends nothing, and
has to hear of it in the report, not in a warning that scrolls by. What the client makes says so itself."""

from __future__ import annotations

import os
import warnings
from contextvars import ContextVar
from types import CoroutineType
from typing import Any

from squall import _errors
from squall._squall import Port

#: The user whose asyncio task is running, and whatever it has started.
current_queue: ContextVar[Port | None] = ContextVar("current_queue", default=None)

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def install_hook() -> None:
    """Listens to what Python itself finds out when it collects a coroutine that never ran: it calls this function of ``warnings``, by this
    name, since 3.7."""
    warnings._warn_unawaited_coroutine = _report_coroutine  # type: ignore[attr-defined]


def _report_coroutine(coroutine: CoroutineType[Any, Any, Any]) -> None:
    # What stands around a call of the client: that call is the one to be named.
    if coroutine.__name__.startswith("_") and coroutine.cr_code.co_filename.startswith(_HERE):
        return
    _errors.warn_unawaited(coroutine.__qualname__.rpartition("<locals>.")[2], "", current_queue.get())

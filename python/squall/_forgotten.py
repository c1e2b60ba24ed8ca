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
port: ContextVar[Port | None] = ContextVar("port", default=None)

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def watch() -> None:
    """Listens to what Python itself finds out when it collects a coroutine that never ran: it calls this function of ``warnings``, by this
    name, since 3.7."""
    warnings._warn_unawaited_coroutine = _unawaited  # type: ignore[attr-defined]


def _unawaited(coroutine: CoroutineType[Any, Any, Any]) -> None:
    # What stands around a call of the client: that call is the one to be named.
    if coroutine.__name__.startswith("_") and coroutine.cr_code.co_filename.startswith(_HERE):
        return
    _errors.not_awaited(coroutine.__qualname__.rpartition("<locals>.")[2], "", port.get())

"""The client of the function that runs: of a user's step or hook, or of a probe. vikhry's clients
send through it wherever they are created."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: None outside of users and probes.
current_client: ContextVar[Any] = ContextVar("current_client", default=None)

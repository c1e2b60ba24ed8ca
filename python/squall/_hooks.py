"""Calls the set-up and tear-down of a run: once per run, on one machine of a fleet, outside of any
user."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any


class Hooks:
    """The set-up and tear-down of a scenario, and the value that its users share."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], params: Mapping[str, Any]) -> None:
        self._functions = functions
        self._params = params
        #: The result of the set-up, on every machine.
        self.made: Any = None

    def set_up(self) -> str:
        """Runs the set-up and returns its result in JSON."""
        made = self._call("set_up", dict(self._params))
        try:
            return json.dumps(made)
        except (TypeError, ValueError) as error:
            raise TypeError(f"set_up must return a value that JSON can hold: {error}") from None

    def share(self, made: str) -> None:
        """Stores the result of the set-up, which may come from another machine."""
        self.made = json.loads(made)

    def tear_down(self, made: str) -> None:
        """Runs the tear-down with the result of the set-up, which may come from another machine."""
        self._call("tear_down", json.loads(made))

    def _call(self, name: str, argument: Any) -> Any:
        function = self._functions.get(name)
        if function is None:
            return None
        value = function(*(argument,)[: len(inspect.signature(function).parameters)])
        return asyncio.run(value) if inspect.iscoroutine(value) else value

"""Set-up and tear-down of a run: called once in the whole run, on one machine of a fleet, outside of any user."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any


class Hooks:
    """What a scenario does once for a run, and what its users get of it."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], params: Mapping[str, Any]) -> None:
        self._functions = functions
        self._params = params
        #: What the set-up returned, on every machine.
        self.made: Any = None

    def set_up(self) -> str:
        """Sets the run up; the answer is JSON."""
        made = self._call("set_up", dict(self._params))
        try:
            return json.dumps(made)
        except (TypeError, ValueError) as error:
            raise TypeError(f"set_up must return what JSON can hold: {error}") from None

    def share(self, made: str) -> None:
        """Takes what was set up, perhaps elsewhere."""
        self.made = json.loads(made)

    def tear_down(self, made: str) -> None:
        """Tears down what was set up, perhaps elsewhere."""
        self._call("tear_down", json.loads(made))

    def _call(self, name: str, argument: Any) -> Any:
        function = self._functions.get(name)
        if function is None:
            return None
        value = function(*(argument,)[: len(inspect.signature(function).parameters)])
        return asyncio.run(value) if inspect.iscoroutine(value) else value

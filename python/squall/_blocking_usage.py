"""Finds out before a run whether plain functions of a scenario call something that blocks its thread:
``time.sleep``, ``requests``, ``socket`` and the like. Such functions run on threads from the start.

The search follows the names in compiled code: from the plain functions to the functions, classes and
methods of the scenario that they name. A call that no name leads to is missed; the engine notices it
when it blocks. ``squall._modes`` calls :func:`blocking_reason`."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from squall._errors import display_path
from squall._sources import cells_of, is_scenario_file

#: Modules whose functions wait in a call into C, each with the names that do; None for all of them.
_BLOCKING: Mapping[str, frozenset[str] | None] = {
    "time": frozenset({"sleep"}),
    "socket": frozenset({"socket", "create_connection", "getaddrinfo", "gethostbyname"}),
    "subprocess": frozenset({"run", "call", "check_call", "check_output", "Popen"}),
    "urllib.request": None,
    "urllib3": None,
    "http.client": frozenset({"HTTPConnection", "HTTPSConnection"}),
    "requests": None,
    "httplib2": None,
    "pycurl": None,
    "ftplib": None,
    "smtplib": None,
    "psycopg": None,
    "psycopg2": None,
    "pymysql": None,
    "MySQLdb": None,
    "pymongo": None,
    "redis": None,
    "grpc": None,
    "kafka": None,
    "pika": None,
}


def blocking_reason(cls: type, functions: Iterable[Callable[..., Any]]) -> str | None:
    """Returns why these plain functions of the users of ``cls`` block, or None."""
    search = _BlockingSearch(cls)
    return next((reason for function in functions for reason in search.reasons(function)), None)


class _BlockingSearch:
    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._seen: set[int] = set()

    def reasons(self, function: Any) -> Iterator[str]:
        """Yields the blocking calls that a function leads to."""
        function = inspect.unwrap(getattr(function, "__func__", function))
        if not isinstance(function, FunctionType) or id(function) in self._seen:
            return
        self._seen.add(id(function))
        if inspect.iscoroutinefunction(function) or not is_scenario_file(function.__code__.co_filename):
            return
        scope = {**function.__globals__, **cells_of(function)}
        for code in _codes(function.__code__):
            names = frozenset(code.co_names) | frozenset(code.co_freevars)
            for name in sorted(names):
                if call := _blocking_call(name, scope.get(name), names):
                    yield f"{display_path(code.co_filename)}:{_line_of(code, name)} in {code.co_name} uses {call}"
                yield from self._reached(name, scope.get(name))

    def _reached(self, name: str, value: Any) -> Iterator[str]:
        """Yields the blocking calls that a name leads to: as a variable, or as a method of the user."""
        if isinstance(value, type):
            for method in vars(value).values():
                yield from self.reasons(method)
        elif value is not None:
            yield from self.reasons(value)
        yield from self.reasons(inspect.getattr_static(self._cls, name, None))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _line_of(code: CodeType, name: str) -> int:
    """Returns the first line of code that uses a name."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        # Since Python 3.13, `starts_line` is only a flag.
        line = getattr(instruction, "line_number", None) or instruction.starts_line or line
        if instruction.argval == name:
            break
    return line


def _blocking_call(name: str, value: Any, names: frozenset[str]) -> str | None:
    """Returns the blocking call that code with these ``names`` makes by the variable ``name``."""
    if value is None or isinstance(value, ModuleType):
        # Without a value, the code itself imports the module.
        return _call_of_module(getattr(value, "__name__", name), names)
    owner = getattr(value, "__module__", None) if callable(value) else type(value).__module__
    for module, blocking in _BLOCKING.items():
        if isinstance(owner, str) and (owner == module or owner.startswith(f"{module}.")):
            called = getattr(value, "__name__", type(value).__name__)
            return f"{module}.{called}" if blocking is None or called in blocking else None
    return None


def _call_of_module(module: str, names: frozenset[str]) -> str | None:
    for blocking, calls in _BLOCKING.items():
        package, _, part = blocking.partition(".")
        if module != blocking and not (module == package and part in names):
            continue
        called = sorted(calls & names) if calls is not None else [""]
        if called:
            return f"{blocking}.{called[0]}".rstrip(".")
    return None

"""Finds tasks that send the same requests at every call, so that they need no Python during the
run.

A task must pass two checks. From the source: its body consists of client calls with literal
arguments, and the responses are not used. By recording: the body runs twice against a client that
only records, and both recordings, which are the requests to send, must be equal. All other tasks
run as Python code. ``squall._modes`` calls :func:`constant_requests`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Generator
from typing import Any

from squall._errors import display_path
from squall._sources import ScenarioSources, SourceNotFound, unwrap_sync_client

METHODS = frozenset({"get", "post", "put", "patch", "delete", "head", "options", "request"})
#: Options that a constant request may have.
OPTIONS = frozenset({"headers", "params", "json", "data", "cookies", "auth", "timeout", "name", "path_params", "follow_redirects"})

#: A request: method, URL, options, file and line.
ConstantRequest = tuple[str, str, dict[str, Any], str]
_RecordedRequest = tuple[str, str, dict[str, Any]]


class NotConstant(Exception):
    """The reason why a task must run as Python code."""


def constant_requests(function: Callable[..., Any], sources: ScenarioSources) -> list[ConstantRequest]:
    """Returns the requests of a constant task; raises :class:`NotConstant` for any other."""
    called = unwrap_sync_client(function)
    function = called or function
    places = _check_function(function, called is not None, sources)
    try:
        first, second = _record(function), _record(function)
    except TypeError as error:
        # The client rejects the call as well, and the report then shows the error.
        raise NotConstant(f"it cannot be recorded: {error}") from None
    if first != second:
        raise NotConstant("two recordings differ")
    if not first:
        raise NotConstant("it sends nothing")
    return [(*request, place) for request, place in zip(first, places, strict=True)]


def _check_function(function: Callable[..., Any], called: bool, sources: ScenarioSources) -> list[str]:
    """Checks a function's source. Returns file and line of each request."""
    if hasattr(function, "__wrapped__") or not inspect.isfunction(function):
        raise NotConstant("it is wrapped by a decorator")
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        raise NotConstant("it uses values from outside")
    try:
        source, definition = sources.definition(function)
    except SourceNotFound as reason:
        raise NotConstant(str(reason)) from None
    if sources.stores("__code__"):
        raise NotConstant("the scenario assigns __code__")
    if isinstance(definition, ast.Lambda):
        raise NotConstant("it is a lambda")
    if len(definition.decorator_list) != 1:
        raise NotConstant("it has other decorators" if definition.decorator_list else "@task is not its decorator")
    arguments = definition.args
    if len(arguments.args) != 2 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise NotConstant("it does not take (self, client)")
    client = arguments.args[1].arg
    awaited = isinstance(definition, ast.AsyncFunctionDef)
    body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
    calls = [statement for statement in body if not isinstance(statement, ast.Pass)]
    for statement in calls:
        _check_call(statement, source.location(statement), client, awaited, called)
    return [f"{display_path(source.file)}:{statement.lineno}" for statement in calls]


def _check_call(statement: ast.stmt, line: str, client: str, awaited: bool, called: bool) -> None:
    if not isinstance(statement, ast.Expr):
        raise NotConstant(f"{line} does more than send a request")
    value = statement.value
    # With a synchronous client (compat) a coroutine may leave out the ``await``.
    if isinstance(value, ast.Await) is not awaited and not called:
        raise NotConstant(f"{line} does more than send a request")
    call = value.value if isinstance(value, ast.Await) else value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)):
        raise NotConstant(f"{line} does more than send a request")
    if call.func.value.id != client:
        raise NotConstant(f"{line} calls something other than the client")
    if call.func.attr not in METHODS:
        raise NotConstant(f"{line} calls client.{call.func.attr}, which needs Python")
    given = {keyword.arg for keyword in call.keywords}
    if not given <= OPTIONS:
        raise NotConstant(f"{line} has an option that a constant request cannot have")
    for part in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if any(isinstance(node, ast.Set) for node in ast.walk(part)):
            raise NotConstant(f"{line} has a set, whose order is not fixed")
        try:
            ast.literal_eval(part)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise NotConstant(f"{line} depends on values that may change") from None


def _record(function: Callable[..., Any]) -> list[_RecordedRequest]:
    recorder = _RequestRecorder()
    result = function(None, recorder)
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            pass
        else:
            result.close()
            raise NotConstant("it waits for something other than a response")
    return recorder.requests


class _RecordedResponse:
    """The response to a recorded request; awaiting it returns None at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class _RequestRecorder:
    """A client that records requests and sends none."""

    def __init__(self) -> None:
        self.requests: list[_RecordedRequest] = []

    def request(self, method: str, url: str, /, **options: Any) -> _RecordedResponse:
        self.requests.append((method.upper(), url, options))
        return _RecordedResponse()

    def __getattr__(self, name: str) -> Callable[..., _RecordedResponse]:
        if name not in METHODS:
            raise AttributeError(name)
        return lambda url, /, **options: self.request(name, url, **options)

"""Decides whether a scenario's coroutines need an asyncio loop: whether the code that they reach
names a library that uses such loops.

The search follows names. It starts at the coroutines of the scenario and continues with every
function, class and object of the scenario that reached code names. It looks up a method of an
unknown object by its name in all classes of the scenario. It misses values that no name leads to:
then the engine resumes a coroutine that awaits asyncio, and each such iteration fails with a message
that names ``--mode asyncio``. ``squall._modes`` calls :func:`asyncio_reason`."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from squall._sources import (
    DEFINITIONS,
    Assignment,
    Definition,
    ScenarioSources,
    SourceFile,
    SourceNotFound,
    cells_of,
    is_scenario_file,
    module_name_of,
    unwrap_sync_client,
)

#: Modules that need an asyncio loop or start a loop of their own.
_LOOP_LIBRARIES = frozenset({"asyncio", "anyio", "trio", "curio", "sniffio", "uvloop", "aiohttp", "httpx", "twisted", "tornado"})
#: Objects that run code which no source file names.
_DYNAMIC_CALLS = (exec, eval, compile, __import__, importlib, importlib.import_module, sys.modules)
_CONTEXT_MANAGER_CODE = contextlib.asynccontextmanager(lambda: None).__code__  # type: ignore[arg-type, return-value]
_MISSING = object()


class _NeedsAsyncio(Exception):
    """Names the line and the expression for which a scenario needs asyncio."""


class _Code(NamedTuple):
    """Code that a coroutine reaches."""

    source: SourceFile
    nodes: list[ast.AST]
    #: Its closure variables and the modules that it imports itself.
    names: Mapping[str, Any]
    #: The variable that holds the user; None if no variable is known to.
    user: str | None

    def value_of(self, expression: ast.expr) -> Any:
        """Returns the value that a variable or an attribute has before the run; ``_MISSING`` if it
        has none."""
        if isinstance(expression, ast.Name):
            scopes: tuple[Mapping[str, Any], ...] = (self.names, self.source.namespace, vars(builtins))
            return next((scope[expression.id] for scope in scopes if expression.id in scope), _MISSING)
        if isinstance(expression, ast.Attribute):
            base = self.value_of(expression.value)
            return _MISSING if base is _MISSING else inspect.getattr_static(base, expression.attr, _MISSING)
        return _MISSING


def asyncio_reason(cls: type, functions: Iterable[Callable[..., Any]], sources: ScenarioSources) -> str | None:
    """Returns why these functions of the users of ``cls`` need asyncio, or None."""
    search = _AsyncioSearch(cls, sources)
    try:
        for function in functions:
            search.reach(unwrap_sync_client(function) or function, cls.__name__, getattr(function, "__name__", ""), of_user=True)
        search.reach(cls, cls.__name__, cls.__name__)
        search.run()
    except (_NeedsAsyncio, SourceNotFound) as reason:
        return str(reason)
    return None


class _AsyncioSearch:
    def __init__(self, cls: type, sources: ScenarioSources) -> None:
        self._cls = cls
        self._sources = sources
        self._waiting: list[_Code] = []
        #: What was reached, by identity; the values keep the objects alive.
        self._seen: dict[tuple[int, bool], Any] = {}
        #: The generators of context managers.
        self._managed: set[Any] = set()
        self._library_by_package: dict[str, str | None] = {}

    def run(self) -> None:
        """Raises :class:`_NeedsAsyncio` at the first name of a loop library."""
        while self._waiting:
            code = self._waiting.pop()
            for node in (node for top in code.nodes for node in ast.walk(top)):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    self._check_import(code, node)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    self.reach(code.value_of(node), code.source.location(node), node.id)
                    self._add_assignments(self._sources.rebinds(node.id))
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    self._check_attribute(code, node)
                elif isinstance(node, ast.AsyncFunctionDef) and not node.decorator_list:
                    _check_generator(code.source, node)

    def reach(self, value: Any, place: str, shown: str, of_user: bool = False) -> None:
        """Adds the code that a value runs when it is called or awaited. ``of_user`` means that its
        first argument is the user."""
        if value is None or isinstance(value, (str, bytes, int, float)) or (id(value), of_user) in self._seen:
            return
        self._seen[id(value), of_user] = value
        if any(value is dynamic for dynamic in _DYNAMIC_CALLS):
            raise _NeedsAsyncio(f"{place} uses {shown}, which cannot be analysed")
        if library := self._loop_library(module_name_of(value) or ""):
            raise _NeedsAsyncio(f"{place} uses {shown}" + ("" if shown.startswith(library) else f", which needs {library}"))
        if isinstance(value, FunctionType):
            self._add_function(value, of_user)
        for part in _parts_of(value):
            self.reach(part, place, shown, of_user and isinstance(value, (property, FunctionType)))

    def _add_function(self, function: FunctionType, of_user: bool) -> None:
        if function.__code__ is _CONTEXT_MANAGER_CODE:
            # `async with` always runs the generator of a context manager to its end.
            self._managed.add(cells_of(function)["func"])
        if not is_scenario_file(function.__code__.co_filename):
            return
        source, node = self._sources.definition(function)
        if isinstance(node, ast.AsyncFunctionDef) and function not in self._managed:
            _check_generator(source, node)
        self._add_definition(source, node, of_user, cells_of(function))

    def _add_definition(self, source: SourceFile, node: Definition, of_user: bool, names: Mapping[str, Any]) -> None:
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        arguments = [*node.args.posonlyargs, *node.args.args]
        user = arguments[0].arg if of_user and arguments else None
        imported = {name: module for top in body for name, module in _imported_modules(top)}
        self._waiting.append(_Code(source, list(body), {**names, **imported}, user))

    def _check_import(self, code: _Code, node: ast.Import | ast.ImportFrom) -> None:
        place = code.source.location(node)
        for name in ScenarioSources.imports(code.source, node):
            if library := self._loop_library(name):
                raise _NeedsAsyncio(f"{place} uses {library}")
            module = sys.modules.get(name)
            if name.partition(".")[0] not in sys.stdlib_module_names and not self._sources.has_read(module):
                raise _NeedsAsyncio(f"{place} imports {name} during the run, so it cannot be analysed before")
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                self.reach(getattr(module, alias.name, None), place, alias.name)

    def _check_attribute(self, code: _Code, node: ast.Attribute) -> None:
        place, shown = code.source.location(node), ast.unparse(node)
        is_user = isinstance(node.value, ast.Name) and node.value.id == code.user
        owner = code.value_of(node.value)
        if owner is not _MISSING and not is_user:
            self.reach(code.value_of(node), place, shown)
        else:
            for base in self._cls.__mro__:
                self.reach(vars(base).get(node.attr), place, shown, of_user=True)
            if not is_user:
                self._add_assignments(self._sources.methods(node.attr))
        self._add_assignments(self._sources.stores(node.attr))

    def _add_assignments(self, assignments: list[Assignment]) -> None:
        for one in assignments:
            if (id(one.code), False) not in self._seen:
                self._seen[id(one.code), False] = one
                user = one.first_argument if one.owner in {base.__name__ for base in self._cls.__mro__} else None
                self._waiting.append(_Code(one.source, [one.code], dict(_imported_modules(one.code)), user))

    def _loop_library(self, module: str) -> str | None:
        """Returns the loop library that a module belongs to, or its package if the package imports
        one."""
        # asyncio's functions in C belong to `_asyncio`.
        root = module.partition(".")[0].lstrip("_")
        if root not in self._library_by_package:
            self._library_by_package[root] = _loop_library_of_package(root)
        return self._library_by_package[root]


def _parts_of(value: Any) -> list[Any]:
    """Returns the objects that using a value may use without naming them."""
    if isinstance(value, ModuleType):
        return []
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        # The wrapper of an installed package, or of Squall, calls the function that it wraps.
        return [] if is_scenario_file(value.__code__.co_filename) else [*cells_of(value).values(), getattr(value, "__wrapped__", None)]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    cls = value if isinstance(value, type) else type(value)
    if not is_scenario_file(getattr(sys.modules.get(cls.__module__), "__file__", None)):
        return []
    special = [inspect.getattr_static(cls, name) for name in dir(cls) if name.startswith("__") and name.endswith("__")]
    own = [] if isinstance(value, type) else list(getattr(value, "__dict__", {}).values())
    return [*(method for method in special if isinstance(method, FunctionType)), *own]


def _imported_modules(code: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yields the variables that import statements inside a function bind to modules."""
    for node in ast.walk(code):
        for alias in node.names if isinstance(node, ast.Import) else ():
            root = alias.name.partition(".")[0]
            yield alias.asname or root, sys.modules.get(alias.name if alias.asname else root)


def _check_generator(source: SourceFile, function: ast.AsyncFunctionDef) -> None:
    """Rejects a generator that must await something to close: only an asyncio loop closes a
    generator that is abandoned."""
    waits, ends = (ast.Await, ast.AsyncFor, ast.AsyncWith), (ast.Yield, ast.YieldFrom)
    for node in _own_nodes(function):
        closing: list[ast.AST] = [node] if isinstance(node, ast.AsyncWith) else []
        if isinstance(node, ast.Try) and _contains_any(waits, [*node.handlers, *node.finalbody]):
            closing = [node]
        if _contains_any(ends, closing):
            raise _NeedsAsyncio(f"{source.location(node)} awaits when the generator {function.name} is closed")


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes inside a node, without those of functions that it contains."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, DEFINITIONS):
            yield from _own_nodes(child)


def _contains_any(kinds: tuple[type, ...], nodes: list[ast.AST]) -> bool:
    return any(isinstance(inner, kinds) for node in nodes for inner in (node, *_own_nodes(node)))


def _loop_library_of_package(root: str) -> str | None:
    if root in _LOOP_LIBRARIES:
        return root
    if root in sys.stdlib_module_names or root in ("squall", "builtins", "greenlet"):
        return None
    module = sys.modules.get(root)
    if module is None or is_scenario_file(getattr(module, "__file__", None)):
        return None
    # Any function of a package that imports a loop library may need a loop.
    parts = [part for name, part in list(sys.modules.items()) if name == root or name.startswith(root + ".")]
    values = [value for part in parts for value in getattr(part, "__dict__", {}).values()]
    return root if any((module_name_of(value) or "").partition(".")[0] in _LOOP_LIBRARIES for value in values) else None

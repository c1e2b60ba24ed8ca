"""Finds uses of asyncio that are not awaited: ``asyncio.create_task`` in a coroutine, or in a plain
function, lambda or property that a coroutine may reach. Follows objects where they are known, and
method names where they are not. Called by ``squall._await_analysis``."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from squall._abstract_values import (
    UNKNOWN,
    AbstractValue,
    BoundFunction,
    FunctionScope,
    KnownObject,
    ValueResolver,
    is_module,
    own_nodes,
    unknown_arguments,
    value_of,
)
from squall._sources import PLAIN_FUNCTIONS, Definition, ScenarioSources, SourceFile, cells_of, is_scenario_file, module_name_of

#: Modules that need an asyncio loop or start a loop of their own.
_LOOP_LIBRARIES = frozenset({"asyncio", "anyio", "trio", "curio", "sniffio", "uvloop", "aiohttp", "httpx", "twisted", "tornado"})
#: Objects that run or reach code that the source does not name.
_DYNAMIC_CALLS = (exec, eval, compile, __import__, importlib, importlib.import_module, sys.modules)


class NeedsAsyncio(Exception):
    """Names the line and the expression for which a scenario needs asyncio."""


class AsyncioUsageSearch:
    """Searches all code that a coroutine may reach; each function once per set of arguments."""

    def __init__(self, resolver: ValueResolver, sources: ScenarioSources) -> None:
        self._resolver = resolver
        self._sources = sources
        self._seen: dict[Any, Any] = {}
        self._library_by_package: dict[str, str | None] = {}

    def check_function(self, scope: FunctionScope) -> None:
        """Raises :class:`NeedsAsyncio` if a function, or one that it calls, uses asyncio."""
        key = (scope.node, scope.parent, *scope.arguments.items(), *((name, id(obj)) for name, obj in scope.cells.items()))
        if key in self._seen:
            return
        self._seen[key] = scope
        for node in own_nodes(scope.node):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._check_import(scope, node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                value = scope.lookup(self._resolver, node.id)
                self._check_value(scope, node, scope.value_before_run(node.id) if value == UNKNOWN else value, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._check_attribute(scope, node)
            elif isinstance(node, PLAIN_FUNCTIONS):
                self._check_unknown_call(scope.source, node, scope)
            elif isinstance(node, ast.ClassDef):
                for method in ast.walk(node):
                    if isinstance(method, PLAIN_FUNCTIONS):
                        self._check_unknown_call(scope.source, method, scope)

    def check_dynamic_code(self) -> None:
        """Raises :class:`NeedsAsyncio` if dynamic code may use a loop: the scenario evaluates text,
        or it has dynamic code and imports a loop library."""
        dynamic = self._sources.dynamic
        if dynamic is None:
            return
        if self._sources.evaluates_text:
            raise NeedsAsyncio(f"{dynamic}, which cannot be analysed")
        if library := self._imported_loop_library():
            raise NeedsAsyncio(f"{dynamic}, so the code that uses {library} is unknown")

    def _check_rebound_name(self, scope: FunctionScope, node: ast.Name) -> None:
        """Raises for a variable that a function rebinds during the run, if the new value may need a
        loop."""
        if library := self._imported_loop_library():
            raise NeedsAsyncio(f"{scope.source.location(node)} uses {node.id}, which changes while it runs and may need {library}")

    def _imported_loop_library(self) -> str | None:
        """Returns a loop library that a module of the scenario imports, or None."""
        for source in self._sources.files:
            imports = (node for node in ast.walk(source.tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
            names = [name for node in imports for name in ScenarioSources.imports(source, node)]
            found = [self._loop_library_of(value) for value in source.namespace.values()]
            found += [self._loop_library_in_module(name) for name in names]
            if library := next(filter(None, found), None):
                return library
        return None

    def _check_unknown_call(self, source: SourceFile, node: Definition, parent: FunctionScope | None = None) -> None:
        """Checks a function whose callers are not known."""
        if ("unknown arguments", node, parent) not in self._seen:
            self._seen["unknown arguments", node, parent] = parent
            self.check_function(FunctionScope(source, node, unknown_arguments(node), None, parent))

    def _check_import(self, scope: FunctionScope, node: ast.Import | ast.ImportFrom) -> None:
        for name in ScenarioSources.imports(scope.source, node):
            root = name.partition(".")[0]
            if root in _LOOP_LIBRARIES:
                raise NeedsAsyncio(f"{scope.source.location(node)} uses {root}")
            if root not in sys.stdlib_module_names and not self._sources.has_read(sys.modules.get(name)):
                line = scope.source.location(node)
                raise NeedsAsyncio(f"{line} imports {name} during the run, so it cannot be analysed before")

    def _check_attribute(self, scope: FunctionScope, node: ast.Attribute) -> None:
        base = self._resolver.evaluate(scope, node.value)
        if base == UNKNOWN and isinstance(node.value, ast.Name):
            base = scope.value_before_run(node.value.id)
            if base != UNKNOWN:
                self._check_rebound_name(scope, node.value)
        value = self._resolver.attribute(base, node.attr)
        if value == UNKNOWN and isinstance(base, KnownObject) and isinstance(base.object, ModuleType):
            value = value_of(getattr(base.object, node.attr, None))
        self._check_value(scope, node, value, ast.unparse(node))
        if not is_module(base):
            for source in self._sources.files:
                for method in source.methods.get(node.attr, []):
                    self._check_unknown_call(source, method)

    def _check_value(self, scope: FunctionScope, node: ast.AST, value: AbstractValue, shown: str) -> None:
        if isinstance(value, BoundFunction):
            value = value.function
        if not isinstance(value, KnownObject):
            return
        if any(value.object is dynamic_call for dynamic_call in _DYNAMIC_CALLS):
            raise NeedsAsyncio(f"{scope.source.location(node)} uses {shown}, which cannot be analysed")
        library = self._loop_library_of(value.object)
        if library is not None:
            reason = "" if shown.startswith(library) else f", which needs {library}"
            raise NeedsAsyncio(f"{scope.source.location(node)} uses {shown}{reason}")
        self._check_object(value.object)

    def _loop_library_of(self, obj: Any) -> str | None:
        """Returns the loop library that an object comes from, or None."""
        return self._loop_library_in_module(module_name_of(obj) or "")

    def _loop_library_in_module(self, module: str) -> str | None:
        root = module.partition(".")[0]
        if root not in self._library_by_package:
            self._library_by_package[root] = _loop_library_of_package(root)
        return self._library_by_package[root]

    def _check_object(self, obj: Any) -> None:
        if isinstance(obj, MethodType):
            self._check_object(obj.__func__)
        elif isinstance(obj, functools.partial):
            self._check_object(obj.func)
        elif isinstance(obj, FunctionType):
            if is_scenario_file(obj.__code__.co_filename):
                source, definition = self._sources.definition(obj)
                if isinstance(definition, PLAIN_FUNCTIONS) and obj not in self._seen:
                    self._seen[obj] = obj
                    self.check_function(FunctionScope(source, definition, unknown_arguments(definition), cells_of(obj)))
        elif not isinstance(obj, ModuleType):
            cls = obj if isinstance(obj, type) else type(obj)
            if cls in self._seen:
                return
            self._seen[cls] = cls
            for base in cls.__mro__:
                for member in vars(base).values():
                    inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                    if isinstance(inner, FunctionType):
                        self._check_object(inner)


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

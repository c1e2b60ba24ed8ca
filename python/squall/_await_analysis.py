"""Decides from the source whether a scenario's coroutines await Squall only, so that the engine can
resume them without an asyncio loop.

The analysis proves and never guesses. A scenario runs on a real asyncio loop, where everything
works, unless every awaited value is proven to be Squall's: calls of the client, ``self.resources``
and ``squall.sleep``, their results, and functions of the scenario, decorators included, that await
nothing else. A coroutine that uses asyncio without awaiting it, itself or through plain functions,
also needs the loop: ``squall._asyncio_usage`` finds those. ``squall._load`` calls
:func:`asyncio_reason`."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from squall import _abstract_values, _squall
from squall._abstract_values import (
    PLAIN_DATA,
    SQUALL_AWAITABLE,
    SQUALL_RESULT,
    UNKNOWN,
    USER,
    AbstractValue,
    BoundFunction,
    CheckedCoroutine,
    CheckedGenerator,
    FunctionScope,
    KnownObject,
    NestedFunction,
    PackedArguments,
    SuperObject,
    join,
    value_of,
)
from squall._asyncio_usage import AsyncioUsageSearch, NeedsAsyncio
from squall._jsonrpc import JsonRPCClient
from squall._probe import ProbeContext
from squall._sources import (
    HERE,
    AttributeStore,
    Definition,
    ScenarioSources,
    SourceNotFound,
    cells_of,
    is_scenario_file,
    unwrap_sync_client,
)
from squall._sse import events

#: Files of Squall that wrap scenario functions; they are analysed like the scenario's own.
_ANALYSED_SQUALL_FILES = tuple(HERE + name for name in ("_load.py", "_metrics.py", "_probe.py", "compat"))
_CONTEXT_MANAGER_CODE = contextlib.asynccontextmanager(lambda: None).__code__  # type: ignore[arg-type, return-value]
#: Limits of the analysis: nested calls and analysed items.
_DEPTH, _STEPS = 150, 20_000
_NO_CYCLE = 1_000_000
#: The context of a probe: only its client is Squall's.
_PROBE_CONTEXT = AbstractValue("context")
#: Methods that scenarios await on an open connection, and those that return a response's body.
_CONNECTION_METHODS = frozenset({"send", "receive", "chunk", "close"})
_BODY_METHODS = frozenset({"json", "text", "bytes"})
_MISSING = object()
_SQUALL_VALUES = (SQUALL_AWAITABLE, SQUALL_RESULT)


def asyncio_reason(cls: type, functions: Iterable[Callable[..., Any]], sources: ScenarioSources) -> str | None:
    """Returns why these functions need asyncio, or None. The engine calls them with a user of
    ``cls`` and a client, ``on_init`` with the user only."""
    analysis = _AwaitAnalysis(cls, sources)
    try:
        for function in functions:
            client = PLAIN_DATA if getattr(function, "__name__", "") == "on_init" else SQUALL_AWAITABLE
            result = analysis.call(value_of(unwrap_sync_client(function) or function), [USER, client])
            if not isinstance(result, CheckedCoroutine):
                raise NeedsAsyncio(f"{getattr(function, '__qualname__', function)} cannot be analysed")
            analysis.usage.check_dynamic_code()
    except (NeedsAsyncio, SourceNotFound) as reason:
        return str(reason)
    except RecursionError:
        return "its code is nested too deeply to be analysed"
    return None


class _AwaitAnalysis(_abstract_values.ValueResolver):
    def __init__(self, cls: type, sources: ScenarioSources) -> None:
        self._cls = cls
        self._sources = sources
        self.usage = AsyncioUsageSearch(self, sources)
        self._found: dict[Any, AbstractValue] = {}
        #: Keys under evaluation with their depth, and the smallest depth that a cycle has reached.
        self._active: dict[Any, int] = {}
        self._met = _NO_CYCLE
        self._steps = 0

    def is_rebound(self, name: str) -> bool:
        return self._sources.is_rebound(name)

    def memoize(self, key: Any, find: Callable[[], AbstractValue], meanwhile: AbstractValue = PLAIN_DATA) -> AbstractValue:
        """Returns the cached result of ``find``. A value that depends on itself sees ``meanwhile``,
        so its other parts decide."""
        if key in self._found:
            return self._found[key]
        if key in self._active:
            self._met = min(self._met, self._active[key])
            return meanwhile
        self._steps += 1
        depth = len(self._active)
        if depth > _DEPTH or self._steps > _STEPS:
            raise NeedsAsyncio("its code is too large to be analysed")
        before, self._met = self._met, _NO_CYCLE
        self._active[key] = depth
        value = find()
        del self._active[key]
        if self._met >= depth:
            # The value depends on no key that is still under evaluation, so it is final.
            self._found[key] = value
            self._met = _NO_CYCLE
        self._met = min(before, self._met)
        return value

    def imported(self, scope: FunctionScope, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> AbstractValue:
        if isinstance(node, ast.ImportFrom):
            return self.attribute(value_of(sys.modules.get(ScenarioSources.imported_from(scope.source, node))), alias.name)
        return value_of(sys.modules.get(alias.name if alias.asname else alias.name.partition(".")[0]))

    def evaluate(self, scope: FunctionScope, expression: ast.expr) -> AbstractValue:
        match expression:
            case ast.Await(value=inner):
                value = self.evaluate(scope, inner)
                if isinstance(value, CheckedCoroutine):
                    return value.result
                return SQUALL_RESULT if value in _SQUALL_VALUES else UNKNOWN
            case ast.Call():
                return self._call(scope, expression)
            case ast.Name(id=name):
                return scope.lookup(self, name)
            case ast.Attribute(value=base, attr=name):
                return self.attribute(self.evaluate(scope, base), name)
            case ast.IfExp(body=one, orelse=other):
                return join([self.evaluate(scope, one), self.evaluate(scope, other)])
            case ast.BoolOp(values=values):
                return join(self.evaluate(scope, value) for value in values)
            case ast.NamedExpr(value=inner):
                return self.evaluate(scope, inner)
            case ast.Lambda():
                return NestedFunction("nested", expression, scope)
            case ast.Constant() | ast.JoinedStr():
                return PLAIN_DATA
        return UNKNOWN

    def _call(self, scope: FunctionScope, call: ast.Call) -> AbstractValue:
        target = self.evaluate(scope, call.func)
        if isinstance(target, KnownObject) and target.object is super and not call.args:
            return self._super(scope)
        given: list[AbstractValue] = []
        named: dict[str, AbstractValue] = {}
        rest = False
        for argument in call.args:
            value = self.evaluate(scope, argument.value if isinstance(argument, ast.Starred) else argument)
            if not isinstance(argument, ast.Starred):
                given.append(UNKNOWN if rest else value)
            elif isinstance(value, PackedArguments) and value.kind == "pack":
                given += value.values
            else:
                rest = True
        for keyword in call.keywords:
            value = self.evaluate(scope, keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, PackedArguments) and value.kind == "options":
                named.update(zip(value.names, value.values, strict=True))
            else:
                rest = True
        return self.call(target, given, named, rest)

    def _super(self, scope: FunctionScope) -> AbstractValue:
        outer: FunctionScope | None = scope
        while outer is not None:
            if "__class__" in outer.cells and outer.node.args.args:
                first = outer.lookup(self, outer.node.args.args[0].arg)
                return SuperObject("above", outer.cells["__class__"]) if first == USER else UNKNOWN
            outer = outer.parent
        return UNKNOWN

    def call(
        self, target: AbstractValue, given: list[AbstractValue], named: Mapping[str, AbstractValue] | None = None, rest: bool = False
    ) -> AbstractValue:
        """Returns the value of a call and checks the called function. ``rest`` means that the call
        has more arguments than are known."""
        named = named or {}
        if target in _SQUALL_VALUES:
            return target
        if isinstance(target, BoundFunction):
            return self.call(target.function, [target.first_argument, *given], named, rest)
        if isinstance(target, NestedFunction):
            arguments = _bind_arguments(target.node, given, named, rest)
            return self._analyse_function(FunctionScope(target.scope.source, target.node, arguments, None, target.scope))
        if isinstance(target, KnownObject):
            return self._call_object(target.object, given, named, rest)
        return UNKNOWN

    def _call_object(self, obj: Any, given: list[AbstractValue], named: Mapping[str, AbstractValue], rest: bool) -> AbstractValue:
        if obj is _squall.sleep or obj is getattr(sys.modules.get("squall.compat.vikhry"), "emit_metric", _MISSING):
            return SQUALL_AWAITABLE
        if obj is events or obj is JsonRPCClient:
            return SQUALL_AWAITABLE if given and given[0] in _SQUALL_VALUES else UNKNOWN
        if obj is ProbeContext:
            return _PROBE_CONTEXT if given[1:] == [SQUALL_AWAITABLE] else UNKNOWN
        if isinstance(obj, FunctionType):
            return self._call_function(obj, given, named, rest)
        if isinstance(obj, MethodType):
            return self.call(value_of(obj.__func__), [value_of(obj.__self__), *given], named, rest)
        if isinstance(obj, functools.partial):
            options = {name: value_of(value) for name, value in obj.keywords.items()} | dict(named)
            return self.call(value_of(obj.func), [*(value_of(value) for value in obj.args), *given], options, rest)
        method = inspect.getattr_static(type(obj), "__call__", None)
        if not isinstance(obj, type) and isinstance(method, FunctionType):
            return self.call(value_of(method), [value_of(obj), *given], named, rest)
        return UNKNOWN

    def _call_function(
        self, function: FunctionType, given: list[AbstractValue], named: Mapping[str, AbstractValue], rest: bool
    ) -> AbstractValue:
        cells = cells_of(function)
        if function.__code__ is _CONTEXT_MANAGER_CODE and "func" in cells:
            made = self.call(value_of(cells["func"]), given, named, rest)
            return CheckedGenerator("manager", made.result) if isinstance(made, CheckedGenerator) else UNKNOWN
        file = function.__code__.co_filename
        if not is_scenario_file(file) and not file.startswith(_ANALYSED_SQUALL_FILES):
            return UNKNOWN
        source, node = self._sources.definition(function)
        arguments = _bind_arguments(node, given, named, rest)
        return self._analyse_function(FunctionScope(source, node, arguments, cells), function)

    def _analyse_function(self, scope: FunctionScope, identity: Any = None) -> AbstractValue:
        """Checks a function with these arguments and returns the value of calling it."""
        nodes = list(_abstract_values.own_nodes(scope.node))
        is_generator = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes)
        is_async = isinstance(scope.node, ast.AsyncFunctionDef)

        def returned(value: AbstractValue) -> AbstractValue:
            if is_generator:
                kind = "unclosed" if _awaits_when_closed(nodes) else "generator"
                return CheckedGenerator(kind, value) if is_async else UNKNOWN
            return CheckedCoroutine("coroutine", value) if is_async else value

        def proven() -> AbstractValue:
            for node in nodes:
                self._check_node(scope, node)
            self.usage.check_function(scope)
            ends = [node.value for node in nodes if isinstance(node, (ast.Yield if is_generator else ast.Return))]
            if isinstance(scope.node, ast.Lambda):
                ends = [scope.node.body]
            return returned(join(PLAIN_DATA if end is None else self.evaluate(scope, end) for end in ends))

        key = (identity or (scope.node, scope.parent), tuple(scope.arguments.items()))
        return self.memoize(key, proven, returned(PLAIN_DATA))

    def _check_node(self, scope: FunctionScope, node: ast.AST) -> None:
        if isinstance(node, ast.Await):
            self._check_awaitable(scope, node.value, node, "coroutine")
        elif isinstance(node, ast.AsyncWith):
            for item in node.items:
                self._check_awaitable(scope, item.context_expr, node, "manager")
        elif isinstance(node, ast.AsyncFor):
            self._check_awaitable(scope, node.iter, node, "generator")
        elif isinstance(node, ast.comprehension) and node.is_async:
            self._check_awaitable(scope, node.iter, node.iter, "generator")

    def _check_awaitable(self, scope: FunctionScope, expression: ast.expr, at: ast.AST, kind: str) -> None:
        value = self.evaluate(scope, expression)
        if value in _SQUALL_VALUES or value.kind == kind:
            return
        text = ast.unparse(expression)
        shown = text if len(text) <= 60 else text[:57] + "..."
        dynamic = self._sources.dynamic
        why = f" ({dynamic}, so its value is unknown)" if dynamic else ""
        raise NeedsAsyncio(f"{scope.source.location(at)} awaits {shown}, which is not proven to be Squall's{why}")

    def attribute(self, base: AbstractValue, name: str) -> AbstractValue:
        if base in (SQUALL_AWAITABLE, SQUALL_RESULT, _PROBE_CONTEXT):
            if any(not one.to_self for one in self._sources.stores(name)) or (base == _PROBE_CONTEXT and name != "client"):
                return UNKNOWN
            if base != SQUALL_RESULT or name in _CONNECTION_METHODS:
                return SQUALL_AWAITABLE
            return SQUALL_RESULT if name in _BODY_METHODS else UNKNOWN
        if base == USER:
            # `self.http = self.http(base_url=…)` changes the base URL of vikhry's client; it stays
            # a client.
            meanwhile = SQUALL_AWAITABLE if self._is_vikhry_client(name) else PLAIN_DATA
            return self.memoize(("self", name), lambda: self._user_attribute(name), meanwhile)
        if isinstance(base, SuperObject):
            following = self._cls.__mro__[self._cls.__mro__.index(base.cls) + 1 :] if base.cls in self._cls.__mro__ else ()
            found = next((vars(cls)[name] for cls in following if name in vars(cls)), _MISSING)
            return _class_member(found, USER)
        if not isinstance(base, KnownObject):
            return UNKNOWN
        obj = base.object
        if isinstance(obj, ModuleType):
            return UNKNOWN if self.is_rebound(name) else value_of(getattr(obj, name)) if hasattr(obj, name) else UNKNOWN
        if isinstance(obj, type):
            return UNKNOWN if self._sources.stores(name) else _class_member(inspect.getattr_static(obj, name, _MISSING), None)
        return self._object_attribute(base, name)

    def _object_attribute(self, base: KnownObject, name: str) -> AbstractValue:
        """Returns an attribute of an object made before the run: its current value if only
        ``__init__`` assigns it."""
        cls = type(base.object)
        stores = [one for one in self._sources.stores(name) if not one.to_self or one.owner in {c.__name__ for c in cls.__mro__}]
        untouched = all(one.to_self and isinstance(one.function, ast.FunctionDef) and one.function.name == "__init__" for one in stores)
        if self._sources.dynamic or not untouched or "__getattribute__" in scenario_attributes(cls):
            return UNKNOWN
        own_values = getattr(base.object, "__dict__", {})
        if name in own_values:
            return value_of(own_values[name])
        return _class_member(inspect.getattr_static(cls, name, _MISSING), base)

    def _user_attribute(self, name: str) -> AbstractValue:
        """Returns an attribute of the user: the value in its class joined with every value that a
        method assigns."""
        if self._sources.dynamic or "__getattribute__" in scenario_attributes(self._cls):
            return UNKNOWN
        inherited = {cls.__name__ for cls in self._cls.__mro__}
        values = [self._stored_value(one) for one in self._sources.stores(name) if not one.to_self or one.owner in inherited]
        static = inspect.getattr_static(self._cls, name, _MISSING)
        given = name == "resources" and static is _MISSING
        if given or self._is_vikhry_client(name):
            values.append(SQUALL_AWAITABLE)
        elif static is not _MISSING or not values:
            values.append(_class_member(static, USER))
        return join(values)

    def _is_vikhry_client(self, name: str) -> bool:
        """Returns whether an attribute is the client of a scenario written for vikhry."""
        return name == "http" and type(inspect.getattr_static(self._cls, name, None)).__module__.startswith("squall.compat")

    def _stored_value(self, store: AttributeStore) -> AbstractValue:
        node = store.function
        if not store.to_self or store.value is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return UNKNOWN
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        arguments = _abstract_values.unknown_arguments(node)
        arguments[names[0]] = USER
        if isinstance(node, ast.AsyncFunctionDef) and self._gets_client(node) and len(names) > 1:
            arguments[names[1]] = SQUALL_AWAITABLE
        return self.evaluate(FunctionScope(store.source, node, arguments), store.value)

    def _gets_client(self, node: ast.AsyncFunctionDef) -> bool:
        """Returns whether only the engine calls a method, so that its second argument is the
        client."""
        for cls in self._cls.__mro__:
            function = vars(cls).get(node.name)
            if not isinstance(function, FunctionType) or not is_scenario_file(function.__code__.co_filename):
                continue
            if self._sources.definition(function)[1] is node:
                engine = node.name in ("on_start", "on_stop") or hasattr(function, "__squall_task__")
                return engine and not self._sources.is_attribute_read(node.name)
        return False


def scenario_attributes(cls: type) -> set[str]:
    """Returns the names that the scenario's own classes define."""
    return {name for one in cls.__mro__ if one.__module__ not in ("builtins", "abc", "squall._dsl") for name in vars(one)}


def _class_member(found: Any, of: AbstractValue | None) -> AbstractValue:
    """Returns a class member read through the object ``of``, or through the class itself if ``of``
    is None."""
    if isinstance(found, FunctionType):
        return value_of(found) if of is None else BoundFunction("bound", value_of(found), of)
    if isinstance(found, staticmethod):
        return value_of(found.__func__)
    return UNKNOWN if found is _MISSING or hasattr(type(found), "__get__") else value_of(found)


def _awaits_when_closed(nodes: list[ast.AST]) -> bool:
    """Returns whether a generator that is abandoned must await something to close; only an asyncio
    loop awaits that."""
    waits, ends = (ast.Await, ast.AsyncFor, ast.AsyncWith), (ast.Yield, ast.YieldFrom)
    for node in nodes:
        within: list[ast.AST] = [node] if isinstance(node, ast.AsyncWith) else []
        if isinstance(node, ast.Try) and _contains_any(waits, [*node.handlers, *node.finalbody]):
            within = [node]
        if _contains_any(ends, within):
            return True
    return False


def _contains_any(kinds: tuple[type, ...], nodes: list[ast.AST]) -> bool:
    return any(isinstance(inner, kinds) for node in nodes for inner in ast.walk(node))


def _bind_arguments(
    node: Definition, given: list[AbstractValue], named: Mapping[str, AbstractValue], rest: bool
) -> dict[str, AbstractValue]:
    """Returns the values of a function's parameters."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    only_named = [argument.arg for argument in node.args.kwonlyargs]
    defaults = dict(zip(reversed(names), reversed(node.args.defaults), strict=False))
    defaults |= {name: default for name, default in zip(only_named, node.args.kw_defaults, strict=True) if default is not None}
    found: dict[str, AbstractValue] = dict(zip(names, given, strict=False))
    for name in (*names, *only_named):
        if name not in found:
            is_plain = not rest and isinstance(defaults.get(name), ast.Constant)
            found[name] = named.get(name, PLAIN_DATA if is_plain else UNKNOWN)
    if node.args.vararg is not None:
        found[node.args.vararg.arg] = UNKNOWN if rest else PackedArguments("pack", tuple(given[len(names) :]))
    if node.args.kwarg is not None:
        others = {name: value for name, value in named.items() if name not in (*names, *only_named)}
        found[node.args.kwarg.arg] = UNKNOWN if rest else PackedArguments("options", tuple(others.values()), tuple(others))
    return found

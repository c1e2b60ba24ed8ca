"""Says whether everything that a scenario's coroutines await is Squall's own, so that the engine can resume them itself.

A proof from the source, never a guess: what is not proven to be Squall's is taken for asyncio's, and the scenario then runs on a real
asyncio loop, where both work. Ours are calls of the client, of ``self.resources``, of ``squall.sleep``, what comes out of them, and
functions of the scenario's own, decorators included, that await nothing else. A coroutine that uses asyncio without awaiting it, itself or
through plain functions, needs the loop as well: ``squall._uses`` looks for that."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from squall import _squall, _values
from squall._jsonrpc import JsonRPCClient
from squall._probe import ProbeContext
from squall._sources import HERE, Definition, Sources, Store, Unreadable, cells_of, is_own, sent_when_called
from squall._sse import events
from squall._uses import Foreign, Uses
from squall._values import (
    DATA,
    OURS,
    RESULT,
    UNKNOWN,
    USER,
    Above,
    Bound,
    Coroutine,
    Frame,
    Known,
    Nested,
    Pack,
    Value,
    Yielding,
    join,
    known,
)

#: Squall's own Python that runs a scenario's functions and is looked into like them.
_WRAPPERS = tuple(HERE + name for name in ("_load.py", "_metrics.py", "_probe.py", "compat"))
_MANAGER = contextlib.asynccontextmanager(lambda: None).__code__  # type: ignore[arg-type, return-value]
#: How deep, and how long, is looked.
_DEPTH, _STEPS = 150, 20_000
_NEVER = 1_000_000
#: What a probe is given: only the client in it is ours.
_CONTEXT = Value("context")
#: What is called and awaited of a connection that was awaited, and of an answer.
_LIVE = frozenset({"send", "receive", "chunk", "close"})
_BODY = frozenset({"json", "text", "bytes"})
_MISSING = object()


def first_foreign(cls: type, functions: Iterable[Callable[..., Any]], sources: Sources) -> str | None:
    """Why these functions, which are called with a user of ``cls`` and perhaps a client, need asyncio; None if they do not."""
    proof = _Proof(cls, sources)
    try:
        for function in functions:
            client = DATA if getattr(function, "__name__", "") == "on_init" else OURS
            result = proof.call(known(sent_when_called(function) or function), [USER, client])
            if not isinstance(result, Coroutine):
                raise Foreign(f"{getattr(function, '__qualname__', function)} cannot be looked into")
            proof.uses.behind()
    except (Foreign, Unreadable) as reason:
        return str(reason)
    except RecursionError:
        return "its code is nested too deep to look through"
    return None


class _Proof(_values.Proof):
    def __init__(self, cls: type, sources: Sources) -> None:
        self._cls = cls
        self._sources = sources
        self.uses = Uses(self, sources)
        self._found: dict[Any, Value] = {}
        #: What is being looked for, and how far up the search has met itself.
        self._active: dict[Any, int] = {}
        self._met = _NEVER
        self._steps = 0

    def is_rebound(self, name: str) -> bool:
        return self._sources.is_rebound(name)

    def once(self, key: Any, find: Callable[[], Value], meanwhile: Value = DATA) -> Value:
        """What ``find`` finds; while it is looking, ``meanwhile``, so that what depends on itself depends on the rest."""
        if key in self._found:
            return self._found[key]
        if key in self._active:
            self._met = min(self._met, self._active[key])
            return meanwhile
        self._steps += 1
        depth = len(self._active)
        if depth > _DEPTH or self._steps > _STEPS:
            raise Foreign("its code is too much to look through")
        before, self._met = self._met, _NEVER
        self._active[key] = depth
        value = find()
        del self._active[key]
        if self._met >= depth:
            # It rests on nothing that is still being looked for.
            self._found[key] = value
            self._met = _NEVER
        self._met = min(before, self._met)
        return value

    def imported(self, frame: Frame, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Value:
        if isinstance(node, ast.ImportFrom):
            return self.attribute(known(sys.modules.get(Sources.imported_from(frame.source, node))), alias.name)
        return known(sys.modules.get(alias.name if alias.asname else alias.name.partition(".")[0]))

    def evaluate(self, frame: Frame, expression: ast.expr) -> Value:
        match expression:
            case ast.Await(value=inner):
                value = self.evaluate(frame, inner)
                return value.result if isinstance(value, Coroutine) else RESULT if value in (OURS, RESULT) else UNKNOWN
            case ast.Call():
                return self._call(frame, expression)
            case ast.Name(id=name):
                return frame.lookup(self, name)
            case ast.Attribute(value=base, attr=name):
                return self.attribute(self.evaluate(frame, base), name)
            case ast.IfExp(body=one, orelse=other):
                return join([self.evaluate(frame, one), self.evaluate(frame, other)])
            case ast.BoolOp(values=values):
                return join(self.evaluate(frame, value) for value in values)
            case ast.NamedExpr(value=inner):
                return self.evaluate(frame, inner)
            case ast.Lambda():
                return Nested("nested", expression, frame)
            case ast.Constant() | ast.JoinedStr():
                return DATA
        return UNKNOWN

    def _call(self, frame: Frame, call: ast.Call) -> Value:
        target = self.evaluate(frame, call.func)
        if isinstance(target, Known) and target.it is super and not call.args:
            return self._super(frame)
        given: list[Value] = []
        named: dict[str, Value] = {}
        rest = False
        for argument in call.args:
            value = self.evaluate(frame, argument.value if isinstance(argument, ast.Starred) else argument)
            if not isinstance(argument, ast.Starred):
                given.append(UNKNOWN if rest else value)
            elif isinstance(value, Pack) and value.kind == "pack":
                given += value.values
            else:
                rest = True
        for keyword in call.keywords:
            value = self.evaluate(frame, keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Pack) and value.kind == "options":
                named.update(zip(value.names, value.values, strict=True))
            else:
                rest = True
        return self.call(target, given, named, rest)

    def _super(self, frame: Frame) -> Value:
        outer: Frame | None = frame
        while outer is not None:
            if "__class__" in outer.cells and outer.node.args.args:
                first = outer.lookup(self, outer.node.args.args[0].arg)
                return Above("above", outer.cells["__class__"]) if first == USER else UNKNOWN
            outer = outer.parent
        return UNKNOWN

    def call(self, target: Value, given: list[Value], named: Mapping[str, Value] | None = None, rest: bool = False) -> Value:
        """What a call returns; proves on the way what it runs. ``rest`` says that there are more arguments than are known."""
        named = named or {}
        if target in (OURS, RESULT):
            return target
        if isinstance(target, Bound):
            return self.call(target.function, [target.to, *given], named, rest)
        if isinstance(target, Nested):
            return self._run(Frame(target.frame.source, target.node, _bind(target.node, given, named, rest), None, target.frame))
        if isinstance(target, Known):
            return self._call_object(target.it, given, named, rest)
        return UNKNOWN

    def _call_object(self, it: Any, given: list[Value], named: Mapping[str, Value], rest: bool) -> Value:
        if it is _squall.sleep or it is getattr(sys.modules.get("squall.compat.vikhry"), "emit_metric", _MISSING):
            return OURS
        if it is events or it is JsonRPCClient:
            return OURS if given and given[0] in (OURS, RESULT) else UNKNOWN
        if it is ProbeContext:
            return _CONTEXT if given[1:] == [OURS] else UNKNOWN
        if isinstance(it, FunctionType):
            return self._call_function(it, given, named, rest)
        if isinstance(it, MethodType):
            return self.call(known(it.__func__), [known(it.__self__), *given], named, rest)
        if isinstance(it, functools.partial):
            options = {name: known(value) for name, value in it.keywords.items()} | dict(named)
            return self.call(known(it.func), [*(known(value) for value in it.args), *given], options, rest)
        method = inspect.getattr_static(type(it), "__call__", None)
        if not isinstance(it, type) and isinstance(method, FunctionType):
            return self.call(known(method), [known(it), *given], named, rest)
        return UNKNOWN

    def _call_function(self, function: FunctionType, given: list[Value], named: Mapping[str, Value], rest: bool) -> Value:
        cells = cells_of(function)
        if function.__code__ is _MANAGER and "func" in cells:
            made = self.call(known(cells["func"]), given, named, rest)
            return Yielding("manager", made.result) if isinstance(made, Yielding) else UNKNOWN
        file = function.__code__.co_filename
        if not is_own(file) and not file.startswith(_WRAPPERS):
            return UNKNOWN
        source, node = self._sources.definition(function)
        arguments = _bind(node, given, named, rest)
        return self._run(Frame(source, node, arguments, cells), function)

    def _run(self, frame: Frame, identity: Any = None) -> Value:
        """Proves one function with its arguments."""
        nodes = list(_values.own_nodes(frame.node))
        is_generator = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes)
        is_async = isinstance(frame.node, ast.AsyncFunctionDef)

        def returned(value: Value) -> Value:
            if is_generator:
                kind = "unclosed" if _awaits_when_closed(nodes) else "generator"
                return Yielding(kind, value) if is_async else UNKNOWN
            return Coroutine("coroutine", value) if is_async else value

        def proven() -> Value:
            for node in nodes:
                self._prove(frame, node)
            self.uses.look(frame)
            ends = [node.value for node in nodes if isinstance(node, (ast.Yield if is_generator else ast.Return))]
            if isinstance(frame.node, ast.Lambda):
                ends = [frame.node.body]
            return returned(join(DATA if end is None else self.evaluate(frame, end) for end in ends))

        key = (identity or (frame.node, frame.parent), tuple(frame.arguments.items()))
        return self.once(key, proven, returned(DATA))

    def _prove(self, frame: Frame, node: ast.AST) -> None:
        if isinstance(node, ast.Await):
            self._require(frame, node.value, node, "coroutine")
        elif isinstance(node, ast.AsyncWith):
            for item in node.items:
                self._require(frame, item.context_expr, node, "manager")
        elif isinstance(node, ast.AsyncFor):
            self._require(frame, node.iter, node, "generator")
        elif isinstance(node, ast.comprehension) and node.is_async:
            self._require(frame, node.iter, node.iter, "generator")

    def _require(self, frame: Frame, expression: ast.expr, at: ast.AST, kind: str) -> None:
        value = self.evaluate(frame, expression)
        if value in (OURS, RESULT) or value.kind == kind:
            return
        text = ast.unparse(expression)
        shown = text if len(text) <= 60 else text[:57] + "..."
        dynamic = self._sources.dynamic
        why = f" ({dynamic}, so it may be anything)" if dynamic else ""
        raise Foreign(f"{frame.source.place(at)} awaits {shown}, which is not proven to be Squall's own{why}")

    def attribute(self, base: Value, name: str) -> Value:
        if base in (OURS, RESULT, _CONTEXT):
            if any(not one.to_self for one in self._sources.stores(name)) or (base == _CONTEXT and name != "client"):
                return UNKNOWN
            return OURS if base != RESULT or name in _LIVE else RESULT if name in _BODY else UNKNOWN
        if base == USER:
            # `self.http = self.http(base_url=…)` gives the client another base URL.
            return self.once(("self", name), lambda: self._of_user(name), OURS if self._is_the_client(name) else DATA)
        if isinstance(base, Above):
            following = self._cls.__mro__[self._cls.__mro__.index(base.cls) + 1 :] if base.cls in self._cls.__mro__ else ()
            found = next((vars(cls)[name] for cls in following if name in vars(cls)), _MISSING)
            return _member(found, USER)
        if not isinstance(base, Known):
            return UNKNOWN
        it = base.it
        if isinstance(it, ModuleType):
            return UNKNOWN if self.is_rebound(name) else known(getattr(it, name)) if hasattr(it, name) else UNKNOWN
        if isinstance(it, type):
            return UNKNOWN if self._sources.stores(name) else _member(inspect.getattr_static(it, name, _MISSING), None)
        return self._of_object(base, name)

    def _of_object(self, base: Known, name: str) -> Value:
        """An attribute of something made before the run: what it was then, if only its own __init__ sets it."""
        cls = type(base.it)
        stores = [one for one in self._sources.stores(name) if not one.to_self or one.owner in {c.__name__ for c in cls.__mro__}]
        untouched = all(one.to_self and isinstance(one.function, ast.FunctionDef) and one.function.name == "__init__" for one in stores)
        if self._sources.dynamic or not untouched or "__getattribute__" in dir_own(cls):
            return UNKNOWN
        own_values = getattr(base.it, "__dict__", {})
        if name in own_values:
            return known(own_values[name])
        return _member(inspect.getattr_static(cls, name, _MISSING), base)

    def _of_user(self, name: str) -> Value:
        """An attribute of the user: what its class says, and what any method gives it."""
        if self._sources.dynamic or "__getattribute__" in dir_own(self._cls):
            return UNKNOWN
        inherited = {cls.__name__ for cls in self._cls.__mro__}
        values = [self._stored(one) for one in self._sources.stores(name) if not one.to_self or one.owner in inherited]
        static = inspect.getattr_static(self._cls, name, _MISSING)
        given = name == "resources" and static is _MISSING
        if given or self._is_the_client(name):
            values.append(OURS)
        elif static is not _MISSING or not values:
            values.append(_member(static, USER))
        return join(values)

    def _is_the_client(self, name: str) -> bool:
        """Whether an attribute is the client as scenarios written for vikhry have it."""
        return name == "http" and type(inspect.getattr_static(self._cls, name, None)).__module__.startswith("squall.compat")

    def _stored(self, store: Store) -> Value:
        node = store.function
        if not store.to_self or store.value is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return UNKNOWN
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        arguments = _values.whatever(node)
        arguments[names[0]] = USER
        if isinstance(node, ast.AsyncFunctionDef) and self._gets_client(node) and len(names) > 1:
            arguments[names[1]] = OURS
        return self.evaluate(Frame(store.source, node, arguments), store.value)

    def _gets_client(self, node: ast.AsyncFunctionDef) -> bool:
        """Whether only the engine calls a method, with a client."""
        for cls in self._cls.__mro__:
            function = vars(cls).get(node.name)
            if not isinstance(function, FunctionType) or not is_own(function.__code__.co_filename):
                continue
            if self._sources.definition(function)[1] is node:
                engine = node.name in ("on_start", "on_stop") or hasattr(function, "__squall_task__")
                return engine and not self._sources.is_mentioned(node.name)
        return False


def dir_own(cls: type) -> set[str]:
    """What the classes of the scenario itself define."""
    return {name for one in cls.__mro__ if one.__module__ not in ("builtins", "abc", "squall._dsl") for name in vars(one)}


def _member(found: Any, of: Value | None) -> Value:
    """Something that stands in a class, as an attribute of ``of``, an object of it, or of the class itself."""
    if isinstance(found, FunctionType):
        return known(found) if of is None else Bound("bound", known(found), of)
    if isinstance(found, staticmethod):
        return known(found.__func__)
    return UNKNOWN if found is _MISSING or hasattr(type(found), "__get__") else known(found)


def _awaits_when_closed(nodes: list[ast.AST]) -> bool:
    """Whether a generator that is left before its end would have to await something: only a loop does that for it."""
    waits, ends = (ast.Await, ast.AsyncFor, ast.AsyncWith), (ast.Yield, ast.YieldFrom)
    for node in nodes:
        within: list[ast.AST] = [node] if isinstance(node, ast.AsyncWith) else []
        if isinstance(node, ast.Try) and _any(waits, [*node.handlers, *node.finalbody]):
            within = [node]
        if _any(ends, within):
            return True
    return False


def _any(kinds: tuple[type, ...], nodes: list[ast.AST]) -> bool:
    return any(isinstance(inner, kinds) for node in nodes for inner in ast.walk(node))


def _bind(node: Definition, given: list[Value], named: Mapping[str, Value], rest: bool) -> dict[str, Value]:
    """What a function's parameters stand for."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    only_named = [argument.arg for argument in node.args.kwonlyargs]
    defaults = dict(zip(reversed(names), reversed(node.args.defaults), strict=False))
    defaults |= {name: default for name, default in zip(only_named, node.args.kw_defaults, strict=True) if default is not None}
    found: dict[str, Value] = dict(zip(names, given, strict=False))
    for name in (*names, *only_named):
        if name not in found:
            is_plain = not rest and isinstance(defaults.get(name), ast.Constant)
            found[name] = named.get(name, DATA if is_plain else UNKNOWN)
    if node.args.vararg is not None:
        found[node.args.vararg.arg] = UNKNOWN if rest else Pack("pack", tuple(given[len(names) :]))
    if node.args.kwarg is not None:
        others = {name: value for name, value in named.items() if name not in (*names, *only_named)}
        found[node.args.kwarg.arg] = UNKNOWN if rest else Pack("options", tuple(others.values()), tuple(others))
    return found

"""What the proof of ``squall._awaits`` knows of a value, and the names of a function under proof."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from squall._sources import Definition, Source


@dataclass(frozen=True)
class Value:
    """One of those that need no more words."""

    kind: str


#: Squall's: awaiting it, and whatever comes out of it, waits for nothing but Squall.
OURS = Value("ours")
#: What awaiting such a thing gives: an answer, a connection, but also a dict or a list that a scenario may put anything into.
RESULT = Value("result")
#: The virtual user.
USER = Value("user")
#: Neither awaited nor called: a literal, nothing.
DATA = Value("data")
#: Anything.
UNKNOWN = Value("unknown")


@dataclass(frozen=True)
class Known(Value):
    """An object that is there before the run."""

    kind: str = "known"
    it: Any = field(default=None, compare=False)
    number: int = 0


@dataclass(frozen=True)
class Bound(Value):
    """A function with its first argument."""

    function: Value
    to: Value


@dataclass(frozen=True)
class Nested(Value):
    """A function that is defined in a function."""

    node: Definition
    frame: Frame


@dataclass(frozen=True)
class Coroutine(Value):
    """Proven to await nothing but Squall; gives ``result``."""

    result: Value


@dataclass(frozen=True)
class Yielding(Value):
    """An asynchronous generator (kind ``generator``) or what ``asynccontextmanager`` makes of one (kind ``manager``), proven likewise."""

    result: Value


@dataclass(frozen=True)
class Above(Value):
    """``super()`` in a method of ``cls``."""

    cls: type


@dataclass(frozen=True)
class Pack(Value):
    """What ``*args`` holds, or ``**options`` with names."""

    values: tuple[Value, ...]
    names: tuple[str, ...] = ()


def known(it: Any) -> Value:
    if it is None or isinstance(it, (str, bytes, int, float, bool)):
        return DATA
    return Known(it=it, number=id(it))


def join(values: Iterable[Value]) -> Value:
    """What is one of several."""
    different = {value for value in values if value != DATA}
    return different.pop() if len(different) == 1 else UNKNOWN if different else DATA


def whatever(node: Definition) -> dict[str, Value]:
    """The arguments of a function that is called with nobody knows what."""
    return {argument.arg: UNKNOWN for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}


class Frame:
    """One function under proof, with what its names stand for, wherever in it they are used."""

    def __init__(
        self,
        source: Source,
        node: Definition,
        arguments: Mapping[str, Value],
        cells: Mapping[str, Any] | None = None,
        parent: Frame | None = None,
    ) -> None:
        self.source = source
        self.node = node
        self.arguments = arguments
        self.cells = cells or {}
        self.parent = parent
        #: Names to the ways in which they get values; None is a way that is not understood.
        self.bindings: dict[str, list[Callable[[Proof], Value] | None]] = {}
        understood: set[int] = set()
        for inner in own_nodes(node):
            for name, way, target in _bindings(inner, self):
                self.bindings.setdefault(name, []).append(way)
                understood.add(id(target))
        for inner in own_nodes(node):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load) and id(inner) not in understood:
                self.bindings.setdefault(inner.id, []).append(None)

    def lookup(self, proof: Proof, name: str) -> Value:
        if name in self.arguments or name in self.bindings:
            return proof.once((self, name), lambda: self._local(proof, name))
        if self.parent is not None:
            return self.parent.lookup(proof, name)
        if name in self.cells:
            return UNKNOWN if proof.is_rebound(name) else known(self.cells[name])
        if name in self.source.namespace:
            return UNKNOWN if proof.is_rebound(name) else known(self.source.namespace[name])
        return known(getattr(builtins, name)) if hasattr(builtins, name) else UNKNOWN

    def before(self, name: str) -> Value:
        """What a name of the module's, or of a closure, stood for before the run, even if that may change."""
        if name in self.arguments or name in self.bindings:
            return UNKNOWN
        if self.parent is not None:
            return self.parent.before(name)
        outer = self.cells if name in self.cells else self.source.namespace
        return known(outer[name]) if name in outer else UNKNOWN

    def _local(self, proof: Proof, name: str) -> Value:
        if name in self.source.rebound:
            return UNKNOWN
        values = [self.arguments[name]] if name in self.arguments else []
        return join([*values, *(UNKNOWN if way is None else way(proof) for way in self.bindings.get(name, []))])


class Proof:
    """What a frame asks of the proof."""

    def is_rebound(self, name: str) -> bool:
        raise NotImplementedError

    def attribute(self, base: Value, name: str) -> Value:
        raise NotImplementedError

    def once(self, key: Any, find: Callable[[], Value]) -> Value:
        raise NotImplementedError

    def evaluate(self, frame: Frame, expression: ast.expr) -> Value:
        raise NotImplementedError

    def imported(self, frame: Frame, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Value:
        raise NotImplementedError


def own_nodes(definition: ast.AST) -> Iterator[ast.AST]:
    """All that a function does itself: without the functions and classes that are defined in it, but with their decorators and defaults."""
    waiting: list[ast.AST] = [definition.body] if isinstance(definition, ast.Lambda) else [*getattr(definition, "body", [])]
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
            waiting += [*defaults, *getattr(node, "decorator_list", [])]
        elif isinstance(node, ast.ClassDef):
            waiting += [*node.decorator_list, *node.bases]
        else:
            waiting += ast.iter_child_nodes(node)


_Binding = tuple[str, Callable[[Proof], Value] | None, ast.AST | None]


def _bindings(node: ast.AST, frame: Frame) -> Iterator[_Binding]:
    """The names that a node gives values to, and how."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value, frame)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _targets(node.target, node.value, frame)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _parts(node.target, lambda proof: UNKNOWN)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _parts(item.optional_vars, lambda proof, at=item.context_expr: _entered(proof.evaluate(frame, at)))  # type: ignore[misc]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name, None if node.decorator_list else lambda proof: Nested("nested", node, frame), None
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], lambda proof, one=alias: proof.imported(frame, node, one), None  # type: ignore[misc]
    elif isinstance(node, (ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
        yield node.name, None, None
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest, None, None


def _targets(target: ast.expr, value: ast.expr, frame: Frame) -> Iterator[_Binding]:
    pairs = isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)) and len(target.elts) == len(value.elts)
    if pairs and not any(isinstance(one, ast.Starred) for one in [*target.elts, *value.elts]):  # type: ignore[attr-defined]
        for part, given in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
            yield from _targets(part, given, frame)
    elif isinstance(target, ast.Name):
        yield target.id, lambda proof: proof.evaluate(frame, value), target
    else:
        yield from _parts(target, lambda proof: RESULT if proof.evaluate(frame, value) == RESULT else UNKNOWN)


def _parts(target: ast.expr, way: Callable[[Proof], Value]) -> Iterator[_Binding]:
    """The names of a target that gets something, or takes it apart."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id, way, node


def _entered(value: Value) -> Value:
    if isinstance(value, Yielding) and value.kind == "manager":
        return value.result
    return value if value in (OURS, RESULT) else UNKNOWN


def is_module(value: Value) -> bool:
    return isinstance(value, Known) and isinstance(value.it, ModuleType)

"""The values that the await analysis computes, and the scope that gives a function's names their
values. Does not decide what needs asyncio: ``squall._await_analysis`` does."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from squall._sources import Definition, SourceFile


@dataclass(frozen=True)
class AbstractValue:
    """A value that its kind alone describes; subclasses carry more."""

    kind: str


#: The client, an operation and the like: awaiting it or one of its methods waits for Squall only.
SQUALL_AWAITABLE = AbstractValue("awaitable")
#: The result of awaiting it: a response or a connection, but also a dict or list that the scenario
#: may store anything in.
SQUALL_RESULT = AbstractValue("result")
#: The virtual user.
USER = AbstractValue("user")
#: A value that is neither awaited nor called: a literal or None.
PLAIN_DATA = AbstractValue("data")
#: A value that the analysis cannot determine.
UNKNOWN = AbstractValue("unknown")


@dataclass(frozen=True)
class KnownObject(AbstractValue):
    """An object that exists before the run."""

    kind: str = "known"
    object: Any = field(default=None, compare=False)
    object_id: int = 0


@dataclass(frozen=True)
class BoundFunction(AbstractValue):
    """A function bound to its first argument."""

    function: AbstractValue
    first_argument: AbstractValue


@dataclass(frozen=True)
class NestedFunction(AbstractValue):
    """A function defined inside another function."""

    node: Definition
    scope: FunctionScope


@dataclass(frozen=True)
class CheckedCoroutine(AbstractValue):
    """A coroutine that is proven to await Squall only, and returns ``result``."""

    result: AbstractValue


@dataclass(frozen=True)
class CheckedGenerator(AbstractValue):
    """An async generator (kind ``generator``) or an async context manager made from one (kind
    ``manager``) that is proven to await Squall only."""

    result: AbstractValue


@dataclass(frozen=True)
class SuperObject(AbstractValue):
    """``super()`` in a method of ``cls``."""

    cls: type


@dataclass(frozen=True)
class PackedArguments(AbstractValue):
    """The values of ``*args``, or of ``**options`` with their names."""

    values: tuple[AbstractValue, ...]
    names: tuple[str, ...] = ()


def value_of(obj: Any) -> AbstractValue:
    """Returns the abstract value of an existing object."""
    if obj is None or isinstance(obj, (str, bytes, int, float, bool)):
        return PLAIN_DATA
    return KnownObject(object=obj, object_id=id(obj))


def join(values: Iterable[AbstractValue]) -> AbstractValue:
    """Returns the value that is one of ``values``: unknown if they differ."""
    different = {value for value in values if value != PLAIN_DATA}
    return different.pop() if len(different) == 1 else UNKNOWN if different else PLAIN_DATA


def unknown_arguments(node: Definition) -> dict[str, AbstractValue]:
    """Returns arguments for a function whose callers are not known."""
    return {argument.arg: UNKNOWN for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}


class FunctionScope:
    """A function under analysis and the values of its names. A name has one value in the whole
    function, whatever the order of statements."""

    def __init__(
        self,
        source: SourceFile,
        node: Definition,
        arguments: Mapping[str, AbstractValue],
        cells: Mapping[str, Any] | None = None,
        parent: FunctionScope | None = None,
    ) -> None:
        self.source = source
        self.node = node
        self.arguments = arguments
        self.cells = cells or {}
        self.parent = parent
        #: Name to the functions that evaluate its bindings; None is a binding that is not
        #: understood.
        self.bindings: dict[str, list[Callable[[ValueResolver], AbstractValue] | None]] = {}
        understood: set[int] = set()
        for inner in own_nodes(node):
            for name, evaluate, target in _bindings(inner, self):
                self.bindings.setdefault(name, []).append(evaluate)
                understood.add(id(target))
        for inner in own_nodes(node):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load) and id(inner) not in understood:
                self.bindings.setdefault(inner.id, []).append(None)

    def lookup(self, resolver: ValueResolver, name: str) -> AbstractValue:
        if name in self.arguments or name in self.bindings:
            return resolver.memoize((self, name), lambda: self._local_value(resolver, name))
        if self.parent is not None:
            return self.parent.lookup(resolver, name)
        if name in self.cells:
            return UNKNOWN if resolver.is_rebound(name) else value_of(self.cells[name])
        if name in self.source.namespace:
            return UNKNOWN if resolver.is_rebound(name) else value_of(self.source.namespace[name])
        return value_of(getattr(builtins, name)) if hasattr(builtins, name) else UNKNOWN

    def value_before_run(self, name: str) -> AbstractValue:
        """Returns the value that a module or closure variable had before the run, even if the run
        may change it."""
        if name in self.arguments or name in self.bindings:
            return UNKNOWN
        if self.parent is not None:
            return self.parent.value_before_run(name)
        outer = self.cells if name in self.cells else self.source.namespace
        return value_of(outer[name]) if name in outer else UNKNOWN

    def _local_value(self, resolver: ValueResolver, name: str) -> AbstractValue:
        if name in self.source.rebound:
            return UNKNOWN
        values = [self.arguments[name]] if name in self.arguments else []
        return join([*values, *(UNKNOWN if evaluate is None else evaluate(resolver) for evaluate in self.bindings.get(name, []))])


class ValueResolver:
    """The part of the analysis that a :class:`FunctionScope` calls."""

    def is_rebound(self, name: str) -> bool:
        raise NotImplementedError

    def attribute(self, base: AbstractValue, name: str) -> AbstractValue:
        raise NotImplementedError

    def memoize(self, key: Any, find: Callable[[], AbstractValue]) -> AbstractValue:
        raise NotImplementedError

    def evaluate(self, scope: FunctionScope, expression: ast.expr) -> AbstractValue:
        raise NotImplementedError

    def imported(self, scope: FunctionScope, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> AbstractValue:
        raise NotImplementedError


def own_nodes(definition: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run as part of the function itself: not the bodies of functions and
    classes defined in it, but their decorators and defaults."""
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


_Binding = tuple[str, Callable[[ValueResolver], AbstractValue] | None, ast.AST | None]


def _bindings(node: ast.AST, scope: FunctionScope) -> Iterator[_Binding]:
    """Yields the names that a node binds, how to evaluate them, and the name's node."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assignment_bindings(target, node.value, scope)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _assignment_bindings(node.target, node.value, scope)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _target_bindings(node.target, lambda resolver: UNKNOWN)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _target_bindings(item.optional_vars, _entering(scope, item.context_expr))
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name, None if node.decorator_list else lambda resolver: NestedFunction("nested", node, scope), None
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], lambda resolver, one=alias: resolver.imported(scope, node, one), None  # type: ignore[misc]
    elif isinstance(node, (ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
        yield node.name, None, None
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest, None, None


def _assignment_bindings(target: ast.expr, value: ast.expr, scope: FunctionScope) -> Iterator[_Binding]:
    pairs = isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)) and len(target.elts) == len(value.elts)
    if pairs and not any(isinstance(one, ast.Starred) for one in [*target.elts, *value.elts]):  # type: ignore[attr-defined]
        for part, given in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
            yield from _assignment_bindings(part, given, scope)
    elif isinstance(target, ast.Name):
        yield target.id, lambda resolver: resolver.evaluate(scope, value), target
    else:
        yield from _target_bindings(target, lambda resolver: SQUALL_RESULT if resolver.evaluate(scope, value) == SQUALL_RESULT else UNKNOWN)


def _target_bindings(target: ast.expr, evaluate: Callable[[ValueResolver], AbstractValue]) -> Iterator[_Binding]:
    """Yields the names that an assignment target binds, also by unpacking."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id, evaluate, node


def _entering(scope: FunctionScope, context: ast.expr) -> Callable[[ValueResolver], AbstractValue]:
    return lambda resolver: _entered_value(resolver.evaluate(scope, context))


def _entered_value(value: AbstractValue) -> AbstractValue:
    if isinstance(value, CheckedGenerator) and value.kind == "manager":
        return value.result
    return value if value in (SQUALL_AWAITABLE, SQUALL_RESULT) else UNKNOWN


def is_module(value: AbstractValue) -> bool:
    return isinstance(value, KnownObject) and isinstance(value.object, ModuleType)

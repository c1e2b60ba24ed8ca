"""Says whether everything that a scenario's coroutines await is Squall's own, so that the engine can resume them itself.

A proof from the source, never a guess: what is not proven to be Squall's is taken for asyncio's, and the scenario then runs on a real
asyncio loop, where both work. Ours are calls of the client, of ``self.resources``, of ``squall.sleep``, what comes out of them, and
coroutines of the scenario's own that await nothing else."""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
import textwrap
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

_MISSING = object()
_INSTALLED = {os.path.abspath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


class Foreign(Exception):
    """Where something is awaited that is not proven to be Squall's, and what."""


def first_foreign(cls: type, functions: Iterable[Callable[..., Any]]) -> str | None:
    """Why these functions need asyncio; None if they do not."""
    proof = _Proof(cls)
    try:
        for function in functions:
            proof.function(inspect.unwrap(function), client_at=1)
    except Foreign as reason:
        return str(reason)
    return None


class _Proof:
    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._seen: set[tuple[Any, frozenset[str]]] = set()
        self._attributes = _attributes_of(cls)

    def function(self, function: Any, client_at: int | None = None, clients: frozenset[str] = frozenset()) -> None:
        """Proves one function; its argument ``client_at``, or those named ``clients``, are the client."""
        if not isinstance(function, FunctionType):
            raise Foreign(f"{getattr(function, '__qualname__', function)!r} has no source to look at")
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if client_at is not None and len(names) > client_at:
            clients = frozenset({names[client_at]})
        key = (function.__code__, clients)
        if key in self._seen:
            return
        self._seen.add(key)
        if not inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function):
            return
        definition, first_line = _definition(function)
        _Body(self, function, definition, clients, first_line).prove()

    def attribute(self, name: str) -> Any:
        """What ``self.name`` is: something of the class, or unknown."""
        return getattr(self._cls, name, _MISSING)

    def assigned(self, name: str) -> list[ast.expr]:
        """Every expression that some method assigns to ``self.name``."""
        return self._attributes.get(name, [])


class _Body:
    """One function under proof."""

    def __init__(self, proof: _Proof, function: FunctionType, definition: ast.AsyncFunctionDef, clients: frozenset[str], line: int) -> None:
        self._proof = proof
        self._function = function
        self._definition = definition
        self._clients = clients
        self._file = os.path.basename(function.__code__.co_filename)
        self._line = line
        self._self = definition.args.args[0].arg if definition.args.args else None
        self._scope = {**inspect.getclosurevars(function).nonlocals}
        self._values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(definition):
            for name, value in _bindings(node):
                self._values.setdefault(name, []).append(value)

    def prove(self) -> None:
        for node in ast.walk(self._definition):
            if isinstance(node, ast.Await):
                self._require(node.value, node)
            elif isinstance(node, ast.AsyncWith):
                for item in node.items:
                    self._require(item.context_expr, node)
            elif isinstance(node, (ast.AsyncFor,)):
                self._require(node.iter, node)
            elif isinstance(node, ast.comprehension) and node.is_async:
                self._require(node.iter, node.iter)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._is_asyncio(node):
                raise Foreign(f"{self._place(node)} uses {node.id}")

    def _require(self, expression: ast.expr, at: ast.AST) -> None:
        if not self._ours(expression, set()):
            raise Foreign(f"{self._place(at)} awaits {_shown(expression)}, which is not Squall's own")

    def _place(self, node: ast.AST) -> str:
        return f"{self._file}:{self._line + getattr(node, 'lineno', 1) - 1}"

    def _ours(self, expression: ast.expr, on_the_way: set[str]) -> bool:
        """Whether awaiting, entering or iterating the value waits for nothing but Squall."""
        if isinstance(expression, ast.Await):
            return self._ours(expression.value, on_the_way)
        if isinstance(expression, ast.Call):
            return self._call(expression, on_the_way)
        if isinstance(expression, ast.Name):
            return self._name(expression.id, on_the_way)
        if isinstance(expression, ast.Attribute):
            return self._attribute(expression, on_the_way)
        return False

    def _call(self, call: ast.Call, on_the_way: set[str]) -> bool:
        target = self._resolve(call.func)
        if target is not _MISSING:
            return self._known(target, call)
        # A method of something that is ours: the client's, a stream's.
        return isinstance(call.func, ast.Attribute) and self._ours(call.func.value, on_the_way)

    def _known(self, target: Any, call: ast.Call) -> bool:
        target = inspect.unwrap(target) if callable(target) else target
        module = getattr(target, "__module__", None) or ""
        if module == "squall" or module.startswith("squall."):
            return True
        if not isinstance(target, FunctionType) or _is_installed(target):
            return False
        names = target.__code__.co_varnames[: target.__code__.co_argcount]
        shift = 1 if isinstance(call.func, ast.Attribute) and self._is_self(call.func.value) else 0
        given = {names[index + shift] for index, value in enumerate(call.args) if index + shift < len(names) and self._is_client(value)}
        given |= {keyword.arg for keyword in call.keywords if keyword.arg and self._is_client(keyword.value)}
        self._proof.function(target, clients=frozenset(given))
        return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)

    def _name(self, name: str, on_the_way: set[str]) -> bool:
        if name in self._clients:
            return True
        if name in on_the_way:
            return True
        values = self._values.get(name)
        return bool(values) and all(self._ours(value, on_the_way | {name}) for value in values or [])

    def _attribute(self, expression: ast.Attribute, on_the_way: set[str]) -> bool:
        if not self._is_self(expression.value):
            return self._ours(expression.value, on_the_way)
        if expression.attr == "resources" or (expression.attr == "http" and self._is_squalls(self._proof.attribute("http"))):
            return True
        name = f"self.{expression.attr}"
        if name in on_the_way:
            return True
        values = self._proof.assigned(expression.attr)
        return bool(values) and all(self._ours(value, on_the_way | {name}) for value in values)

    def _resolve(self, function: ast.expr) -> Any:
        """The object that is called, where the source says it."""
        if isinstance(function, ast.Name):
            if function.id in self._values or function.id in self._clients:
                return _MISSING
            return self._scope.get(function.id, self._function.__globals__.get(function.id, _MISSING))
        if isinstance(function, ast.Attribute):
            if self._is_self(function.value):
                return self._proof.attribute(function.attr)
            base = self._resolve(function.value)
            if isinstance(base, (ModuleType, type)):
                return getattr(base, function.attr, _MISSING)
        return _MISSING

    @staticmethod
    def _is_squalls(value: Any) -> bool:
        return type(value).__module__.startswith("squall.")

    def _is_self(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Name) and expression.id == self._self

    def _is_client(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Name) and expression.id in self._clients

    def _is_asyncio(self, node: ast.Name) -> bool:
        if node.id in self._values or node.id in self._clients:
            return False
        value = self._scope.get(node.id, self._function.__globals__.get(node.id))
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        return isinstance(name, str) and name.partition(".")[0] in ("asyncio", "anyio", "aiohttp", "httpx")


def _is_installed(function: FunctionType) -> bool:
    """Whether a function is Python's or a package's: those are not looked into."""
    file = os.path.abspath(function.__code__.co_filename)
    return any(file.startswith(folder + os.sep) for folder in _INSTALLED)


def _definition(function: FunctionType) -> tuple[ast.AsyncFunctionDef, int]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        raise Foreign(f"the source of {function.__qualname__} cannot be read") from None
    definition = tree.body[0]
    if not isinstance(definition, ast.AsyncFunctionDef):
        raise Foreign(f"the source of {function.__qualname__} is no async def")
    return definition, first


def _bindings(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    """The names that a node gives values to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)) and node.value is not None:
        yield from _targets(node.target, node.value)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _targets(node.target, node.iter)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _targets(item.optional_vars, item.context_expr)


def _targets(target: ast.expr, value: ast.expr) -> Iterable[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _targets(part, value)


def _attributes_of(cls: type) -> dict[str, list[ast.expr]]:
    """What the methods of a class assign to ``self.x``. A value from a plain method counts as unknown: it has no client to ask."""
    found: dict[str, list[ast.expr]] = {}
    for base in cls.__mro__:
        for member in vars(base).values():
            if not isinstance(member, FunctionType):
                continue
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(member)))
            except (OSError, SyntaxError, TypeError):
                continue
            own = inspect.iscoroutinefunction(member) and len(member.__code__.co_varnames) > 1
            client = member.__code__.co_varnames[1] if own and member.__code__.co_argcount > 1 else None
            for node in ast.walk(tree):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                            value = node.value if client and _names_in(node.value, client) else ast.Constant(None)
                            found.setdefault(target.attr, []).append(value)
    return found


def _names_in(expression: ast.expr, client: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == client for node in ast.walk(expression))


def _shown(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    return text if len(text) <= 60 else text[:57] + "..."

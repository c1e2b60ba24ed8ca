"""Finds what needs an asyncio loop without being awaited: ``asyncio.create_task`` in a coroutine, or in a plain function, a lambda or a
property that a coroutine may reach. By what objects are, where they are known, and by the name of a method where they are not."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from squall._sources import Definition, Plain, Source, Sources, cells_of, is_own, name_of
from squall._values import Bound, Frame, Known, Proof, Value, is_module, own_nodes, whatever

#: Modules that need a loop, or bring one.
_LOOPS = frozenset({"asyncio", "anyio", "trio", "curio", "sniffio", "uvloop", "aiohttp", "httpx", "twisted", "tornado"})
#: What runs, or gets at, things that the source does not name.
_HIDING = (exec, eval, compile, __import__, importlib, importlib.import_module, sys.modules)


class Foreign(Exception):
    """Where something is awaited or used that is not proven to be Squall's, and what."""


class Uses:
    """The search, through everything that is reached once."""

    def __init__(self, proof: Proof, sources: Sources) -> None:
        self._proof = proof
        self._sources = sources
        self._seen: dict[Any, Any] = {}
        self._loops: dict[str, str | None] = {}

    def look(self, frame: Frame) -> None:
        """Raises :class:`Foreign` if a function uses asyncio, or runs something that does."""
        key = (frame.node, frame.parent, *frame.arguments.items(), *((name, id(it)) for name, it in frame.cells.items()))
        if key in self._seen:
            return
        self._seen[key] = frame
        for node in own_nodes(frame.node):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(frame, node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._value(frame, node, frame.lookup(self._proof, node.id), node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._attribute(frame, node)
            elif isinstance(node, Plain):
                self._unknown(frame.source, node, frame)
            elif isinstance(node, ast.ClassDef):
                for method in ast.walk(node):
                    if isinstance(method, Plain):
                        self._unknown(frame.source, method, frame)

    def _unknown(self, source: Source, node: Definition, parent: Frame | None = None) -> None:
        """A function that is called with whatever."""
        if ("whatever", node, parent) not in self._seen:
            self._seen["whatever", node, parent] = parent
            self.look(Frame(source, node, whatever(node), None, parent))

    def _import(self, frame: Frame, node: ast.Import | ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [Sources.imported_from(frame.source, node)]
        for name in names:
            root = name.partition(".")[0]
            if root in _LOOPS:
                raise Foreign(f"{frame.source.place(node)} uses {root}")
            if root not in sys.stdlib_module_names and not self._sources.has_read(sys.modules.get(name)):
                raise Foreign(f"{frame.source.place(node)} imports {name} only then, so that it cannot be looked into before the run")

    def _attribute(self, frame: Frame, node: ast.Attribute) -> None:
        base = self._proof.evaluate(frame, node.value)
        self._value(frame, node, self._proof.attribute(base, node.attr), ast.unparse(node))
        if not is_module(base):
            for source in self._sources.own:
                for method in source.methods.get(node.attr, []):
                    self._unknown(source, method)

    def _value(self, frame: Frame, node: ast.AST, value: Value, shown: str) -> None:
        if isinstance(value, Bound):
            value = value.function
        if not isinstance(value, Known):
            return
        if any(value.it is hiding for hiding in _HIDING):
            raise Foreign(f"{frame.source.place(node)} uses {shown}, which cannot be looked into")
        loop = self._loop_of(value.it)
        if loop is not None:
            raise Foreign(f"{frame.source.place(node)} uses {shown}" + ("" if shown.startswith(loop) else f", which needs {loop}"))
        self._object(value.it)

    def _loop_of(self, it: Any) -> str | None:
        """The library that something needs a loop for."""
        root = (name_of(it) or "").partition(".")[0]
        if root not in self._loops:
            self._loops[root] = _loop_of_package(root)
        return self._loops[root]

    def _object(self, it: Any) -> None:
        if isinstance(it, MethodType):
            self._object(it.__func__)
        elif isinstance(it, functools.partial):
            self._object(it.func)
        elif isinstance(it, FunctionType):
            if is_own(it.__code__.co_filename):
                source, definition = self._sources.definition(it)
                if isinstance(definition, Plain) and it not in self._seen:
                    self._seen[it] = it
                    self.look(Frame(source, definition, whatever(definition), cells_of(it)))
        elif not isinstance(it, ModuleType):
            cls = it if isinstance(it, type) else type(it)
            if cls in self._seen:
                return
            self._seen[cls] = cls
            for base in cls.__mro__:
                for member in vars(base).values():
                    inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                    if isinstance(inner, FunctionType):
                        self._object(inner)


def _loop_of_package(root: str) -> str | None:
    if root in _LOOPS:
        return root
    if root in sys.stdlib_module_names or root in ("squall", "builtins", "greenlet"):
        return None
    module = sys.modules.get(root)
    if module is None or is_own(getattr(module, "__file__", None)):
        return None
    # A package that knows asyncio may want a loop in any of its functions.
    parts = [part for name, part in list(sys.modules.items()) if name == root or name.startswith(root + ".")]
    values = [value for part in parts for value in getattr(part, "__dict__", {}).values()]
    return root if any((name_of(value) or "").partition(".")[0] in _LOOPS for value in values) else None

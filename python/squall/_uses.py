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
from squall._values import UNKNOWN, Bound, Frame, Known, Proof, Value, is_module, known, own_nodes, whatever

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
                value = frame.lookup(self._proof, node.id)
                self._value(frame, node, frame.before(node.id) if value == UNKNOWN else value, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._attribute(frame, node)
            elif isinstance(node, Plain):
                self._unknown(frame.source, node, frame)
            elif isinstance(node, ast.ClassDef):
                for method in ast.walk(node):
                    if isinstance(method, Plain):
                        self._unknown(frame.source, method, frame)

    def behind(self) -> None:
        """Raises :class:`Foreign` if something that the source does not name may use a loop: such things are done, and one is at hand."""
        dynamic = self._sources.dynamic
        if dynamic is None:
            return
        if self._sources.runs_text:
            raise Foreign(f"{dynamic}, which cannot be looked into")
        if loop := self._at_hand():
            raise Foreign(f"{dynamic}, so that it cannot be told what uses {loop}")

    def _changing(self, frame: Frame, node: ast.Name) -> None:
        """Refuses a use of something that a function puts something else in the place of, if that may need a loop."""
        if loop := self._at_hand():
            raise Foreign(f"{frame.source.place(node)} uses {node.id}, which changes while it runs and may need {loop}")

    def _at_hand(self) -> str | None:
        """A library that needs a loop and that some module of the scenario knows."""
        for source in self._sources.own:
            imports = (node for node in ast.walk(source.tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
            names = [name for node in imports for name in Sources.imports(source, node)]
            found = [self._loop_of(value) for value in source.namespace.values()] + [self._loop_in(name) for name in names]
            if loop := next(filter(None, found), None):
                return loop
        return None

    def _unknown(self, source: Source, node: Definition, parent: Frame | None = None) -> None:
        """A function that is called with whatever."""
        if ("whatever", node, parent) not in self._seen:
            self._seen["whatever", node, parent] = parent
            self.look(Frame(source, node, whatever(node), None, parent))

    def _import(self, frame: Frame, node: ast.Import | ast.ImportFrom) -> None:
        for name in Sources.imports(frame.source, node):
            root = name.partition(".")[0]
            if root in _LOOPS:
                raise Foreign(f"{frame.source.place(node)} uses {root}")
            if root not in sys.stdlib_module_names and not self._sources.has_read(sys.modules.get(name)):
                raise Foreign(f"{frame.source.place(node)} imports {name} only then, so that it cannot be looked into before the run")

    def _attribute(self, frame: Frame, node: ast.Attribute) -> None:
        base = self._proof.evaluate(frame, node.value)
        if base == UNKNOWN and isinstance(node.value, ast.Name):
            base = frame.before(node.value.id)
            if base != UNKNOWN:
                self._changing(frame, node.value)
        value = self._proof.attribute(base, node.attr)
        if value == UNKNOWN and isinstance(base, Known) and isinstance(base.it, ModuleType):
            value = known(getattr(base.it, node.attr, None))
        self._value(frame, node, value, ast.unparse(node))
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
        return self._loop_in(name_of(it) or "")

    def _loop_in(self, module: str) -> str | None:
        root = module.partition(".")[0]
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

"""Reads the source files of a scenario: its modules, the definitions of its functions and methods,
and what they assign to attributes. Decides nothing; ``squall._asyncio_usage`` and
``squall._constant`` use it."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SYNC_CLIENT_FILE = os.path.join(HERE, "compat", "_sync_client.py")
_FOLDERS = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")] + site.getsitepackages()
_INSTALLED = tuple({os.path.abspath(folder) + os.sep for folder in _FOLDERS})

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class SourceNotFound(Exception):
    """The source of a function is missing, or is not the code that it runs."""


@dataclass(frozen=True)
class Assignment:
    """Code that gives a name its value: a statement ``something.name = value``, a method ``name``,
    or a function with ``global name``."""

    source: SourceFile
    code: ast.AST
    #: The class and the first argument of the method that contains the code.
    owner: str | None
    first_argument: str | None


class SourceFile:
    """One parsed file."""

    def __init__(self, file: str, namespace: dict[str, Any]) -> None:
        self.file = file
        self.namespace = namespace
        try:
            with tokenize.open(file) as text:
                content = text.read()
            self.tree = ast.parse(content)
            self._code_objects = list(_code_objects(compile(content, file, "exec", dont_inherit=True)))
        except (OSError, SyntaxError, ValueError, RecursionError):
            raise SourceNotFound(f"{os.path.basename(file)} cannot be read") from None
        #: By name: assignments to attributes, to variables outside of the function, and methods of
        #: all classes.
        self.stores: dict[str, list[Assignment]] = {}
        self.rebinds: dict[str, list[Assignment]] = {}
        self.methods: dict[str, list[Assignment]] = {}
        self._definitions: dict[tuple[str, int], list[Definition]] = {}
        self._scan()

    def location(self, node: ast.AST) -> str:
        return f"{os.path.basename(self.file)}:{getattr(node, 'lineno', 1)}"

    def definition(self, code: CodeType) -> Definition:
        """Returns the definition of ``code``; raises if this file does not compile to it."""
        found = self._definitions.get((code.co_name, code.co_firstlineno), [])
        if len(found) != 1 or code not in self._code_objects:
            raise SourceNotFound(f"the source of {code.co_qualname} cannot be found")
        return found[0]

    def _scan(self) -> None:
        waiting: list[_Position] = [_Position(self.tree)]
        while waiting:
            at = waiting.pop()
            for child in ast.iter_child_nodes(at.node):
                if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load):
                    self._add_assignment(self.stores, child.attr, at.statement, at)
                elif isinstance(child, (ast.Global, ast.Nonlocal)):
                    for name in child.names:
                        self._add_assignment(self.rebinds, name, at.function, at)
                if isinstance(child, DEFINITIONS):
                    waiting.append(self._add_definition(child, at))
                else:
                    waiting.append(at._replace(node=child, statement=child if isinstance(child, ast.stmt) else at.statement))

    def _add_definition(self, node: Definition, at: _Position) -> _Position:
        """Returns the position inside the definition."""
        name, line = ("<lambda>", node.lineno) if isinstance(node, ast.Lambda) else (node.name, _first_line(node))
        self._definitions.setdefault((name, line), []).append(node)
        owner = at.node.name if isinstance(at.node, ast.ClassDef) else None
        inside = _Position(node, at.statement, node, owner)
        if owner is not None:
            self._add_assignment(self.methods, name, node, inside)
        return inside

    def _add_assignment(self, to: dict[str, list[Assignment]], name: str, code: ast.AST | None, at: _Position) -> None:
        if code is not None:
            arguments = at.function.args.args if at.function else []
            first = arguments[0].arg if arguments else None
            to.setdefault(name, []).append(Assignment(self, code, at.owner, first))


class _Position(NamedTuple):
    """A node with the statement and the function that contain it, and the class if the function is
    a method."""

    node: ast.AST
    statement: ast.stmt | None = None
    function: Definition | None = None
    owner: str | None = None


class ScenarioSources:
    """The files of all scenario modules that are reachable from ``start``."""

    def __init__(self, start: Iterable[str]) -> None:
        self._sources: dict[str, SourceFile] = {}
        self.files: list[SourceFile] = []
        for module in _reachable(start):
            file = os.path.abspath(module.__file__ or "")
            try:
                self.files.append(self._source(file, vars(module)))
            except SourceNotFound:
                # `definition` raises for its functions when the analysis asks for them.
                continue

    def definition(self, function: FunctionType) -> tuple[SourceFile, Definition]:
        source = self._source(os.path.abspath(function.__code__.co_filename), function.__globals__)
        return source, source.definition(function.__code__)

    def stores(self, name: str) -> list[Assignment]:
        return [store for source in self.files for store in source.stores.get(name, [])]

    def rebinds(self, name: str) -> list[Assignment]:
        return [rebind for source in self.files for rebind in source.rebinds.get(name, [])]

    def methods(self, name: str) -> list[Assignment]:
        return [method for source in self.files for method in source.methods.get(name, [])]

    def reads_attribute(self, cls: type, name: str) -> bool:
        """Returns whether code of a class, or outside of all classes, reads an attribute of a variable, as in
        ``self.name``, and no code assigns it."""
        if self.stores(name):
            return False
        classes = {base.__name__ for base in cls.__mro__}
        tops = (top for source in self.files for top in source.tree.body if not isinstance(top, ast.ClassDef) or top.name in classes)
        nodes = (node for top in tops for node in ast.walk(top) if isinstance(node, ast.Attribute))
        return any(node.attr == name and isinstance(node.value, ast.Name) for node in nodes)

    def has_read(self, module: ModuleType | None) -> bool:
        """Returns whether a module is imported and, if it belongs to the scenario, was scanned."""
        file = getattr(module, "__file__", None)
        if module is None or not is_scenario_file(file):
            return module is not None
        return any(source.file == os.path.abspath(file or "") for source in self.files)

    @staticmethod
    def imports(source: SourceFile, node: ast.Import | ast.ImportFrom) -> list[str]:
        """Returns the modules that an import statement names."""
        return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [ScenarioSources.imported_from(source, node)]

    @staticmethod
    def imported_from(source: SourceFile, node: ast.ImportFrom) -> str:
        """Returns the module that names are imported from, or an empty string if it cannot be
        resolved."""
        with contextlib.suppress(ImportError, ValueError):
            return importlib.util.resolve_name("." * node.level + (node.module or ""), source.namespace.get("__package__"))
        return ""

    def _source(self, file: str, namespace: dict[str, Any]) -> SourceFile:
        if file not in self._sources:
            self._sources[file] = SourceFile(file, namespace)
        return self._sources[file]


def is_scenario_file(file: str | None) -> bool:
    """Returns whether a file belongs to the scenario: not to Python, an installed package or
    Squall."""
    if not file or file.startswith("<"):
        return False
    full = os.path.abspath(file)
    return not full.startswith((*_INSTALLED, HERE))


def unwrap_sync_client(function: Any) -> Any:
    """Returns the coroutine function inside a wrapper of ``squall.compat``; None for other
    functions."""
    code = getattr(function, "__code__", None)
    return cells_of(function).get("function") if code is not None and code.co_filename == _SYNC_CLIENT_FILE else None


def cells_of(function: FunctionType) -> dict[str, Any]:
    """Returns the closure variables of a function."""
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            cells[name] = cell.cell_contents
    return cells


def _reachable(start: Iterable[str]) -> list[ModuleType]:
    found: dict[str, ModuleType] = {}
    waiting = [*start]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in found or module is None or not is_scenario_file(getattr(module, "__file__", None)):
            continue
        found[name] = module
        waiting += filter(None, map(module_name_of, list(vars(module).values())))
    return list(found.values())


def module_name_of(value: Any) -> str | None:
    """Returns the name of a module, or of the module that defines an object or its class."""
    if isinstance(value, ModuleType):
        return value.__name__
    for one in (value, type(value)):
        with contextlib.suppress(Exception):
            if isinstance(name := one.__module__, str):
                return name
    return None


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


def _first_line(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])

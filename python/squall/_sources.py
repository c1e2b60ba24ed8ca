"""Reads the source files of a scenario: its modules, the definitions of its functions, and what the
code changes during the run. Decides nothing; ``squall._await_analysis`` and ``squall._constant``
use it."""

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
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SYNC_CLIENT_FILE = os.path.join(HERE, "compat", "_sync_client.py")
_FOLDERS = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")] + site.getsitepackages()
_INSTALLED = tuple({os.path.abspath(folder) + os.sep for folder in _FOLDERS})
#: Names that change or create variables which the source does not name.
_DYNAMIC_NAMES = frozenset({"setattr", "delattr", "globals", "locals", "vars", "exec", "eval", "__import__", "__dict__", "__setattr__"})
#: Those of them that run code which is not in any source file.
_EVALUATING_NAMES = frozenset({"exec", "eval", "__import__"})

PLAIN_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class SourceNotFound(Exception):
    """The source of a function is missing, or is not the code that it runs."""


@dataclass(frozen=True)
class AttributeStore:
    """An assignment to an attribute: ``something.name = value``."""

    source: SourceFile
    #: The function that contains it, and the class if the function is a method.
    function: Definition | None
    owner: str | None
    #: Whether the attribute is one of ``self``.
    to_self: bool
    #: The assigned expression; None for anything but a simple assignment.
    value: ast.expr | None


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
        #: Names that functions rebind with ``global`` or ``nonlocal``, and the first dynamic code.
        self.rebound: set[str] = set()
        self.dynamic: str | None = None
        self.evaluates_text = False
        self.stores: dict[str, list[AttributeStore]] = {}
        #: Names of attributes that the file reads.
        self.attributes_read: set[str] = set()
        #: The plain ``def`` methods of all classes, by name.
        self.methods: dict[str, list[ast.FunctionDef]] = {}
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
        waiting: list[tuple[ast.AST, Definition | None, str | None]] = [(self.tree, None, None)]
        while waiting:
            node, function, owner = waiting.pop()
            if not isinstance(node, ast.Constant):
                waiting += [(child, *self._scan_node(child, node, function, owner)) for child in ast.iter_child_nodes(node)]

    def _scan_node(
        self, child: ast.AST, parent: ast.AST, function: Definition | None, owner: str | None
    ) -> tuple[Definition | None, str | None]:
        """Records what a node does. Returns the function and the class that contain its
        children."""
        if isinstance(child, _DEFINITIONS):
            name, line = ("<lambda>", child.lineno) if isinstance(child, ast.Lambda) else (child.name, _first_line(child))
            self._definitions.setdefault((name, line), []).append(child)
            if isinstance(child, ast.FunctionDef) and isinstance(parent, ast.ClassDef):
                self.methods.setdefault(name, []).append(child)
            return child, parent.name if isinstance(parent, ast.ClassDef) else None
        if isinstance(child, (ast.Global, ast.Nonlocal)):
            self.rebound.update(child.names)
        elif isinstance(child, (ast.Name, ast.Attribute)):
            name = child.id if isinstance(child, ast.Name) else child.attr
            is_first = not self.dynamic or (name in _EVALUATING_NAMES and not self.evaluates_text)
            if name in _DYNAMIC_NAMES and function is not None and is_first:
                self.dynamic = f"{self.location(child)} uses {name}"
                self.evaluates_text = name in _EVALUATING_NAMES
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                self.attributes_read.add(name)
            elif isinstance(child, ast.Attribute):
                self._add_store(child, parent, function, owner)
        return function, owner

    def _add_store(self, target: ast.Attribute, parent: ast.AST, function: Definition | None, owner: str | None) -> None:
        first = function.args.args[0].arg if function and function.args.args else None
        to_self = owner is not None and isinstance(target.value, ast.Name) and target.value.id == first
        simple = isinstance(parent, (ast.Assign, ast.AnnAssign)) and isinstance(target.ctx, ast.Store)
        value = parent.value if simple and isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
        self.stores.setdefault(target.attr, []).append(AttributeStore(self, function, owner, to_self, value))


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

    def stores(self, name: str) -> list[AttributeStore]:
        return [store for source in self.files for store in source.stores.get(name, [])]

    def is_rebound(self, name: str) -> bool:
        """Returns whether a module or closure variable may change after its file was imported."""
        return any(name in source.rebound or source.dynamic for source in self.files) or any(not one.to_self for one in self.stores(name))

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

    def is_attribute_read(self, name: str) -> bool:
        return any(name in source.attributes_read for source in self.files)

    @property
    def dynamic(self) -> str | None:
        found = [source for source in self.files if source.dynamic]
        return max(found, key=lambda source: source.evaluates_text).dynamic if found else None

    @property
    def evaluates_text(self) -> bool:
        return any(source.evaluates_text for source in self.files)

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

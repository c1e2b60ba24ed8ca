"""Imports a scenario file and finds its scenario classes. It reads no task and no load; ``squall._load``
does. ``squall._load`` and ``squall._offer`` call it."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
import tokenize
from types import ModuleType
from typing import Any

from squall import _dsl
from squall._dsl import ScenarioMark, VUser
from squall._errors import ScenarioError, display_path, line_in_file

#: Name of the package that stands for the scenario's folder if the scenario uses relative imports.
_FOLDER_PACKAGE = "squall_scenario_folder"


def execute(path: str) -> ModuleType:
    """Imports the file ``path`` anew, which declares its scenarios, resources, hooks and probes."""
    _dsl.declared.clear()
    _dsl.resources.clear()
    _dsl.hooks.clear()
    _dsl.probes.clear()
    full = os.path.abspath(path)
    folder = os.path.dirname(full)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        name = _make_folder_package(full) + "squall_scenario_" + os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(name, full)
        if spec is None or spec.loader is None:
            raise ScenarioError("not a Python file", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except ScenarioError:
        raise
    except FileNotFoundError as error:
        if error.filename == full:
            raise ScenarioError(f"cannot read the file: {error.strerror}", path) from None
        message = f"needs the file {display_path(str(error.filename))}, which does not exist"
        raise ScenarioError(message, path, line_in_file(error, full)) from None
    except SyntaxError as error:
        raise ScenarioError(f"not valid Python: {error.msg}", error.filename or path, error.lineno) from None
    except ModuleNotFoundError as error:
        missing = (error.name or "").removeprefix(f"{_FOLDER_PACKAGE}.")
        message = f"needs the module {missing!r}, which is not installed in {sys.prefix}"
        if missing == "locust":
            message = "imports locust, whose files Squall does not run: write its users as squall.VUser"
        raise ScenarioError(message, path, line_in_file(error, full)) from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ScenarioError(f"cannot be imported: {type(error).__name__}: {error}", path, line_in_file(error, full)) from error
    return module


def _make_folder_package(file: str) -> str:
    """Makes the folder of a file with relative imports (``from .helpers import …``) a package.
    Returns the prefix of its modules' names; an empty string if the file has no relative import."""
    with tokenize.open(file) as text:
        if not re.search(r"^\s*from\s*\.", text.read(), re.MULTILINE):
            return ""
    folder = os.path.dirname(file)
    first = os.path.join(folder, "__init__.py")
    spec = importlib.machinery.ModuleSpec(_FOLDER_PACKAGE, None, is_package=True)
    if os.path.isfile(first):
        spec = importlib.util.spec_from_file_location(_FOLDER_PACKAGE, first) or spec
    spec.submodule_search_locations = [folder]
    package = importlib.util.module_from_spec(spec)
    for name in [name for name in sys.modules if name.startswith(f"{_FOLDER_PACKAGE}.")]:
        del sys.modules[name]
    sys.modules[_FOLDER_PACKAGE] = package
    if spec.loader is not None:
        spec.loader.exec_module(package)
    return f"{_FOLDER_PACKAGE}."


def choose_classes(module: ModuleType, path: str, wanted: str | None) -> list[type]:
    scenarios = [cls for cls in vars(module).values() if _is_scenario(cls) and cls.__module__ == module.__name__]
    marked = [cls for cls in scenarios if "__squall_scenario__" in cls.__dict__]
    if wanted is not None:
        for cls in scenarios:
            mark: ScenarioMark | None = cls.__dict__.get("__squall_scenario__")
            if wanted in (cls.__name__, mark.name if mark else None):
                return [cls]
        names = ", ".join(cls.__name__ for cls in scenarios) or "none"
        raise ScenarioError(f"this file has no scenario {wanted!r}; it has: {names}", path)
    candidates = marked or scenarios
    if not candidates:
        raise ScenarioError("this file has no scenario: write a class with @scenario and at least one @task", path)
    # Without @scenario it is unknown which classes to run and which are only base classes.
    if len(candidates) > 1 and not marked:
        names = ", ".join(cls.__name__ for cls in candidates)
        message = (
            f"this file has several scenarios: mark those to run with @scenario, or choose one with --scenario: {names}"
            f" (of an orchestrator or a worker: --scenario {os.path.basename(path)}:{candidates[0].__name__})"
        )
        raise ScenarioError(message, path, line_of(candidates[1]))
    if len(candidates) > 1:
        _reject_several_of_loadpilot(candidates, path)
    return candidates


def _reject_several_of_loadpilot(classes: list[type], path: str) -> None:
    """Scenarios of Squall run together. LoadPilot runs one, so a file for it expects the load of one."""
    marks: list[ScenarioMark] = [cls.__dict__["__squall_scenario__"] for cls in classes]
    if any(mark.from_loadpilot for mark in marks):
        named = zip(classes, marks, strict=True)
        known = ", ".join(f"{cls.__name__} ({mark.load['rps']}/s, {mark.load['duration']})" for cls, mark in named if mark.from_loadpilot)
        message = f"LoadPilot runs one scenario of a file at a time: choose one with --scenario: {known}"
        raise ScenarioError(message, path, marks[1].line)


def _is_scenario(cls: Any) -> bool:
    return isinstance(cls, type) and ("__squall_scenario__" in cls.__dict__ or _is_user(cls))


def _is_user(cls: type) -> bool:
    return issubclass(cls, VUser) and any(hasattr(value, "__squall_task__") for value in vars(cls).values())


def reject_redefinitions(module: ModuleType, path: str) -> None:
    """Rejects two classes or tasks of one name: Python would silently replace the first."""
    classes: dict[str, int] = {}
    with open(path, "rb") as file_of_it:
        tree = ast.parse(file_of_it.read())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _is_scenario(getattr(module, node.name, None)):
            if node.name in classes:
                raise ScenarioError(f"class {node.name} is already defined in line {classes[node.name]}", path, node.lineno)
            classes[node.name] = node.lineno
    seen: dict[tuple[str, str], int] = {}
    for file, name, line in _dsl.declared:
        # The same line appears twice if a module of the scenario imports the scenario file.
        if seen.get((file, name), line) != line:
            raise ScenarioError(f"task {name.rpartition('.')[2]!r} is already defined in line {seen[file, name]}", file, line)
        seen[file, name] = line


def line_of(cls: type) -> int:
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return 1

"""Bundles a scenario for other machines: collects its file, modules and data files, unpacks them on
a worker, and checks its requirements there. Reads sources and runs none of them. Called by name
from the Rust host."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from squall import _dsl, _errors
from squall._errors import ScenarioError

#: The folder that this process loaded its last scenario from.
_bundle_folders: list[str] = []


def collect(path: str) -> dict[str, bytes]:
    """Returns the scenario ``path``, all modules of its folder that it imports, directly or not,
    and all files of the folder that one of them names, as name in the folder → content.

    The scenario comes first. Imports are read from the source, also those inside functions; a
    package is included with all its modules.
    """
    scenario = Path(path).resolve()
    folder = scenario.parent
    found: dict[str, bytes] = {}
    waiting = [scenario]
    while waiting:
        file = waiting.pop(0)
        name = file.relative_to(folder).as_posix()
        if name in found:
            continue
        try:
            found[name] = file.read_bytes()
            tree = ast.parse(found[name])
        except OSError as error:
            raise ScenarioError(f"cannot read the file: {error.strerror}", str(file)) from None
        except SyntaxError as error:
            raise ScenarioError(f"not valid Python: {error.msg}", str(file), error.lineno) from None
        for parts in _imports(tree, file, folder):
            waiting += _module_files(folder, parts)
        for data in _data_files(tree, folder):
            found.setdefault(data.relative_to(folder).as_posix(), data.read_bytes())
    return found


def pack(path: str) -> dict[str, bytes]:
    """Returns the loaded scenario ``path`` with its modules, and the files of its resources."""
    found = collect(path)
    folder = Path(path).resolve().parent
    for declaration in _dsl.resources.values():
        if declaration.source is None:
            continue
        source = Path(declaration.source).resolve()
        if not source.is_relative_to(folder):
            message = f"resource {declaration.name!r}: {declaration.source} must be in the scenario's folder, which is all that workers get"
            raise ScenarioError(message, declaration.file, declaration.line)
        found[source.relative_to(folder).as_posix()] = source.read_bytes()
    return found


def unpack(files: Mapping[str, bytes], folder: str) -> str:
    """Writes a bundle into ``folder`` and returns the path of its scenario.

    The names come from another machine: a name that leads out of the folder is rejected before any
    file is written.
    """
    root = Path(folder).resolve()
    for name in files:
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            raise ValueError(f"a bundle must not contain a file named {name!r}")
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return str(root / next(iter(files)))


def enter_folder(folder: str) -> None:
    """Makes ``folder`` the one that the next scenario is loaded from.

    Unloads the modules of an earlier folder: modules of the next one may have the same names.
    """
    root = str(Path(folder).resolve())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and any(Path(file).is_relative_to(former) for former in _bundle_folders):
            del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place not in _bundle_folders]
    _bundle_folders[:] = _errors.bundle_folder[:] = [root]
    importlib.invalidate_caches()


#: Options of pip that a requirements file may contain beside packages.
_OPTIONS = {"-i", "-f", "--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host"}
_OPTIONS |= {"--pre", "--prefer-binary", "--only-binary", "--no-binary", "--use-feature", "--require-hashes"}


def unmet(requirements: str) -> list[str]:
    """Returns a message for each line of a requirements.txt that is not met here: the package is
    missing or has another version."""
    problems = []
    for line in requirements.replace("\\\n", " ").splitlines():
        # Hashes and build options matter to an installation only, not to what is installed.
        text = re.sub(r"(^|\s)#.*|\s--(hash|config-settings|global-option)\b.*", "", line).strip()
        if not text or text.split()[0].partition("=")[0] in _OPTIONS:
            continue
        if text.startswith("-"):
            problems.append(f"{text}: only packages can be checked; list them in this file")
            continue
        problem = _requirement_problem(text)
        if problem is not None:
            problems.append(problem)
    return problems


def _requirement_problem(text: str) -> str | None:
    requirement = _parse_requirement(text)
    if requirement is None:
        return f"{text}: not a requirement that can be checked"
    name, fits = requirement
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{text}: {name} is not installed"
    return None if fits(version) else f"{text}: {name} {version} is installed"


def _parse_requirement(text: str) -> tuple[str, Any] | None:
    """Returns a package's name and a function that tests a version. If the marker does not apply
    here, every version passes."""
    packaging = _packaging()
    if packaging is not None:
        try:
            requirement = packaging.Requirement(text)
        except packaging.InvalidRequirement:
            return None
        if requirement.marker is not None and not requirement.marker.evaluate():
            return "pip", lambda version: True
        return requirement.name, lambda version: requirement.specifier.contains(version, prereleases=True)
    parts = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:==\s*([\w.]+))?", text)
    return (parts[1], lambda version: parts[2] in (None, version)) if parts else None


def _packaging() -> Any:
    """Returns the library that parses requirements, also from inside pip, or None."""
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _imports(tree: ast.AST, file: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yields every dotted name that a source imports, as its parts."""
    package = file.relative_to(folder).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - (node.level - 1)] if node.level else ()
            if node.level and not parent:
                yield ("__init__",)
            base = (*parent, *(node.module.split(".") if node.module else ()))
            yield base
            for alias in node.names:
                yield (*base, alias.name)
        elif isinstance(node, ast.Call) and node.args and (called := _string_value(node.args[0])):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and not called.startswith("."):
                yield tuple(called.split("."))


def _data_files(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """Yields the files of the folder that a source names: ``"data/users.json"``,
    ``here / "data" / "users.json"``, ``join(here, "data", …)``."""
    for node in ast.walk(tree):
        texts = [_string_value(node)]
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.BinOp):
            texts = [_string_value(node.left.right), _string_value(node.right)]
        elif isinstance(node, ast.Call):
            texts = [_string_value(argument) for argument in node.args]
        name = "/".join(text for text in texts if text)
        if not name or len(name) > 250 or "\0" in name or name.endswith(".py"):
            continue
        with contextlib.suppress(OSError, ValueError):
            file = (folder / name).resolve()
            if file.is_relative_to(folder) and file.is_file():
                yield file


def _string_value(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _module_files(folder: Path, parts: Iterable[str]) -> list[Path]:
    """Returns the files of the folder that importing a dotted name reads."""
    parts = tuple(parts)
    if not parts or not re.fullmatch(r"\w+", parts[0]):
        return []
    module = folder / f"{parts[0]}.py"
    if module.is_file():
        return [module]
    package = folder / parts[0]
    # A folder counts only if it is a package or the name leads to a module in it; it may hold data.
    if (package / "__init__.py").is_file() or folder.joinpath(*parts).with_suffix(".py").is_file():
        return sorted(package.rglob("*.py"))
    return []

"""A scenario on its way to other machines: the file with the modules that lie beside it, and what it needs to be installed there.
Reads sources, runs none of them."""

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

#: Where the scenario of this process was last unpacked.
_bundle_folders: list[str] = []


def collect(path: str) -> dict[str, bytes]:
    """The scenario ``path`` and every module in its folder that it imports, directly or not, and every file there that one of them calls by
    its name: name within the folder → content.

    The scenario comes first. Imports are read from the source, also those inside functions; of a package, all modules travel.
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
            raise ScenarioError(f"cannot read it: {error.strerror}", str(file)) from None
        except SyntaxError as error:
            raise ScenarioError(f"not valid Python: {error.msg}", str(file), error.lineno) from None
        for parts in _imports(tree, file, folder):
            waiting += _module_files(folder, parts)
        for data in _data_files(tree, folder):
            found.setdefault(data.relative_to(folder).as_posix(), data.read_bytes())
    return found


def pack(path: str) -> dict[str, bytes]:
    """The scenario ``path``, which has been read, with its modules and the files that its resources come from."""
    found = collect(path)
    folder = Path(path).resolve().parent
    for declaration in _dsl.resources.values():
        if declaration.source is None:
            continue
        source = Path(declaration.source).resolve()
        if not source.is_relative_to(folder):
            message = f"resource {declaration.name!r}: {declaration.source} must lie in the scenario's folder to travel with it"
            raise ScenarioError(message, declaration.file, declaration.line)
        found[source.relative_to(folder).as_posix()] = source.read_bytes()
    return found


def unpack(files: Mapping[str, bytes], folder: str) -> str:
    """Writes a bundle into ``folder`` and returns the path of its scenario, which ``squall._load.load`` takes from there.

    Names come from elsewhere: one that would lead out of the folder is refused before anything is written.
    """
    root = Path(folder).resolve()
    for name in files:
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            raise ValueError(f"a bundle may not contain a file called {name!r}")
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return str(root / next(iter(files)))


def enter_folder(folder: str) -> None:
    """Makes ``folder`` the one that the next scenario is read from, in a process that has perhaps read others before.

    Modules of an earlier folder are forgotten: those of the next may have the same names and other contents.
    """
    here = str(Path(folder).resolve())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and any(Path(file).is_relative_to(former) for former in _bundle_folders):
            del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place not in _bundle_folders]
    _bundle_folders[:] = _errors.bundle_folder[:] = [here]
    importlib.invalidate_caches()


#: What pip is told in such a file besides packages.
_OPTIONS = {"-i", "-f", "--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host"}
_OPTIONS |= {"--pre", "--prefer-binary", "--only-binary", "--no-binary", "--use-feature", "--require-hashes"}


def unmet(requirements: str) -> list[str]:
    """What of a requirements.txt is not installed here, one sentence for each package that is missing or too old or too new."""
    problems = []
    for line in requirements.replace("\\\n", " ").splitlines():
        # From where a package was had, and how it was, does not matter where it is installed.
        text = re.sub(r"(^|\s)#.*|\s--(hash|config-settings|global-option)\b.*", "", line).strip()
        if not text or text.split()[0].partition("=")[0] in _OPTIONS:
            continue
        if text.startswith("-"):
            problems.append(f"{text}: only packages can be verified; write them into this file")
            continue
        problem = _requirement_problem(text)
        if problem is not None:
            problems.append(problem)
    return problems


def _requirement_problem(text: str) -> str | None:
    requirement = _parse_requirement(text)
    if requirement is None:
        return f"{text}: not a requirement that can be verified"
    name, fits = requirement
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{text}: {name} is not installed"
    return None if fits(version) else f"{text}: {name} {version} is installed"


def _parse_requirement(text: str) -> tuple[str, Any] | None:
    """The name of a package, and whether a version of it will do; a marker that does not apply here lets every version do."""
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
    """The library that reads requirements, from wherever it can be had."""
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _imports(tree: ast.AST, file: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Every dotted name that a source imports, as its parts."""
    package = file.relative_to(folder).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            here = package[: len(package) - (node.level - 1)] if node.level else ()
            if node.level and not here:
                yield ("__init__",)
            base = (*here, *(node.module.split(".") if node.module else ()))
            yield base
            for alias in node.names:
                yield (*base, alias.name)
        elif isinstance(node, ast.Call) and node.args and (called := _string_value(node.args[0])):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and not called.startswith("."):
                yield tuple(called.split("."))


def _data_files(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """The files of the folder that a source names: ``"data/users.json"``, ``here / "data" / "users.json"``, ``join(here, "data", …)``."""
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
    """The files beside the scenario that importing a dotted name reads."""
    parts = tuple(parts)
    if not parts or not re.fullmatch(r"\w+", parts[0]):
        return []
    module = folder / f"{parts[0]}.py"
    if module.is_file():
        return [module]
    package = folder / parts[0]
    # Only what is a package, or is named down to a module, is meant: a folder of data is not.
    if (package / "__init__.py").is_file() or folder.joinpath(*parts).with_suffix(".py").is_file():
        return sorted(package.rglob("*.py"))
    return []

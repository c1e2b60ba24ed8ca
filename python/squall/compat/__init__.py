"""Runs code written for LoadPilot, vikhry or runnel without changes: where those packages are not
installed, importing them gives modules of Squall with the same names. No code of theirs is copied.
A name that Squall does not have raises ImportError."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: The packages to replace, and the module that replaces each.
PACKAGES = {
    "loadpilot": "squall.compat.loadpilot",
    "runnel": "squall.compat.runnel",
    "vikhry": "squall.compat.vikhry",
}


class _Alias(Loader):
    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        real = importlib.import_module(self._real)
        module.__dict__.update({name: getattr(real, name) for name in real.__all__})
        # Scenarios also import submodules: `from loadpilot.dsl import task`.
        module.__path__ = []


class _Finder(MetaPathFinder):
    """Finds the packages to replace. It is the first finder, because a scenario's folder may hold a
    file of such a name, for example one scenario for each tool. An installed package takes
    precedence."""

    def __init__(self) -> None:
        #: Folders of scenarios and apps, in which no package is installed.
        self.folders: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        root, _, rest = name.partition(".")
        real = PACKAGES.get(root)
        if real is None or (rest and not isinstance(sys.modules[root].__loader__, _Alias)):
            return None
        elsewhere = [place for place in sys.path if os.path.realpath(place) not in self.folders]
        installed = None if rest else PathFinder.find_spec(name, elsewhere)
        # Without a loader it is only a folder of that name.
        if installed is not None and installed.loader is not None:
            return installed
        return ModuleSpec(name, _Alias(real), is_package=True)


def install(folder: str) -> None:
    """Makes the packages importable for code in ``folder``."""
    finder = next((finder for finder in sys.meta_path if isinstance(finder, _Finder)), None)
    if finder is None:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
    finder.folders |= {os.path.realpath(folder), os.path.realpath(os.getcwd())}

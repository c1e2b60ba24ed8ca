"""Runs scenarios written for LoadPilot or vikhry without changes: where those packages are not
installed, importing them gives modules of Squall with the same names. No code of theirs is copied.
A name that Squall does not have raises ImportError."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOTS = {"loadpilot": "squall.compat.loadpilot", "vikhry": "squall.compat.vikhry"}


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
    """Finds the packages to replace. It is the last finder, so an installed package takes
    precedence."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        real = _ROOTS.get(name.partition(".")[0])
        return ModuleSpec(name, _Alias(real), is_package=True) if real else None


def install() -> None:
    """Makes the packages importable. Further calls do nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())

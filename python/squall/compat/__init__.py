"""Scenarios written for LoadPilot or vikhry, unchanged: where those packages are not installed, importing them gives Squall's words
under their names. Nothing of theirs is copied; what Squall has no equal for is refused when it is imported, by name."""

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
        # `from loadpilot.dsl import task` is as common as `from loadpilot import task`.
        module.__path__ = []


class _Finder(MetaPathFinder):
    """Comes last, so that an installed package wins."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        real = _ROOTS.get(name.partition(".")[0])
        return ModuleSpec(name, _Alias(real), is_package=True) if real else None


def install() -> None:
    """Makes the names importable; harmless when done twice."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())

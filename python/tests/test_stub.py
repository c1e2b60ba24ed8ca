"""The stub _squall.pyi has exactly the names of the built module."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import squall
from squall import _squall

STUB = ast.parse((Path(squall.__file__).parent / "_squall.pyi").read_text())
#: Members that every class inherits and the stub omits.
IMPLIED = set(dir(object)) | {"__repr__"}


def public(names):
    return {name for name in names if not name.startswith("_") or (name.startswith("__") and name.endswith("__"))}


def test_module_has_same_names_as_stub():
    said = {node.name for node in STUB.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")}
    has = {name for name in vars(_squall) if not name.startswith("_")}
    assert said == has


def test_classes_have_same_members_as_stub():
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            said = public({item.name for item in node.body if isinstance(item, ast.FunctionDef)} - IMPLIED)
            has = public(name for name in vars(getattr(_squall, node.name)) if name not in IMPLIED) - {"__module__", "__doc__"}
            assert said == has, node.name


def test_every_name_in_all_exists():
    assert all(hasattr(squall, name) for name in squall.__all__)


def test_minimal_scenario_passes_strict_mypy(tmp_path):
    (tmp_path / "shop.py").write_text(
        "from squall import Client, VUser, scenario, task\n\n\n@scenario(users=1)\nclass Shop(VUser):\n    @task\n"
        '    async def go(self, client: Client) -> None:\n        await client.get("/health")\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "shop.py"]
    environment = os.environ | {"MYPYPATH": str(Path(squall.__file__).parent.parent)}
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_client_methods_have_docstrings():
    for name in ("get", "post", "put", "patch", "delete", "request"):
        assert (getattr(_squall.Client, name).__doc__ or "").startswith("Sends a "), name

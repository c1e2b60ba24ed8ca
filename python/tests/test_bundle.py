"""Bundles: a scenario with the modules of its folder, unpacked and loaded elsewhere; unmet
requirements."""

from __future__ import annotations

import subprocess
import sys

import pytest

from squall._bundle import collect, unmet, unpack
from squall._errors import ScenarioError
from squall._load import load


@pytest.fixture
def project(tmp_path):
    home = tmp_path / "home"
    files = {
        "shop.py": "import json, helpers\nfrom squall import VUser, task\nclass Shop(VUser):\n    @task\n    async def go(self, client):\n        from lib.deep import names\n        await client.get(names.PATH + helpers.X)\n",
        "helpers.py": "import other\nX = other.X\n",
        "other.py": "import shop\nX = 'x'\n",
        "lib/__init__.py": "",
        "lib/deep/__init__.py": "from . import names\n",
        "lib/deep/names.py": "from ..top import PATH\n",
        "lib/top.py": "PATH = '/'\n",
        "unused.py": "raise ValueError\n",
        "json_data/notes.py": "x = 1\n",
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def test_bundle_contains_imported_modules_of_folder(project):
    names = list(collect(str(project / "shop.py")))
    assert names[0] == "shop.py"
    assert set(names) == {"shop.py", "helpers.py", "other.py", "lib/__init__.py", "lib/deep/__init__.py", "lib/deep/names.py", "lib/top.py"}


def test_bundle_contains_data_files_named_in_source(project):
    for name in ("rows.json", "data/users.json", "data/more.csv", "data/not.json", "notes.txt"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("[]")
    with open(project / "helpers.py", "a") as file:
        file.write('HERE = Path(__file__).parent\nROWS = (HERE / "rows.json").read_text()\nUSERS = HERE / "data" / "users.json"\n')
        file.write('MORE = os.path.join(HERE, "data", "more.csv")\nAWAY = ["../home/notes.txt", "/etc/passwd", "data", "", "not.json"]\n')
    found = collect(str(project / "shop.py"))
    assert next(iter(found)) == "shop.py"
    # A path that leaves the folder and returns to it names the same file.
    assert {name for name in found if not name.endswith(".py")} == {"rows.json", "data/users.json", "data/more.csv", "notes.txt"}


def test_missing_data_file_error_names_file_and_line(write):
    path = write('from pathlib import Path\nDATA = (Path(__file__).parent / "none.json").read_text()\n')
    with pytest.raises(ScenarioError, match=r"shop\.py:3: needs the file .*none\.json, which does not exist"):
        load(str(path))


def test_unpacked_files_keep_original_names_in_messages(project, tmp_path):
    (project / "shop.py").write_text("from squall import VUser, task\nclass Shop(VUser):\n    @task\n    def go(self, client):\n        1 / 0\n")
    path = unpack(collect(str(project / "shop.py")), str(tmp_path / "there"))
    code = f"""
from squall import _bundle, _errors, _load
_bundle.enter_folder({str(tmp_path / "there")!r})
loaded = _load.load({path!r})
try:
    loaded.tasks[0].call(None, None)
except ZeroDivisionError as error:
    print(loaded.file, _errors.describe(error))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.startswith("shop.py ZeroDivisionError: division by zero\n  at shop.py:5 in go\n"), said


def test_unpacked_bundle_loads_from_its_folder(project, tmp_path):
    path = unpack(collect(str(project / "shop.py")), str(tmp_path / "there"))
    code = f"from squall._load import load; l = load({path!r}); import helpers; print(l.name, helpers.__file__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.split() == ["Shop", str(tmp_path / "there" / "helpers.py")]


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py", "", "a\\..\\x.py", "a\0.py"])
def test_bundle_with_path_outside_folder_is_rejected(tmp_path, name):
    with pytest.raises(ValueError, match="bundle"):
        unpack({"ok.py": b"", name: b"x"}, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists() and not (tmp_path / "x.py").exists()


def test_unreadable_module_error_names_module(project):
    (project / "other.py").write_text("x = = 1")
    with pytest.raises(ScenarioError, match=r"other\.py:1: not valid Python"):
        collect(str(project / "shop.py"))


def test_bundle_contains_modules_of_import_module_calls(tmp_path):
    (tmp_path / "shop.py").write_text("import importlib\nlate = importlib.import_module('lazy')\nother = __import__('more')\n")
    (tmp_path / "lazy.py").write_text("X = 1\n")
    (tmp_path / "more.py").write_text("X = 1\n")
    assert set(collect(str(tmp_path / "shop.py"))) == {"shop.py", "lazy.py", "more.py"}


def test_unmet_requirements_are_listed():
    assert unmet("greenlet>=3\n# a comment\n\npytest\nwinthing; sys_platform == 'win32'\n") == []
    assert unmet("--index-url https://example.org/simple\n--pre\ngreenlet>=3 \\\n    --hash=sha256:0abc \\\n    --hash=sha256:1def\n") == []
    said = unmet("no-such-package-here>=1\ngreenlet<1\n-r more.txt\n???\n")
    assert [line.partition(":")[0] for line in said] == ["no-such-package-here>=1", "greenlet<1", "-r more.txt", "???"]
    assert "no-such-package-here is not installed" in said[0] and "is installed" in said[1]


def test_bundle_starts_with_scenario_that_load_reads(project):
    assert load(str(project / "shop.py")).name == "Shop"

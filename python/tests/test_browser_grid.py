"""Browser users through a real grid: TOML tasks over CDP sessions, Python tasks over Playwright's connect."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import playwright
import pytest
from server_kit import eventually
from squall_command import SQUALL

SECRET = "a-secret-of-the-load-test"
#: The driver in Playwright's package is the same version as its client, as the grid demands.
DRIVER = Path(playwright.__file__).parent / "driver"


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with grid_of(3, tmp_path_factory.mktemp("grid")) as address:
        yield address


@contextlib.contextmanager
def grid_of(slots: int, folder: Path) -> Iterator[str]:
    """Starts a grid with that many slots."""
    node = ["--playwright", str(DRIVER / "package"), "--node", str(DRIVER / "node")]
    command = [*SQUALL, "grid", "up", "--listen", "127.0.0.1:0", "--slots", str(slots), "--key", f"load={SECRET}", *node]
    with open(folder / "err", "w") as err:
        running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=err, text=True)
    assert running.stdout is not None
    line = running.stdout.readline()
    assert "ws://" in line, line + (folder / "err").read_text()
    try:
        yield line.split("ws://")[1].split("/")[0].split()[0]
    finally:
        running.terminate()
        code = running.wait(60)
    assert code == 0, (folder / "err").read_text()


def sessions(grid: str) -> int:
    """Returns how many sessions the grid has."""
    request = urllib.request.Request(f"http://{grid}/v1/capacity", headers={"Authorization": f"Bearer {SECRET}"})
    with urllib.request.urlopen(request) as answer:
        return sum(browser["active_sessions"] for browser in json.load(answer)["browsers"])


TOML = """
target = "{target}"
[load]
users = 2
requests = 4
[browser]
grid = "ws://{grid}"
token = "@grid.key"
timeout = "60s"
[[task]]
name = "look"
kind = "browser"
[[task.step]]
name = "home"
goto = "/shop"
expect = {{ text = "Catalogue" }}
[[task.step]]
name = "product"
click = "a.product"
"""

PYTHON = """
from squall import *

@scenario(browser={{"grid": "ws://{grid}", "token": "$GRID_TOKEN", "timeout": 60}})
class Shopper(VUser):
    @task
    async def look(self, page):
        async with self.browser.step("home"):
            await page.goto("/shop")
        async with self.browser.step("product"):
            await page.locator("a.product").first.click()
            await page.locator("#buy").wait_for()
"""


def look(squall, tmp_path, grid, target, name, text):
    (tmp_path / "grid.key").write_text(SECRET + "\n")
    (tmp_path / name).write_text(text.format(grid=grid, target=target.url))
    before = sum(target.counts().values())
    arguments = ["run", name, "--target", target.url, "--users", "2", "--requests", "4", "--json", "result.json"]
    ended = squall(*arguments, env=os.environ | {"GRID_TOKEN": SECRET})
    assert ended.code == 0, ended.stdout + ended.stderr
    assert SECRET not in ended.stdout + ended.stderr + (tmp_path / "result.json").read_text()
    result = json.loads((tmp_path / "result.json").read_text())
    metrics = {metric["name"]: metric["requests"] for metric in result["metrics"]}
    assert metrics["look/home"] == metrics["look/product"] == 4
    for figure in ("ttfb", "fcp", "dom_ready", "load", "lcp", "cls"):
        assert metrics[f"look/home:{figure}"] == metrics[f"look/product:{figure}"] == 4, figure
    sent = sum(count for metric, count in metrics.items() if metric.endswith(":requests"))
    assert sent == sum(target.counts().values()) - before, "every request of the browsers is counted once"
    eventually("the grid has all slots back", lambda: sessions(grid) == 0)


def test_toml_tasks_use_cdp_sessions_of_the_grid(squall, tmp_path, grid, target):
    look(squall, tmp_path, grid, target, "shop.toml", TOML)


def test_python_tasks_connect_to_the_grid(squall, tmp_path, grid, target):
    look(squall, tmp_path, grid, target, "shop.py", PYTHON)


def test_processes_without_a_user_hold_no_slot(squall, tmp_path, target):
    with grid_of(1, tmp_path) as grid:
        (tmp_path / "shop.py").write_text(PYTHON.format(grid=grid))
        arguments = ["run", "shop.py", "--target", target.url, "--users", "1", "--requests", "2", "--processes", "2"]
        ended = squall(*arguments, env=os.environ | {"GRID_TOKEN": SECRET})
    assert ended.code == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(("name", "text"), [("shop.toml", TOML), ("shop.py", PYTHON)])
def test_a_refusal_of_the_grid_is_the_message_of_the_run(squall, tmp_path, grid, target, name, text):
    (tmp_path / "grid.key").write_text("wrong")
    (tmp_path / name).write_text(text.format(grid=grid, target=target.url))
    ended = squall("run", name, "--target", target.url, "--users", "1", "--requests", "1", env=os.environ | {"GRID_TOKEN": "wrong"})
    assert ended.code != 0 and "API key" in ended.stdout + ended.stderr, ended.stdout + ended.stderr

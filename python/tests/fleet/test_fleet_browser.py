"""Browser users beside HTTP users on a fleet: the report counts what the target has counted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import playwright
import pytest
from squall_command import SQUALL

SECRET = "a-secret-of-the-load-test"
#: The driver in Playwright's package is the same version as its client, as the grid demands.
DRIVER = Path(playwright.__file__).parent / "driver"

TOML = """
name = "mixed"
[load]
users = 4
requests = 24
[browser]
timeout = "60s"
[[task]]
name = "look"
kind = "browser"
[[task.step]]
name = "home"
goto = "/shop"
[[task.step]]
name = "product"
click = "a.product"
expect = { visible = "#buy" }
[[task]]
name = "api"
weight = 5
get = "/api/products?page=1"
"""

PYTHON = """
from squall import *

@scenario(users=4, browser={"timeout": "60s"})
class Mixed(VUser):
    @task
    async def look(self, page):
        async with self.browser.step("home"):
            await page.goto("/shop")
        async with self.browser.step("product"):
            await page.locator("a.product").first.click()
            await page.locator("#buy").wait_for()

    @task(weight=5)
    async def api(self, client):
        await client.get("/api/products?page=1", name="api")
"""


@pytest.mark.parametrize(("name", "text"), [("mixed.toml", TOML), ("mixed.py", PYTHON)])
def test_http_users_and_browser_users_share_a_run_on_a_fleet(fleet, target, name, text):
    path = fleet.write(name, text)
    fleet.join("one", "two")
    before = sum(target.counts().values())
    ended = fleet.run(path, "--requests", "24", "--threshold", "look/home:lcp_p75<60s")
    result = fleet.result(ended)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    metrics = {metric["name"]: metric["requests"] for metric in result["metrics"]}
    # Weights are exact on each worker, so that rounding may differ by one.
    looks = metrics["look/home"]
    assert 3 <= looks <= 5 and looks == metrics["look/product"] == metrics["look/home:load"] == metrics["look/product:lcp"]
    assert metrics["api"] == 24 - looks
    in_browsers = sum(count for metric, count in metrics.items() if metric.endswith(":requests"))
    assert in_browsers + metrics["api"] == sum(target.counts().values()) - before
    assert result["accounting"]["balanced"] and result["accounting"]["sent"] == 24 + looks


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[str]:
    node = ["--playwright", str(DRIVER / "package"), "--node", str(DRIVER / "node")]
    command = [*SQUALL, "grid", "up", "--listen", "127.0.0.1:0", "--slots", "4", "--key", f"load={SECRET}", *node]
    with open(tmp_path / "err", "w") as err:
        running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=err, text=True)
    assert running.stdout is not None
    line = running.stdout.readline()
    assert "ws://" in line, line + (tmp_path / "err").read_text()
    yield line.split("ws://")[1].split("/")[0].split()[0]
    running.terminate()
    assert running.wait(60) == 0, (tmp_path / "err").read_text()


@pytest.mark.parametrize(("name", "text"), [("mixed.toml", TOML), ("mixed.py", PYTHON)])
def test_browser_users_of_a_fleet_share_a_grid(fleet, target, grid, name, text):
    text = text.replace("[browser]", f'[browser]\ngrid = "ws://{grid}"\ntoken = "{SECRET}"')
    text = text.replace('browser={', f'browser={{"grid": "ws://{grid}", "token": "{SECRET}", ')
    path = fleet.write(name, text)
    fleet.join("one", "two")
    before = sum(target.counts().values())
    ended = fleet.run(path, "--requests", "24")
    result = fleet.result(ended)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    metrics = {metric["name"]: metric["requests"] for metric in result["metrics"]}
    assert 3 <= metrics["look/home"] == metrics["look/product"] == metrics["look/home:lcp"]
    in_browsers = sum(count for metric, count in metrics.items() if metric.endswith(":requests"))
    assert in_browsers + metrics["api"] == sum(target.counts().values()) - before
    assert SECRET not in ended.stdout + ended.stderr + str(result)

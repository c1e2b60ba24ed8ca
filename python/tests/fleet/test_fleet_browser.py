"""Browser users beside HTTP users on a fleet: the report counts what the target has counted."""

from __future__ import annotations

import pytest

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

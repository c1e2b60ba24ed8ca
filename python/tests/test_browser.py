"""Browser users in Python: Playwright's pages in a real Chromium, against the built-in shop."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from squall._asyncio_loop import start_loop

EXAMPLE = Path(__file__).parents[2] / "scenarios" / "browser.py"
#: Far longer than a step takes here.
PATIENT = 'browser={"timeout": 60}'

BUY = f"""
@scenario({PATIENT})
class Shopper(VUser):
    @task
    async def buy(self, page):
        async with self.browser.step("catalogue"):
            await page.goto("/shop?page=2")
        async with self.browser.step("product"):
            await page.locator("a.product").first.click()
            await page.locator("#buy").wait_for()
        async with self.browser.step("stock"):
            await page.locator("#stock").click()
            await page.locator("#in-stock").wait_for()
        async with self.browser.step("order"):
            await page.locator("#name").fill("Ann")
            await page.locator("#buy").click()
            await page.get_by_text("Thank you").wait_for()
"""


def browser_requests(ended):
    return sum(metric["requests"] for metric in ended.result["metrics"] if metric["name"].endswith(":requests"))


def test_steps_and_figures_have_the_names_and_counts_of_toml(run, target):
    before = sum(target.counts().values())
    ended = run(BUY, "--threshold", "buy/catalogue:lcp_p75<60s", requests=2)
    assert ended.code == 0, ended.stdout + ended.stderr + ended.messages()
    for step in ("catalogue", "product", "stock", "order"):
        assert ended.outcomes(f"buy/{step}") == {"OK": 2}
    for step in ("catalogue", "product", "order"):
        for figure in ("ttfb", "fcp", "dom_ready", "load", "lcp", "cls"):
            assert ended.metric(f"buy/{step}:{figure}")["requests"] == 2, f"{step}:{figure}"
    assert ended.metric("buy/product:inp")["requests"] == 2, "the product's page was used"
    assert "buy/stock:load" not in ended.names(), "the step loads no page"
    assert browser_requests(ended) == sum(target.counts().values()) - before, "every request of the browser is counted once"
    assert ended.result["accounting"]["sent"] == 8, "a step is one request"

#: Every figure of a page, with a limit that its threshold keeps and one that it breaks.
LIMITS = {
    "home:ttfb_p95": ("59s", "1us"),
    "home:fcp_p95": ("59s", "1us"),
    "home:dom_ready_p95": ("59s", "1us"),
    "home:load_p95": ("59s", "1us"),
    "home:lcp_p75": ("59s", "1us"),
    "home:cls_p75": ("1", "0"),
    "product:inp_p75": ("59s", "1ms"),
    "home:requests_p95": ("59s", "1us"),
    "home:requests_requests": ("20", "2"),
    "home:mean_bytes": ("1000000", "1000"),
    "broken:failed_requests": ("2", "1"),
    "broken:console_errors": ("2", "1"),
}


class _BrokenPage(http.server.BaseHTTPRequestHandler):
    """A request that fails, and an error in the console."""

    def do_GET(self) -> None:
        body = b"<img src='/missing.png'><script>console.error('broken')</script>"
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def broken_page():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _BrokenPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


FIGURES_TOML = """
target = "{url}"
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
expect = {{ visible = "#buy" }}
[[task.step]]
name = "stock"
click = "#stock"
expect = {{ visible = "#in-stock" }}
[[task.step]]
name = "broken"
goto = "{broken}"
"""

FIGURES_PYTHON = """
from squall import *

@scenario(browser={{"timeout": 60}})
class Shopper(VUser):
    @task
    async def look(self, page):
        async with self.browser.step("home"):
            await page.goto("/shop")
        async with self.browser.step("product"):
            await page.locator("a.product").first.click()
            await page.locator("#buy").wait_for()
        async with self.browser.step("stock"):
            await page.locator("#stock").click()
            await page.locator("#in-stock").wait_for()
        async with self.browser.step("broken"):
            await page.goto("{broken}")
"""


@pytest.mark.parametrize(("name", "text"), [("shop.toml", FIGURES_TOML), ("shop.py", FIGURES_PYTHON)])
@pytest.mark.parametrize("kept", [True, False])
def test_every_figure_has_a_threshold_that_is_kept_or_broken(squall, target, broken_page, tmp_path, name, text, kept):
    (tmp_path / name).write_text(text.format(url=target.url, broken=broken_page))
    thresholds = [f"look/{figure}<{limits[0 if kept else 1]}" for figure, limits in LIMITS.items()]
    flags = [word for threshold in thresholds for word in ("--threshold", threshold)]
    ended = squall("run", name, "--target", target.url, "--users", "1", "--requests", "1", "--json", "result.json", *flags)
    result = json.loads((tmp_path / "result.json").read_text())
    judged = {judgement["threshold"]: (judgement["passed"], judgement["value"]) for judgement in result["thresholds"]}
    assert list(judged) == thresholds
    assert {passed for passed, value in judged.values() if value is not None} == {kept}, judged
    assert None not in [value for _, value in judged.values()], judged
    assert ended.code == (0 if kept else 1), ended.stdout + ended.stderr


def test_figures_outside_steps_belong_to_the_task(run):
    ended = run(
        f"""
        @scenario({PATIENT})
        class Shopper(VUser):
            @task
            async def plain(self, page):
                await page.goto("/shop")

            @task
            async def mixed(self, page):
                async with self.browser.step("catalogue"):
                    await page.goto("/shop?page=2")
                await page.goto("/shop/21")
        """,
        requests=2,
    )
    assert ended.code == 0, ended.stdout + ended.stderr + ended.messages()
    for metric in ("plain:load", "plain:lcp", "mixed/catalogue:load", "mixed:load", "mixed:lcp"):
        assert ended.metric(metric)["requests"] == 1, metric


def test_the_example_runs(squall, target, tmp_path):
    ended = squall("run", str(EXAMPLE), "--target", target.url, "--users", "1", "--requests", "6", "--for", "2m", "--json", "r.json")
    assert ended.code == 0, ended.stdout + ended.stderr


def test_a_failed_step_is_one_error_with_a_screenshot_and_ends_the_task(run, tmp_path):
    ended = run(
        """
        @scenario(browser={"timeout": "60s", "screenshots": "pictures"})
        class Shopper(VUser):
            @task
            async def buy(self, browser):
                page = await browser.new_page()
                async with browser.step("home"):
                    await page.goto("/shop")
                async with browser.step("pay"):
                    await page.click("#pay", timeout=1000)
                async with browser.step("never"):
                    await page.click("#buy")
        """,
        requests=2,
    )
    assert ended.outcomes("buy/home") == {"OK": 2}
    assert ended.outcomes("buy/pay") == {"STEP_TIMEOUT": 2}
    assert {"buy/never", "buy (failed)"}.isdisjoint(ended.names())
    assert "shop.py:" in ended.messages() and "screenshot pictures/buy-pay.png" in ended.messages(), ended.messages()
    assert not any(noise in ended.messages() for noise in ("_impl", "async_api", "Call log")), ended.messages()
    assert (tmp_path / "pictures" / "buy-pay.png").read_bytes().startswith(b"\x89PNG")


def test_outcomes_of_steps_say_what_happened(run):
    ended = run(
        """
        from playwright.async_api import expect

        @scenario(browser={"timeout": "60s"})
        class Shopper(VUser):
            @task
            async def many(self, client, page):
                async with self.browser.step("missing"):
                    await page.goto("/shop/9999")
                for name, code in {"check": self.check, "refused": self.refused, "broken": self.broken}.items():
                    try:
                        async with self.browser.step(name):
                            await code(page)
                    except Exception:
                        pass

            async def check(self, page):
                await expect(page.locator("h1")).to_have_text("No such text", timeout=500)

            async def refused(self, page):
                await page.goto("http://127.0.0.1:1/")

            async def broken(self, page):
                await page.evaluate("console.error('broken', 7)")
                raise KeyError("basket")
        """,
        requests=1,
    )
    assert ended.outcomes("many/missing") == {"HTTP_404": 1}
    assert ended.outcomes("many/check") == {"EXPECTATION_FAILED": 1}
    assert ended.outcomes("many/refused") == {"NAVIGATION_FAILED": 1}
    assert ended.outcomes("many/broken") == {"KeyError": 1}
    assert ended.metric("many/broken:console_errors")["requests"] == 1
    assert "broken 7" in ended.messages()


def test_contexts_are_closed_after_each_iteration_and_share_nothing(run):
    ended = run(
        """
        @scenario(browser={"timeout": "60s"})
        class Shopper(VUser):
            @task
            async def look(self, client):
                page = await self.browser.new_page()
                # The browser has one of its own beside it.
                assert len(self.browser.contexts) == 2, self.browser.contexts
                async with self.browser.step("home"):
                    await page.goto("/shop")
                assert await page.evaluate("localStorage.length") == 0
                await page.evaluate("localStorage.setItem('a', '1')")
        """,
        requests=3,
    )
    assert ended.outcomes("look/home") == {"OK": 3}, ended.messages()
    assert ended.result["totals"]["errors"] == 0, ended.messages()


def test_a_task_timeout_is_recorded_under_its_step(run):
    ended = run(
        """
        @scenario(browser={"timeout": "60s"})
        class Shopper(VUser):
            @task(timeout=8)
            async def slow(self, page):
                async with self.browser.step("home"):
                    await page.goto("/shop")
                    await page.locator("#never").wait_for()
        """,
        requests=1,
    )
    assert ended.outcomes("slow/home") == {"TASK_TIMEOUT": 1}, ended.messages()


def test_a_killed_browser_fails_its_iteration_and_the_next_one_gets_another(run):
    ended = run(
        """
        import os, signal, subprocess

        @scenario(browser={"timeout": "60s"})
        class Shopper(VUser):
            @task
            async def look(self, page):
                async with self.browser.step("home"):
                    await page.goto("/shop")
                    if not os.path.exists("killed"):
                        open("killed", "w").close()
                        own = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout.split()
                        for pid in own:
                            command = open(f"/proc/{pid}/cmdline").read() if os.path.exists(f"/proc/{pid}") else ""
                            if "remote-debugging-port" in command:
                                os.killpg(int(pid), signal.SIGKILL)
                    await page.locator("h1").wait_for()
                    await page.reload()
        """,
        requests=3,
    )
    assert ended.outcomes("look/home") == {"OK": 2, "BROWSER_LOST": 1}, ended.messages()


def test_a_browser_that_opens_no_page_fails_its_iteration_and_the_next_one_gets_another(run):
    ended = run(
        """
        import os, signal, subprocess

        @scenario(browser={"timeout": "10s"})
        class Shopper(VUser):
            @task
            async def visit(self, client):
                if not os.path.exists("stopped"):
                    open("stopped", "w").close()
                    own = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout.split()
                    for pid in own:
                        command = open(f"/proc/{pid}/cmdline").read() if os.path.exists(f"/proc/{pid}") else ""
                        if "remote-debugging-port" in command:
                            os.killpg(int(pid), signal.SIGSTOP)
                page = await self.browser.new_page()
                await page.goto("/shop")
        """,
        requests=2,
    )
    assert "the browser opened no page within 10 s" in ended.messages(), ended.messages()
    assert ended.metric("visit:load")["requests"] == 1


def test_unusual_pages_do_not_stop_a_user(run):
    ended = run(
        """
        @scenario(browser={"timeout": "60s"})
        class Shopper(VUser):
            @task
            async def crash(self, page):
                async with self.browser.step("page"):
                    await page.goto("chrome://crash")

            @task
            async def popup(self, page):
                async with self.browser.step("opener"):
                    await page.goto("/shop")
                async with self.browser.step("popup"):
                    async with page.expect_popup() as opened:
                        await page.evaluate("window.open('/shop/1')")
                    popup = await opened.value
                    await popup.locator("#buy").wait_for()

            @task
            async def dialog(self, page):
                async with self.browser.step("dialog"):
                    await page.goto("/shop")
                    assert await page.evaluate("confirm('sure?')") is False

            @task
            async def frame(self, page):
                async with self.browser.step("frame"):
                    await page.goto("/shop")
                    await page.evaluate("document.body.innerHTML = '<iframe src=/shop/1></iframe>'")
                    await page.frame_locator("iframe").locator("#buy").wait_for()
        """,
        requests=8,
    )
    assert ended.outcomes("crash/page") == {"PAGE_CRASHED": 2}, ended.messages()
    for step in ("popup/opener", "popup/popup", "dialog/dialog", "frame/frame"):
        assert ended.outcomes(step) == {"OK": 2}, ended.messages()
    assert ended.metric("popup/popup:load")["requests"] == 2, "the figures of a popup belong to the step that opened it"
    assert ended.metric("frame/frame:load")["requests"] == 2, "a frame is no page load"


def test_cpu_time_and_memory_of_browser_and_driver_count_and_no_process_is_left(run, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    ended = run(BUY, requests=1, env=os.environ | {"TMPDIR": str(folder)})
    # Playwright's driver and the browser need more than this to start.
    assert ended.result["generator"]["cpu_s"] > 0.5, ended.result["generator"]
    plain = run("class A(VUser):\n    @task\n    async def get(self, client):\n        await client.get('/health')\n", requests=1)
    more = ended.result["generator"]["max_rss_bytes"] - plain.result["generator"]["max_rss_bytes"]
    assert more > 50 << 20, "a browser has more memory than this"
    assert list(folder.iterdir()) == [], "the browser's folder is removed"
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(folder) not in running, running


def test_the_end_of_playwrights_driver_is_not_printed_as_an_error(caplog):
    loop, ended = start_loop(), "Connection closed while reading from the driver"
    loop.create_future().set_exception(Exception(ended))
    assert ended in caplog.text, "during the run it is one"
    caplog.clear()
    loop.finish()
    for text in (ended, "of the scenario"):
        loop.create_future().set_exception(Exception(text))
    assert ended not in caplog.text and "of the scenario" in caplog.text


def test_mistakes_are_reported_before_the_run(squall, write):
    def refused(code, *arguments, env=None):
        ended = squall("run", str(write(code)), "--target", "http://127.0.0.1:1", "--check", *arguments, env=env)
        assert ended.code == 2, ended.stdout + ended.stderr
        return ended.stderr

    task = "class A(VUser):\n    @task\n    async def go(self, page):\n        pass\n"
    assert "must be async def" in refused(task.replace("async def", "def"))
    assert "browser has no key 'size'" in refused('@scenario(browser={"size": 1})\n' + task)
    assert "`big` is not a size in pixels" in refused('@scenario(browser={"viewport": "big"})\n' + task)
    assert "NO_SUCH_VARIABLE is not set" in refused('@scenario(browser={"grid": "ws://a", "token": "$NO_SUCH_VARIABLE"})\n' + task)
    assert "is no URL of a grid" in refused('@scenario(browser={"grid": "http://a"})\n' + task)
    assert "--mode stepped: Playwright's pages need asyncio" in refused(task, "--mode", "stepped")


def test_missing_playwright_names_the_package(squall, write, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # Python imports `sitecustomize` first. This one makes the package look as if it were not installed.
    (hidden / "sitecustomize.py").write_text("import sys\n\nsys.modules['playwright'] = None\n")
    path = write("class A(VUser):\n    @task\n    async def go(self, page):\n        pass\n")
    folders = [str(hidden), os.environ.get("PYTHONPATH", "")]
    ended = squall("run", str(path), "--target", "http://127.0.0.1:1", "--check", env=os.environ | {"PYTHONPATH": ":".join(folders)})
    assert ended.code == 2 and "pip install playwright" in ended.stderr, ended.stdout + ended.stderr


def test_a_browser_of_the_scenario_itself_is_left_alone(squall, write):
    code = """
    class A(VUser):
        async def on_start(self, client):
            self.browser = None

        @task
        async def go(self, client):
            assert self.browser is None
            await client.get("/health")
    """
    ended = squall("run", str(write(code)), "--target", "http://127.0.0.1:1", "--check")
    assert ended.code == 0 and "mode stepped" in ended.stdout, ended.stdout + ended.stderr

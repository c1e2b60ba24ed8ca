"""Browser users beside HTTP users, in one run against the built-in shop. The pages are
Playwright's own.

pip install playwright               # its own browsers are not needed: squall starts the installed Chromium
squall target &                      # the shop, at http://127.0.0.1:8089
squall run scenarios/browser.py --target http://127.0.0.1:8089
"""

from squall import VUser, scenario, sleep, task


@scenario(
    users=2,
    duration="15s",
    browser={"timeout": "10s", "viewport": "1280x720"},
    thresholds=[
        "error_rate<1%",
        "buy/catalogue:lcp_p75<2.5s",  # when most of the page is there
        "buy/catalogue:cls_p75<0.1",  # how much the page moves while it loads
        "buy/product:inp_p75<200ms",  # how long a click takes to show
        "buy/order:failed_requests<=0",
        "buy/order:console_errors<=0",
    ],
)
class Shop(VUser):
    @task
    async def buy(self, page):  # a page of its own, without cookies and cache
        async with self.browser.step("catalogue"):
            await page.goto(f"/shop?page={self.random.randint(1, 20)}")
        await sleep(self.random.uniform(0.1, 0.3))
        async with self.browser.step("product"):
            await page.locator("a.product").first.click()
            await page.locator("#buy").wait_for()
        async with self.browser.step("stock"):
            await page.get_by_text("Show the stock").click()
            await page.locator("#in-stock").wait_for()
        async with self.browser.step("order"):
            await page.locator("#name").fill(f"Customer {self.id}")
            await page.locator("#quantity").select_option("2")
            await page.locator("#buy").click()
            await page.get_by_text("Thank you").wait_for()

    @task(weight=5)
    async def api(self, client):  # HTTP users, in the same report
        await client.get("/api/products", params={"page": self.random.randint(1, 20)}, name="api")

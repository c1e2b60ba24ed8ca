// What a person does with charts and keys: ranges, zoom, lines alone, times, theme, copied tables; and what the page
// does when nobody looks or the data is late.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const SHOP = join(import.meta.dirname, "shop.toml");

describe("the charts of a run on two workers", { timeout: 10 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 2 });
    await fleet.startRun(SHOP);
    view = await open(browser, fleet);
    view.page.setDefaultTimeout(PATIENCE_MS);
    await until("some seconds", async () => (await fleet.get("/api/v1/tests/current")).live?.requests_total > 500);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  const card = (page, title) => page.locator(".chart-card", { has: page.getByRole("heading", { name: title }) });
  const setting = (page, name) => new URLSearchParams(page.url().split("?")[1] ?? "").get(name);

  test("keys, buttons and the pointer choose the visible part of the run, and the address holds it", async () => {
    const { page } = view;
    const range = page.getByRole("group", { name: "Visible part of the run" });
    const pressed = () => range.locator('[aria-pressed="true"]').allInnerTexts();
    await range.getByRole("button", { name: "1 min" }).click();
    assert.equal(setting(page, "range"), "60");
    await page.reload();
    await until("the range of the address", async () => (await pressed()).join() === "1 min");
    await page.keyboard.press("]");
    await until("5 min", async () => (await pressed()).join() === "5 min");
    await page.keyboard.press("]");
    await until("the whole run", async () => (await pressed()).join() === "Whole run");
    await page.keyboard.press("[");
    assert.equal(setting(page, "range"), "300");
    await page.keyboard.press("0");
    assert.equal(setting(page, "range"), null);
    const over = await card(page, "Response time").locator(".u-over").boundingBox();
    await page.mouse.move(over.x + over.width * 0.3, over.y + 50);
    await page.mouse.down();
    await page.mouse.move(over.x + over.width * 0.8, over.y + 60, { steps: 4 });
    await page.mouse.up();
    const zoomed = await until("a part of the run", () => setting(page, "range"));
    assert.match(zoomed, /^\d+-\d+$/);
    assert.deepEqual(await pressed(), [], "no button stands for a part");
    await page.mouse.dblclick(over.x + over.width / 2, over.y + 60);
    await until("the whole run again", () => setting(page, "range") === null);
  });

  test("a click on a name in a legend shows its line alone, also after a reload", async () => {
    const { page } = view;
    const lines = () => card(page, "Response time").locator(".legend li:not(.when):not(.off)").allInnerTexts();
    await card(page, "Response time").getByRole("button", { name: "p95" }).click();
    assert.equal(setting(page, "only"), "Response time:p95");
    await until("one line", async () => (await lines()).length === 1);
    await page.reload();
    await until("one line", async () => (await lines()).length === 1 && (await lines())[0].startsWith("p95"));
    await card(page, "Response time").getByRole("button", { name: "p95" }).click();
    await until("all lines", async () => (await lines()).length === 3);
    assert.equal(setting(page, "only"), null);
  });

  test("t and its buttons switch between response and service times", async () => {
    const { page } = view;
    await page.keyboard.press("t");
    await card(page, "Service time").waitFor();
    assert.equal(setting(page, "times"), "service");
    await card(page, "Service time").getByRole("button", { name: "Response" }).click();
    await card(page, "Response time").waitFor();
  });

  test("the keys are listed, and the first stop of the keyboard leads to the content", async () => {
    const { page } = view;
    await page.keyboard.press("?");
    const list = page.getByRole("dialog", { name: "Keys" });
    await list.getByText("shorter or longer range").waitFor();
    await page.keyboard.press("Escape");
    await list.waitFor({ state: "detached" });
    await page.reload();
    await page.locator(".figure").first().waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  });

  test("the theme that a person chose stays after a reload", async () => {
    const { page } = view;
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await theme(), "light");
    await page.getByRole("button", { name: "Light or dark" }).click();
    await page.reload();
    assert.equal(await theme(), "dark");
    await page.getByRole("button", { name: "Light or dark" }).click();
    assert.equal(await theme(), "light");
  });

  test("the copied table has a line for each row of the page", async () => {
    const { page, context } = view;
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`${fleet.api}/#/metrics`);
    await page.getByRole("button", { name: "Copy as CSV" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const lines = (await page.evaluate(() => navigator.clipboard.readText())).split("\n");
    const names = await page.locator("tbody th.name").allInnerTexts();
    assert.equal(lines.length, names.length + 1);
    assert.match(lines[0], /^"metric","Requests","Now 1\/s","Errors",.*"p99 ms"/);
    assert.match(lines[1], /^"all requests",\d+,/);
    assert.equal(lines[1].split(",").length, lines[0].split(",").length);
    await page.goto(`${fleet.api}/#/live`);
  });

  test("a hidden tab draws nothing, and shows the present when it is seen again", async () => {
    const { page } = view;
    const total = page.locator(".metrics tr.total td").first();
    const see = (state) =>
      page.evaluate((state) => {
        Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, state);
    await total.waitFor();
    await see("hidden");
    const before = await page.locator("#app").innerHTML();
    const { requests_total: from } = (await fleet.get("/api/v1/tests/current")).live;
    await until("more requests", async () => (await fleet.get("/api/v1/tests/current")).live.requests_total > from + 200);
    assert.equal(await page.locator("#app").innerHTML(), before);
    await see("visible");
    const shown = async () => Number((await total.textContent()).replaceAll(",", ""));
    await until("the requests that were missed", async () => (await shown()) > from + 100);
    assert.equal(await page.locator(".band", { hasText: "No word" }).count(), 0);
  });

  test("data that is late names the worker that it waits for", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    let holds = false;
    await page.routeWebSocket("**/api/v1/live*", (socket) => {
      const server = socket.connectToServer();
      server.onMessage((text) => {
        const message = JSON.parse(text);
        if (holds && message.type === "second") return;
        if (holds && message.type === "fleet") message.workers.find(({ id }) => id === "worker-2").second[0] = 1;
        socket.send(JSON.stringify(message));
      });
    });
    await page.goto(fleet.api);
    await page.locator(".figure .value .unit").first().waitFor();
    const age = page.locator(".navigation .age");
    await until("fresh data", async () => /^Data [0-2]\.\d s old$/.test(await age.textContent()));
    holds = true;
    await until("the worker", async () => /^Data \d+\.\d s old: waiting for worker-2$/.test(await age.textContent()));
    assert.ok(await page.locator(".navigation .age.late").count());
    assert.equal(await page.locator(".band", { hasText: "No word" }).count(), 0, "the connection is there");
    await context.close();
  });

  test("a worker at its CPU limit is named during the run, and not when the run is over", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.routeWebSocket("**/api/v1/live*", (socket) => {
      socket.connectToServer().onMessage((text) => {
        const message = JSON.parse(text);
        if (message.type === "fleet") message.workers[0].cpu_percent = 95;
        socket.send(JSON.stringify(message));
      });
    });
    await page.goto(fleet.api);
    const generator = page.locator(".figure", { hasText: "Generator lag p99" });
    await generator.getByText("worker-1 at the limit").waitFor();
    await fleet.squall("test", "stop", "--api", fleet.api);
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    assert.doesNotMatch(await generator.textContent(), /at the limit|CPU/);
    await context.close();
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

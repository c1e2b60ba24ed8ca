// The table of many metrics in Chromium: rows come into the document and leave it with scrolling, sorting, filtering and
// resizing, and none of them shows an old figure.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, open, picture, WIDE } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const METRICS = 300;
const nameOf = (id) => `m${String(id).padStart(3, "0")}`;
const number = (text) => Number(text.replace(/[^0-9.]/g, ""));

function scenario(folder) {
  const file = join(folder, "many.toml");
  const tasks = Array.from({ length: METRICS }, (_, id) => `[[task]]\nname = "${nameOf(id)}"\nget = "/health"\n`);
  writeFileSync(file, `name = "many"\ntarget = "http://127.0.0.1:1"\n\n[load]\nrate = "${METRICS}/s"\nfor = "10m"\n\n${tasks.join("\n")}`);
  return file;
}

describe("the table of 300 metrics", { timeout: 10 * PATIENCE_MS }, () => {
  const folder = mkdtempSync(join(tmpdir(), "squall-table-"));
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 1 });
    await fleet.startRun(scenario(folder));
    view = await open(browser, fleet, { path: "/#/metrics" });
    view.page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const region = () => view.page.locator(".scroll.tall");
  const scrollTo = (top) => region().evaluate((element, top) => element.scrollTo(0, top), top);

  /** Name, place and requests of the rows that a person sees. */
  const shownRows = () =>
    region().evaluate((element) => {
      const [top, bottom] = [
        element.querySelector("thead").getBoundingClientRect().bottom,
        Math.min(element.getBoundingClientRect().bottom, innerHeight),
      ];
      const isShown = ({ top: above, bottom: below }) => above >= top - 1 && below <= bottom + 1;
      const rows = [...element.querySelectorAll("tbody tr:not(.spacer)")].filter((row) => isShown(row.getBoundingClientRect()));
      return rows.map((row) => [row.cells[0].textContent, Number(row.ariaRowIndex), row.cells[1].textContent]);
    });

  test("only rows in view and a few more are in the document", async () => {
    const { page } = view;
    await until("all metrics", async () => (await fleet.get("/metrics?include_events=false")).metrics.length >= METRICS);
    await until(
      "a full table",
      async () => (await page.locator("table[aria-rowcount]").getAttribute("aria-rowcount")) === `${METRICS + 2}`,
    );
    const rows = await page.locator("tbody tr:not(.spacer)").count();
    assert.ok(rows >= 20 && rows <= 60, `${rows} rows`);
    await picture(page, "metrics-many-1440-light");
  });

  test("rows that come into view have the figures of the server", async () => {
    const { page } = view;
    // Rows at the end are in the document, then out of it while their figures change.
    await scrollTo(1e6);
    await page
      .locator("tbody th.name", { hasText: nameOf(METRICS - 1) })
      .or(page.locator("tbody th.name").last())
      .first()
      .waitFor();
    await scrollTo(0);
    await until("some seconds", async () => (await fleet.get("/api/v1/tests/current")).live.requests_total > 8 * METRICS);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator(".chip", { hasText: "Paused" }).waitFor();
    const counts = async () => {
      const { metrics } = await fleet.get("/metrics?include_events=false");
      return new Map(metrics.map(({ metric_id, aggregate_total }) => [metric_id, aggregate_total.requests]));
    };
    // The table arrives in parts, the last of them five seconds after the last request.
    await until("the table of the paused run", async () => {
      const known = await counts();
      const total = [...known.values()].reduce((sum, n) => sum + n, 0);
      const texts = await page.locator("tr.total td").first().textContent();
      return number(texts) === total;
    });
    await page.waitForTimeout(6000);
    const known = await counts();
    const seen = new Set();
    const height = await region().evaluate((element) => element.scrollHeight);
    for (let top = 0; top < height; top += 320) {
      await scrollTo(top);
      // The browser reports rows that came into view with one of the next frames.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60)))));
      const rows = await shownRows();
      assert.ok(rows.length > 5, `${rows.length} rows at ${top}`);
      for (const [name, place, requests] of rows) {
        seen.add(name);
        if (name !== "all requests") assert.equal(number(requests), known.get(name), `${name} in row ${place}`);
      }
      assert.deepEqual(
        rows.map(([, place]) => place),
        rows.map((_, index) => rows[0][1] + index),
        "each row has its place",
      );
    }
    assert.equal(seen.size, METRICS + 1, "every row was in view once");
  });

  test("a new order and another time move the figures with the rows", async () => {
    const { page } = view;
    await scrollTo(0);
    await page.locator("thead button", { hasText: /^Metric$/ }).click();
    await until("names from the first on", async () => (await shownRows())[1][0] === nameOf(0));
    await scrollTo(32 * 150);
    await until("names in the middle", async () => (await shownRows()).some(([name]) => name === nameOf(155)));
    await page.locator("thead button", { hasText: /^Metric$/ }).click();
    await until("names from the last on", async () => (await shownRows()).some(([name]) => name === nameOf(METRICS - 155)));
    const { metrics } = await fleet.get("/metrics?include_events=false");
    const known = new Map(metrics.map(({ metric_id, aggregate_total }) => [metric_id, aggregate_total.requests]));
    const isRight = ([name, , requests]) => name === "all requests" || number(requests) === known.get(name);
    await until("the right figures", async () => (await shownRows()).every(isRight));
  });

  test("a filter that leaves few rows shows them, however far the table was scrolled", async () => {
    const { page } = view;
    await scrollTo(1e6);
    await page.keyboard.press("/");
    await page.keyboard.type(nameOf(7));
    await page.locator("tbody th.name", { hasText: nameOf(7) }).waitFor();
    assert.deepEqual(
      (await shownRows()).map(([name]) => name),
      [nameOf(7)],
    );
    await page.locator("#filter").fill("");
    await until("all rows", async () => (await shownRows()).length > 5);
  });

  test("a higher window shows more rows", async () => {
    const { page } = view;
    await scrollTo(32 * 100);
    await page.setViewportSize({ width: 1440, height: 500 });
    await until("few rows", async () => (await shownRows()).length < 12);
    await page.setViewportSize({ ...WIDE, height: 1400 });
    await until("a full region", async () => (await shownRows()).length > 30);
    await page.setViewportSize({ width: 420, height: 900 });
    await until("rows of the narrow page", async () => (await shownRows()).length > 5);
    await page.setViewportSize(WIDE);
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

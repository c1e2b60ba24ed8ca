// What the page shows when something is away: no run, a killed orchestrator and its restart, a Redis
// server that does not answer, hostile texts, and pages of other sites.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, NARROW, open, picture, seriousFindings, sidewaysAt320 } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const SHOP = join(import.meta.dirname, "shop.toml");
const HOSTILE = join(import.meta.dirname, "hostile.toml");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["live", "metrics", "errors", "probes", "workers", "resources", "streams", "grid", "start", "history", "compare", "api"];

/** Seconds of a text such as `1:02`. */
const seconds = (text) => text.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);

describe("a fleet with faults", { timeout: 12 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let wide;
  let narrow;
  let saved = [];

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 2, history: true, extra: ["--streams", "--grid", "main"] });
    wide = await open(browser, fleet);
    narrow = await open(browser, fleet, { viewport: NARROW, colorScheme: "dark" });
    for (const { page } of [wide, narrow]) page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  /** Every page in both widths and themes: a picture, and no serious finding of axe. */
  async function lookAtEverything(state) {
    const pages = state === "empty" ? PAGES : [...PAGES, ...(await pagesOfRuns())];
    for (const { page } of [wide, narrow]) {
      const { width } = page.viewportSize();
      for (const at of pages) {
        await page.goto(`${fleet.api}/#/${at}`);
        await page.locator("main .card, main .empty, main .band").first().waitFor();
        for (const colorScheme of ["light", "dark"]) {
          await page.emulateMedia({ colorScheme });
          const name = `${at.split("?")[0]}${at.includes("base=") ? "d" : ""}-${state}-${width}-${colorScheme}`;
          await picture(page, name);
          assert.deepEqual(await seriousFindings(page, AXE), [], name);
        }
        assert.equal(await sidewaysAt320(page), 0, `${at} ${state} scrolls sideways`);
      }
      await page.emulateMedia({ colorScheme: page === wide.page ? "light" : "dark" });
      await page.goto(`${fleet.api}/#/live`);
    }
  }

  /** Addresses that name a metric and saved runs. */
  async function pagesOfRuns() {
    saved = await fleet.get("/api/v1/runs").then(
      ({ runs }) => runs,
      () => saved,
    );
    const [newer, base = newer] = saved.map(({ id }) => id);
    return ["metric?id=0", `compare?base=${base}&new=${newer}`];
  }

  /** Metrics named `cart/…` are a group; its rows and the times of the table are chosen in the address. */
  async function groupsFold(page) {
    const member = page.locator("tbody th.member", { hasText: "cart/pay" });
    await member.waitFor();
    await page.getByRole("button", { name: "2 metrics of cart" }).click();
    await member.waitFor({ state: "detached" });
    await page.getByText("2 folded").waitFor();
    await page.getByRole("button", { name: "Wait", exact: true }).click();
    await until("wait times have three columns", async () => (await page.getByRole("button", { name: "p90 ms" }).count()) === 0);
    assert.match(page.url(), /folded=cart/);
    assert.match(page.url(), /times=wait/);
    await page.reload();
    await page.getByText("2 folded").waitFor();
    assert.equal(await member.count(), 0, "a reload keeps the group folded");
    await page.getByRole("button", { name: "2 metrics of cart" }).click();
    await member.waitFor();
  }

  test("pages without a run have no serious finding", () => lookAtEverything("empty"));

  test("texts of a hostile server are shown as text", async () => {
    const { page } = wide;
    const server = createServer((request, response) => {
      response.statusCode = 500;
      const body = request.url.startsWith("/long")
        ? Buffer.alloc(1 << 20, "A")
        : Buffer.from([0x3c, 0x73, 0x3e, 0x00, 0xff, 0xfe, 0xe2, 0x80, 0xae]);
      response.end(body);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      await fleet.squall("test", "start", HOSTILE, "--target", `http://127.0.0.1:${server.address().port}`, "--api", fleet.api);
      await page.locator(".chip", { hasText: "Running" }).waitFor();
      await page.goto(`${fleet.api}/#/metrics`);
      await page.locator("tbody th.name", { hasText: "<script>alert(1)</script>" }).waitFor();
      await page.locator("tbody th.name", { hasText: "⟨202e⟩" }).waitFor();
      await groupsFold(page);
      await page.goto(`${fleet.api}/#/errors`);
      await page
        .getByRole("row", { name: /HTTP_500/ })
        .first()
        .waitFor();
      assert.equal(await page.locator("main script, main img, main iframe").count(), 0);
      const shown = await page.locator("main").textContent();
      assert.ok(shown.length < 20_000, `${shown.length} characters are shown`);
      assert.ok(!shown.includes("\0") && !shown.includes("\u202e"), "characters that hide or turn text are visible");
      const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(sideways <= 0, `the page is ${sideways} px too wide`);
      await fleet.squall("test", "stop", "--api", fleet.api);
      await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  test("a Redis server that does not answer is named, and its return continues the run", async () => {
    const { page } = wide;
    await page.goto(`${fleet.api}/#/live`);
    await fleet.startRun(SHOP);
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    process.kill(fleet.pid("redis-server"), "SIGSTOP");
    try {
      await page.locator(".band", { hasText: "The coordination store (Redis) does not answer" }).waitFor();
      await picture(page, "live-store-away-1440-light");
      assert.deepEqual(await seriousFindings(page, AXE), []);
      for (const name of ["Stop", "Add a note"]) assert.ok(await page.getByRole("button", { name }).isDisabled(), name);
      // A page that is opened now shows what the server read last, and not a fleet without a run.
      const other = await open(browser, fleet);
      await other.page.locator(".band", { hasText: "The coordination store (Redis) does not answer" }).waitFor();
      await other.page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
      await other.page.locator(".figure").first().waitFor();
      assert.equal(await other.page.getByText("No run yet").count(), 0);
      await other.page.goto(`${fleet.api}/#/workers`);
      await other.page.getByRole("heading", { name: "Coordination" }).waitFor();
      assert.equal(await other.page.getByText("0 of 256 shares").count(), 0, "a number that is not known is not 0");
      await other.context.close();
    } finally {
      process.kill(fleet.pid("redis-server"), "SIGCONT");
    }
    await until("no band", async () => (await page.locator('.band[role="status"]').count()) === 0);
    await page.locator(".chip", { hasText: "Running" }).waitFor();
  });

  test("a page of an older Squall says so and continues", async () => {
    const other = await browser.newContext();
    const page = await other.newPage();
    let update = () => undefined;
    let version = "";
    await page.routeWebSocket("**/api/v1/live*", (socket) => {
      const server = socket.connectToServer();
      update = () => socket.close();
      server.onMessage((text) => {
        const message = JSON.parse(text);
        socket.send(message.type === "hello" && version ? JSON.stringify({ ...message, version }) : text);
      });
    });
    await page.goto(fleet.api);
    const total = page.locator(".metrics tr.total td").first();
    await total.waitFor();
    assert.equal(await page.locator('.band[role="status"]').count(), 0);
    version = "999.0.0";
    update();
    await page.locator(".band", { hasText: "This page is of an older Squall: reload." }).waitFor();
    const before = await total.textContent();
    await until("the figures move", async () => (await total.textContent()) !== before);
    await picture(page, "live-older-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    version = "";
    await page.getByRole("button", { name: "Reload" }).click();
    await page.locator('.band[role="status"]').waitFor({ state: "detached" });
    await other.close();
  });

  test("behind a proxy that delays and cuts the feed, a page with a wrong clock says the true age and has no gap", async () => {
    const other = await browser.newContext();
    const page = await other.newPage();
    await page.addInitScript(() => {
      const now = Date.now.bind(Date);
      Date.now = () => now() + 3_600_000;
    });
    let holds = false;
    let cut = () => undefined;
    await page.routeWebSocket("**/api/v1/live*", (socket) => {
      const server = socket.connectToServer();
      cut = () => socket.close();
      server.onMessage((text) => {
        if (!holds) socket.send(text);
      });
    });
    await page.goto(fleet.api);
    const age = page.locator(".navigation .age");
    await until("the true age", async () => /^Data [0-2]\.\d s old$/.test(await age.textContent()));
    holds = true;
    await page.locator(".band", { hasText: "No word from the server" }).waitFor();
    await page.locator(".chip", { hasText: "Was running" }).waitFor();
    holds = false;
    cut();
    await page.locator(".chip", { hasText: /^Running/ }).waitFor();
    await until("the true age again", async () => /^Data [0-2]\.\d s old$/.test(await age.textContent()));
    await page.getByRole("button", { name: "Show as table" }).first().click();
    const texts = await page.locator(".chart-table tbody th").allInnerTexts();
    const times = texts.map(seconds);
    assert.ok(times.length > 5 && times.every((t, index) => t === times[0] - index), `no gap and no double second in ${texts}`);
    await other.close();
  });

  test("a killed orchestrator makes every figure look old", async () => {
    process.kill(fleet.pid("orchestrator"), "SIGKILL");
    for (const { page } of [wide, narrow]) {
      await page.locator(".band", { hasText: "No word from the server" }).waitFor();
      await page.locator(".chip", { hasText: "Was running" }).waitFor();
    }
    await lookAtEverything("stale");
    const { page } = wide;
    const current = await page
      .locator(".figure .value")
      .evaluateAll((values) =>
        values.filter((value) => Number(getComputedStyle(value).fontWeight) >= 600).map((value) => value.textContent),
      );
    assert.deepEqual(current, [], "no figure has the weight of a current one");
    await page.emulateMedia({ colorScheme: "light" });
    await until("the open end of a chart is hatched", () =>
      page
        .locator(".chart canvas")
        .first()
        .evaluate((canvas) => {
          const warnSoft = [0xfc, 0xf0, 0xd9];
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          let hatched = 0;
          for (let at = 0; at < data.length; at += 4) if (warnSoft.every((part, offset) => data[at + offset] === part)) hatched += 1;
          return hatched > 500;
        }),
    );
  });

  test("its restart continues the page without a gap and without a double second", async () => {
    const { page } = wide;
    await fleet.restartOrchestrator();
    await page.locator(".chip", { hasText: /^Running/ }).waitFor();
    await page.locator('.band[role="status"]').first().waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Show as table" }).first().click();
    const texts = await until("seconds after the restart", async () => {
      const shown = await page.locator(".chart-table tbody th").allInnerTexts();
      return shown.length > 8 && shown;
    });
    const times = texts.map(seconds);
    assert.ok(
      times.every((t, index) => t === times[0] - index),
      `no gap and no double second in ${texts}`,
    );
    await page.getByRole("button", { name: "Show as table" }).first().click();
  });

  test("two tabs that steer at once end with the same load", async () => {
    const change = async (page, rate) => {
      await page.getByRole("button", { name: "Change load" }).click();
      await page.getByLabel("New number of starts per second").first().fill(rate);
      await page.getByRole("button", { name: "Apply" }).click();
    };
    await Promise.all([change(wide.page, "30"), change(narrow.page, "40")]);
    const figure = ({ page }) => page.locator(".figure", { hasText: "Requests per second" }).textContent();
    // One change may follow the other, so the level is read again with the pages.
    await until("both pages show the load of the fleet", async () => {
      const { level } = await fleet.get("/api/v1/tests/current");
      const shown = await Promise.all([wide, narrow].map(figure));
      return (level === 30 || level === 40) && shown.every((text) => text.includes(`asked for ${level}`));
    });
  });

  test("a page that is over has no serious finding", async () => {
    await fleet.squall("test", "stop", "--api", fleet.api);
    for (const { page } of [wide, narrow]) await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    await lookAtEverything("over");
  });

  test("a run that its generator limits says so, and why", async () => {
    const { page } = wide;
    await page.goto(`${fleet.api}/#/live`);
    await fleet.startRun(SHOP);
    await until("requests", async () => (await fleet.get("/api/v1/tests/current")).live?.requests_total > 60);
    process.kill(fleet.pid("worker-1"), "SIGSTOP");
    await new Promise((resolve) => setTimeout(resolve, 1500));
    process.kill(fleet.pid("worker-1"), "SIGCONT");
    const band = page.locator(".band", { hasText: "The generator is the limit" });
    await band.waitFor();
    assert.match(await band.textContent(), /is the limit\. The generator made starts late/);
    await picture(page, "live-saturated-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    await fleet.squall("test", "stop", "--api", fleet.api);
    await page.locator(".band", { hasText: "The generator was the limit" }).waitFor();
  });

  // The fields are those of `probes_have_aggregates_events_and_errors` in squall-web.
  test("a probe shows its values, its failure and what it has seen last", async () => {
    const { page } = wide;
    const began_ms = Date.now() - 4000;
    const sample = (index, more) => ({
      event_id: `${index}`,
      data: { name: "depth", ts_ms: began_ms + index * 1000, status: true, time: 3, value: 40 + index, ...more },
    });
    const failure = { status: false, value: null, error_type: "KeyError", error_message: "no <b>queue</b>" };
    const events = [sample(1), sample(2), sample(3, failure)];
    const aggregate = { window_s: 60, successes: 2, errors: 1 };
    const probe = { probe_name: "depth", last_event_id: "3", aggregate, latest: events[2].data, events };
    await page.route(/\/probes\?/, (route) => route.fulfill({ json: { generated_at: Date.now() / 1000, probes: [probe] } }));
    await page.goto(`${fleet.api}/#/probes`);
    const card = page.locator(".charts > div", { hasText: "depth" });
    await card.getByText(/Failed: KeyError: no <b>queue<\/b>, [1-9] s ago · 1 failed in the last 60 s/).waitFor();
    await picture(page, "probes-1440-light");
    await card.getByRole("button", { name: "Show as table" }).click();
    const rows = await card.locator(".chart-table tbody tr").allInnerTexts();
    assert.deepEqual(rows.filter((row) => /4[12]/.test(row)).length, 2, `${rows}`);
    assert.deepEqual(await seriousFindings(page, AXE), []);
    await page.unroute(/\/probes\?/);
  });

  test("long codes of errors scroll within their table on narrow pages", async () => {
    const { page } = wide;
    const metric = /\/current\/metrics\/0$/;
    const outcome = { code: "CONNECTION_CLOSED_BY_TARGET", category: "no_connection_to_target", error: true, count: 12 };
    await page.route(metric, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), outcomes: [outcome] } });
    });
    await page.goto(`${fleet.api}/#/metric?id=0`);
    await page.getByText(outcome.code).waitFor();
    assert.equal(await sidewaysAt320(page), 0);
    await page.unroute(metric);
  });

  test("another site can neither frame the page nor use its API", async () => {
    const site = createServer((_, response) => {
      response.setHeader("Content-Type", "text/html");
      response.end(`<iframe src="${fleet.api}/"></iframe>`);
    });
    await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      const origin = `http://localhost:${site.address().port}`;
      await page.goto(origin);
      const frame = await until("the frame", () => page.frames()[1]);
      await until("the browser refuses the frame", async () => /chrome-error/.test(frame.url()));
      const answer = await fetch(`${fleet.api}/api/v1/tests/current/stop`, { method: "POST", headers: { Origin: origin } });
      assert.equal(answer.status, 403);
      const read = await page.evaluate((api) => fetch(`${api}/api/v1/workers`).then((found) => found.status, String), fleet.api);
      assert.match(String(read), /TypeError/, "the browser gets no answer to read");
    } finally {
      await context.close();
      site.close();
    }
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual([...wide.problems, ...narrow.problems], []);
  });
});

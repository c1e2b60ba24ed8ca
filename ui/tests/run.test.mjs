// The page in Chromium against a real fleet: what a person does in a run, from its start to its report.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, NARROW, open, picture, seriousFindings, sidewaysAt320, WIDE } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const SHOP = join(import.meta.dirname, "shop.toml");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** The number in a text such as `1,497/s`. */
const number = (text) => Number(text.replace(/[^0-9.]/g, ""));

/** The value of a key figure. */
const figure = (page, name) => page.locator(".figure", { hasText: name }).locator(".value").textContent();

/** Seconds of a text such as `1:02`. */
const seconds = (text) => text.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);

/** The page shows three digits. */
const near = (shown, exact, what) =>
  assert.ok(Math.abs(shown - exact) <= Math.max(exact * 0.006, 0.01), `${what}: ${shown} is shown, ${exact} is right`);

/** The rows of a chart as a table: second → values. The chart is a chart again afterwards. */
async function tableOf(page, title) {
  const card = page.locator(".chart-card", { has: page.getByRole("heading", { name: title }) });
  const choice = card.getByRole("button", { name: "Show as table" });
  await choice.click();
  await card.locator("tbody tr").first().waitFor();
  const rows = await card.locator("tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
  await choice.click();
  return new Map(rows.map(([time, ...values]) => [seconds(time), values.map(number)]));
}

describe("a run on three workers", { timeout: 10 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 3 });
    view = await open(browser, fleet);
    view.page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  test("a fleet that never ran says how to start a run", async () => {
    const { page } = view;
    await page.getByText("No run yet").waitFor();
    await page.getByText("3 workers are ready.").waitFor();
    assert.match(await page.locator("pre").last().textContent(), /squall test start/);
    await picture(page, "empty-1440-light");
  });

  test("a fleet without workers names the command that adds one, without the password", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.routeWebSocket("**/api/v1/live*", (socket) => {
      const server = socket.connectToServer();
      server.onMessage((text) => {
        const message = JSON.parse(text);
        socket.send(message.type === "fleet" ? JSON.stringify({ ...message, workers: [] }) : text);
      });
    });
    await page.goto(fleet.api);
    await page.getByText("This fleet has no workers.").waitFor();
    const { host, password } = new URL(fleet.redis());
    const command = await page.locator("pre").first().textContent();
    assert.ok(command.startsWith("squall worker --redis redis://…@") && command.includes(host), command);
    assert.ok(password && !command.includes(password), command);
    await context.close();
  });

  test("a run started elsewhere appears, and its figures move", async () => {
    const { page } = view;
    await fleet.startRun(SHOP);
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
    await until("requests per second near 60", async () => Math.abs(number(await figure(page, "Requests per second")) - 60) < 15);
    await until("the threshold on browse is breached", () => page.locator(".threshold.bad", { hasText: "browse:p95[5s]<1ms" }).count());
    await until("two metrics in the table", async () => (await page.locator(".metrics tbody tr").count()) >= 4);
    assert.ok(number(await figure(page, "p99 response")) > 5);
  });

  test("seconds of a metric's page are those of vikhry's history", async () => {
    const { page } = view;
    await page
      .getByRole("link", { name: "All 4 metrics" })
      .or(page.getByRole("link", { name: /^Metrics/ }))
      .first()
      .click();
    await page.locator(".metrics").getByRole("link", { name: "checkout" }).click();
    await page.getByRole("heading", { name: "checkout" }).waitFor();
    await page.locator(".distribution rect").first().waitFor();
    await picture(page, "metric-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    const shown = await until("ten seconds in the table", async () => {
      const rows = await tableOf(page, "Response time");
      return rows.size >= 10 && rows;
    });
    const { points } = await fleet.get("/metrics/history?range=all");
    const latest = Math.max(...shown.keys());
    // The point of second 1 is the first one.
    for (const [t, [p50, p95, p99]] of shown) {
      const point = points[t - 1].metrics.checkout;
      const expected = [point.latency_median_ms, point.latency_p95_ms, point.latency_p99_ms];
      for (const [index, value] of [p50, p95, p99].entries())
        near(value, expected[index], `percentile ${index} of second ${t} of ${latest}`);
    }
    await page.getByRole("link", { name: /^Live/ }).click();
  });

  test("a changed rate is acknowledged by all workers", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Change load" }).click();
    const field = page.getByLabel("New number of starts per second").first();
    await field.fill("100");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("3 of 3 workers").waitFor();
    await until("the rate rises to 100", async () => number(await figure(page, "Requests per second")) > 85);
  });

  test("the CPU use of the busiest worker is a chart", async () => {
    const { page } = view;
    const card = page.locator(".chart-card", { has: page.getByRole("heading", { name: "Generator CPU" }) });
    await card.scrollIntoViewIfNeeded();
    await until("a percentage", async () => /^\d+ %$/.test(await card.locator(".legend b").textContent()));
    await page.evaluate(() => window.scrollTo(0, 0));
  });

  test("the pointer over a chart moves nothing on the page", async () => {
    const { page } = view;
    const places = () =>
      page.locator(".chart-card, .metrics").evaluateAll((cards) =>
        cards.map((card) => {
          const { top, height } = card.getBoundingClientRect();
          return [top, height];
        }),
      );
    const card = page.locator(".chart-card", { has: page.getByRole("heading", { name: "Response time" }) });
    for (const width of [1440, 1280, 900, 420]) {
      await page.setViewportSize({ width, height: 900 });
      await card.scrollIntoViewIfNeeded();
      const over = card.locator(".u-over");
      await over.waitFor();
      const before = await places();
      const covered = await page.locator(".figure .spark").evaluateAll((trends) =>
        trends
          .filter((trend) => {
            const text = document.createRange();
            text.selectNodeContents(trend.closest(".figure").querySelector(".value"));
            return trend.checkVisibility() && trend.getBoundingClientRect().left < text.getBoundingClientRect().right;
          })
          .map((trend) => trend.getAttribute("aria-label")),
      );
      assert.deepEqual(covered, [], `trends over figures at ${width} px`);
      await over.hover();
      await card.locator(".when").waitFor();
      assert.deepEqual(await places(), before, `${width} px wide`);
      const headers = await page
        .locator(".charts")
        .first()
        .locator("header")
        .evaluateAll((all) => all.map((header) => header.offsetHeight));
      assert.ok(Math.max(...headers) - Math.min(...headers) < 8 || width < 1000, `heads of ${headers} px beside each other at ${width} px`);
      await page.mouse.move(0, 0);
      await card.locator(".when").waitFor({ state: "detached" });
    }
    await page.setViewportSize(WIDE);
    const rows = await tableOf(page, "Where the times fell");
    assert.equal([...rows.values()][0].length, 2, "p50 and p99, without the edges of their lines");
  });

  test("a load that somebody else changes is named in the open panel, and what was typed stays", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Change load" }).click();
    const panel = page.getByRole("dialog");
    const field = panel.getByLabel("New number of starts per second").first();
    await panel.getByText("Now: 100 starts per second").waitFor();
    await field.fill("140");
    assert.equal(await panel.getByText("Somebody has changed the load meanwhile").count(), 0);
    await fleet.squall("test", "rate", "90", "--api", fleet.api);
    await panel.getByText("Now: 90 starts per second. Somebody has changed the load meanwhile.").waitFor();
    assert.equal(await field.inputValue(), "140");
    await panel.getByRole("button", { name: "Close" }).click();
    await fleet.squall("test", "rate", "100", "--api", fleet.api);
  });

  test("pause stops the load and resume continues it", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator(".chip", { hasText: "Paused" }).waitFor();
    await until("no requests", async () => number(await figure(page, "Requests per second")) < 20);
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await until("requests again", async () => number(await figure(page, "Requests per second")) > 60);
  });

  test("the load is paused, resumed and changed with the keyboard alone", async () => {
    const { page } = view;
    page.on("dialog", (dialog) => void dialog.accept());
    await page.locator("body").press("Escape");
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press(" ");
    await page.locator(".chip", { hasText: "Paused" }).waitFor();
    await page.keyboard.press(" ");
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await page.getByRole("button", { name: "Change load" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("95");
    await page.keyboard.press("Enter");
    await page.getByText(/95(\.0)? starts per second: 3 of 3 workers/).waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement?.ariaLabel), "Change load", "the focus returns to the button");
    await fleet.squall("test", "rate", "100", "--api", fleet.api);
  });

  test("a killed worker is shown as lost, and its shares move", async () => {
    const { page } = view;
    await page.getByRole("link", { name: /Workers/ }).click();
    process.kill(fleet.pid("worker-2"), "SIGKILL");
    await page.locator(".look.bad", { hasText: "Lost" }).waitFor();
    await page.locator(".events", { hasText: "was lost" }).waitFor();
    await until("two workers hold all shares", async () => (await page.locator(".shares li").count()) === 2);
    await page.getByText("256 of 256 shares of the load have a worker").waitFor();
    for (const title of ["CPU by worker", "Schedule lag p99 by worker"]) {
      const card = page.locator(".chart-card", { has: page.getByRole("heading", { name: title }) });
      await card.locator(".legend li", { hasText: "worker-2" }).waitFor();
      assert.equal(await card.locator(".legend i.tone-error-1").count(), 1, "the lost worker has a colour");
      assert.equal(await card.locator(".legend i.tone-others").count(), 2, "the others are grey");
    }
    const leader = page.locator(".pairs > div", { hasText: "Leader" }).locator("dd");
    await until("the leader", async () => (await leader.textContent()) === (await fleet.get("/api/v1/fleet")).leader);
    await picture(page, "workers-1440-light");
    await page.getByRole("link", { name: /^Live/ }).click();
    await page.locator(".charts").first().waitFor();
    await picture(page, "live-1440-light");
  });

  test("an event in the list and its flag in the charts highlight each other", async () => {
    const { page } = view;
    const row = page.locator(".events > li", { hasText: "was lost" });
    await row.hover();
    await until("a mark in each chart in view", async () => (await page.locator(".u-over .flag-mark").count()) >= 4);
    await page.locator(".events > li.marked", { hasText: "was lost" }).waitFor();
    await page.locator("h1").hover();
    await until("no mark", async () => (await page.locator(".flag-mark, .marked").count()) === 0);
    // The flag moves while the run grows.
    await until("the flag under the pointer", async () => {
      await row.hover();
      const mark = page.locator(".flag-mark").first();
      await mark.waitFor({ state: "attached" });
      const { left } = await mark.evaluate((element) => element.getBoundingClientRect().toJSON());
      await page.evaluate(() => window.scrollTo(0, 0));
      const over = await page.locator(".u-over").first().boundingBox();
      await page.mouse.move(left, over.y - 8);
      return (await page.locator(".flag-mark span", { hasText: "was lost" }).count()) > 0;
    });
    await page.locator(".events > li.marked", { hasText: "was lost" }).waitFor({ state: "attached" });
    await picture(page, "live-marked-1440-light");
    await page.mouse.move(0, 0);
  });

  test("a note appears in the list and in the charts of everyone", async () => {
    const { page } = view;
    const other = await open(browser, fleet);
    await page.keyboard.press("n");
    await page.getByLabel(/^Note at/).fill("cache <b>cleared</b>");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    for (const shown of [page, other.page]) await shown.locator(".events", { hasText: "cache <b>cleared</b>" }).waitFor();
    const note = page.locator(".events > li", { hasText: "cache <b>cleared</b>" });
    assert.ok((await note.boundingBox()).height < 60, "a note has the width of the list");
    await other.context.close();
  });

  test("a drained worker says so, gives its shares up and leaves", async () => {
    const { page } = view;
    await page.getByRole("link", { name: /Workers/ }).click();
    await page.getByRole("button", { name: "Drain worker-3" }).click();
    await page.getByText(/shares move to 1 other worker/).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await page.locator(".look", { hasText: "Left" }).waitFor();
    await page.locator(".events", { hasText: "worker-3 left" }).waitFor();
    await until("one worker holds all shares", async () => (await page.locator(".shares li").count()) === 1);
    await page.getByRole("link", { name: /^Live/ }).click();
  });

  test("a reload shows the whole run again", async () => {
    const { page } = view;
    await page.reload();
    await page.locator(".events", { hasText: "was lost" }).waitFor();
    await page.locator(".threshold.bad").first().waitFor();
  });

  test("sort, filter and range are in the address, and keys reach them", async () => {
    const { page } = view;
    await page.keyboard.press("g");
    await page.keyboard.press("m");
    await page.locator(".scroll.tall").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("check");
    await until("one metric besides the total", async () =>
      (await page.locator("tbody th.name").allInnerTexts()).every((name) => /checkout/.test(name)),
    );
    assert.match(page.url(), /filter=check/);
    await page.locator("#filter").fill("");
    await page.getByRole("button", { name: "p99 ms" }).click();
    assert.match(page.url(), /sort=p99/);
    await page.locator("th[aria-sort=descending]", { hasText: "p99" }).waitFor();
    const slowest = await page.locator(".metrics table").evaluate((table) => {
      const column = [...table.tHead.rows[0].cells].findIndex((head) => head.getAttribute("aria-sort") === "descending");
      return [...table.tBodies[0].rows].slice(1).map((row) => Number(row.cells[column].textContent.replaceAll(",", "")));
    });
    assert.ok(slowest.length > 3, `${slowest.length} rows below the total`);
    assert.deepEqual(
      slowest,
      slowest.toSorted((a, b) => b - a),
      "the slowest metric follows the total",
    );
    const rows = page.locator(".metrics tr:not(.spacer)");
    const places = await rows.evaluateAll((all) => all.map((row) => Number(row.ariaRowIndex)));
    assert.deepEqual(
      places,
      places.map((_, index) => index + 1),
      "screen readers get the place of each row",
    );
    await picture(page, "metrics-1440-light");
    await page.getByText("Columns", { exact: true }).click();
    await page.getByLabel("p90 ms").uncheck();
    await until("a column less", async () => (await page.getByRole("button", { name: "p90 ms" }).count()) === 0);
    await page.reload();
    await page.getByRole("button", { name: "p95 ms" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "p90 ms" }).count(), 0, "a reload keeps the columns");
    await page.locator("th[aria-sort=descending]", { hasText: "p99" }).waitFor();
  });

  test("a name that is markup is shown as text, and what turns its direction is visible", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/metrics`);
    const name = page.locator("tbody th.name", { hasText: "onerror" });
    await name.waitFor();
    assert.equal(await name.textContent(), "<img src=x onerror=alert(1)>⟨202e⟩txt");
    assert.equal(await page.locator("main img").count(), 0);
  });

  test("errors are listed by code and metric", async () => {
    const { page } = view;
    await page.getByRole("link", { name: /Errors/ }).click();
    await page.getByRole("row", { name: /HTTP_503.*pay/ }).waitFor();
    await picture(page, "errors-1440-light");
  });

  test("pages have no serious finding of axe in either theme and width", async () => {
    for (const colorScheme of ["light", "dark"]) {
      for (const [width, viewport] of [
        ["1440", undefined],
        ["420", NARROW],
      ]) {
        const other = await open(browser, fleet, { colorScheme, ...(viewport ? { viewport } : {}) });
        await other.page.locator(".figure .value .unit").first().waitFor();
        for (const name of ["live", "metrics", "metric?id=0", "errors", "probes", "workers", "resources", "start", "api"]) {
          await other.page.goto(`${fleet.api}/#/${name}`);
          await other.page.locator("main .card").first().waitFor();
          await picture(other.page, `${name.split("?")[0]}-${width}-${colorScheme}`);
          assert.deepEqual(await seriousFindings(other.page, AXE), [], `${name} ${colorScheme} ${width}`);
          assert.equal(await sidewaysAt320(other.page), 0, `${name} scrolls sideways`);
        }
        assert.deepEqual(other.problems, []);
        await other.context.close();
      }
    }
  });

  test("a stopped run shows its verdict, and its totals are those of the result and of the target", async () => {
    const { page } = view;
    await page.getByRole("link", { name: /^Live/ }).click();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Finish what is under way" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    const result = await fleet.get("/api/v1/tests/1");
    await until(
      "the total of the result",
      async () => number(await page.locator(".metrics tr.total td").first().textContent()) === result.totals.requests,
    );
    const stats = await (await fetch(`${fleet.target}/stats`)).json();
    const received = stats.requests["/random-delay"] + stats.requests["/delay/{ms}"] + stats.requests["/fail"];
    const lost = result.accounting.lost_at_most;
    assert.ok(
      received >= result.totals.requests && received <= result.totals.requests + lost,
      `${received} received, ${result.totals.requests} reported, at most ${lost} lost`,
    );
    await picture(page, "over-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    const [errors, times] = [await tableOf(page, "Errors per second"), await tableOf(page, "Response time")];
    const bySecond = new Map(result.timeline.map((second) => [second.t_s, second]));
    assert.ok(errors.size >= 30 && times.size === errors.size, `${errors.size} seconds are shown`);
    for (const [t, values] of errors) {
      const second = bySecond.get(t);
      assert.equal(
        values.reduce((sum, n) => sum + n, 0),
        second.errors,
        `errors of second ${t}`,
      );
      if (second.requests > 0) near(times.get(t)[2], second.p99_ms, `p99 of second ${t}`);
    }
  });

  test("a worker that was lost stays in the list when the run is over", async () => {
    const { page } = view;
    const lost = (await fleet.get("/api/v1/tests/1")).fleet.workers.find((worker) => worker.state === "lost");
    await page.getByRole("link", { name: /Workers/ }).click();
    await page.getByRole("row", { name: /worker-2 Lost/ }).waitFor();
    const missing = page.locator(".figure", { hasText: "Unreported at most" }).locator(".value");
    assert.equal(number(await missing.textContent()), lost.lost_at_most);
    await page.getByRole("heading", { name: "CPU by worker" }).waitFor();
    await page.getByRole("link", { name: /^Live/ }).click();
  });

  test("the report downloads as one HTML file", async () => {
    const { page } = view;
    const [shown] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: "Open report" }).click()]);
    await shown.locator("h1").first().waitFor();
    await shown.close();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Report", exact: true }).click()]);
    assert.equal(download.suggestedFilename(), "squall-report-1.html");
  });

  test("a dead orchestrator makes every figure look old, and its restart continues the page", async () => {
    const { page } = view;
    await fleet.startRun(SHOP);
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await until("some seconds", async () => number(await page.locator(".metrics tr.total td").first().textContent()) > 400);
    process.kill(fleet.pid("orchestrator"), "SIGSTOP");
    await page.locator(".band", { hasText: "No word from the server" }).waitFor();
    await page.locator(".chip", { hasText: "Was running" }).waitFor();
    assert.ok(await page.getByRole("button", { name: "Stop" }).isDisabled());
    await picture(page, "live-stale-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    process.kill(fleet.pid("orchestrator"), "SIGCONT");
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await until("no band", async () => (await page.locator('.band[role="status"]').count()) === 0);
    await page.getByRole("button", { name: "Show as table" }).first().click();
    const texts = await until("seconds after the silence", async () => {
      const shown = await page.locator(".chart-table tbody th").allInnerTexts();
      return shown.length > 8 && shown;
    });
    const times = texts.map((text) => text.split(":").reduce((sum, part) => sum * 60 + Number(part), 0));
    assert.ok(
      times.every((t, index) => t === times[0] - index),
      `no gap and no double second in ${texts}`,
    );
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

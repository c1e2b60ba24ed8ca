// The pages History and Compare in Chromium: with runs of a fleet, with a folder of results, and the
// page of a run on this machine.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, NARROW, open, picture, seriousFindings } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Gives a saved run steady seconds: the noise of a busy machine would decide the comparison otherwise. */
function steady(folder, name, ms) {
  const file = join(
    folder,
    readdirSync(folder).find((found) => found.includes(`-${name}-`) && found.endsWith(".json")),
  );
  const result = JSON.parse(readFileSync(file, "utf8"));
  const smooth = (second, index) => {
    const time = ms * (1 + 0.01 * (index % 3));
    Object.assign(second, { mean_ms: time, p50_ms: time, p95_ms: time, p99_ms: time });
  };
  result.timeline.forEach(smooth);
  for (const metric of result.metrics) metric.timeline.forEach(smooth);
  for (const times of [result.latency_ms.response, ...result.metrics.map((metric) => metric.response_ms)]) {
    Object.assign(times, { mean: ms, p50: ms, p95: ms, p99: ms });
  }
  writeFileSync(file, JSON.stringify(result));
}

describe("the history of a fleet", { timeout: 10 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 1, history: true });
    view = await open(browser, fleet, { path: "/#/history" });
    view.page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  const row = (name) => view.page.locator("table.runs tbody tr", { hasText: name });

  test("an empty history says how to keep a run", async () => {
    const { page } = view;
    await page.getByText("No runs yet").waitFor();
    await picture(page, "history-empty-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
  });

  test("runs of the fleet and of the command line appear by themselves", async () => {
    const load = ["--rate", "30", "--for", "12s", "-q"];
    const keep = ["--history", fleet.history];
    // One after the other, because the older of two runs is the base.
    await fleet.squall("run", `${fleet.target}/delay/5`, "--name", "before", ...load, ...keep);
    await Promise.all([
      fleet.squall("run", `${fleet.target}/delay/25`, "--name", "after <i>x</i>", ...load, ...keep),
      fleet.squall(
        "test",
        "start",
        `${fleet.target}/health`,
        "--name",
        "of the fleet",
        "--rate",
        "20",
        "--for",
        "2s",
        "--wait",
        "--api",
        fleet.api,
      ),
    ]);
    for (const [name, ms] of [
      ["before", 10],
      ["after", 40],
    ]) {
      steady(fleet.history, name, ms);
    }
    await until("three runs", async () => (await view.page.locator("table.runs tbody tr").count()) === 3);
    await row("of the fleet").getByText("Passed").waitFor();
    const { runs } = await fleet.get("/api/v1/runs");
    for (const run of runs)
      await row(run.name)
        .locator("td.number", { hasText: String(run.requests) })
        .first()
        .waitFor();
  });

  test("search and verdict are in the address", async () => {
    const { page } = view;
    await page.keyboard.press("/");
    await page.keyboard.type("before");
    await until("one run", async () => (await page.locator("table.runs tbody tr").count()) === 1);
    assert.match(page.url(), /filter=before/);
    await page.getByLabel("Verdict").selectOption("interrupted");
    await page.getByText("None of the 3 runs matches.").waitFor();
    assert.match(page.url(), /verdict=interrupted/);
    await page.goto(`${fleet.api}/#/history`);
    await until("three runs", async () => (await page.locator("table.runs tbody tr").count()) === 3);
  });

  test("a note is saved and shown as text", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Note on before" }).click();
    await page.getByLabel("What should be known about this run").fill("the <b>old</b> shop");
    await page.getByRole("button", { name: "Save" }).click();
    await row("before").getByText("the <b>old</b> shop").waitFor();
    assert.match(await fleet.squall("runs", "list", "--history", fleet.history), /the <b>old<\/b> shop/);
  });

  test("a failed poll is said above the list, and leaves the list and an open note as they are", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Note on before" }).click();
    const note = page.getByLabel("What should be known about this run");
    await note.fill("half a sentence");
    const refused = { status: 409, contentType: "application/json", body: '{"error": {"message": "the folder is away"}}' };
    await page.route("**/api/v1/runs?*", (route) => route.fulfill(refused));
    await page.getByText("the folder is away").waitFor();
    assert.equal(await note.inputValue(), "half a sentence");
    assert.equal(await page.locator("table.runs tbody tr").count(), 3);
    await page.unroute("**/api/v1/runs?*");
    await page.getByText("the folder is away").waitFor({ state: "detached" });
    assert.equal(await note.inputValue(), "half a sentence");
    await page.keyboard.press("Escape");
  });

  test("a report opens without the rights of the page, and results download", async () => {
    const { page, context } = view;
    const [report] = await Promise.all([context.waitForEvent("page"), row("before").getByRole("link", { name: "Report" }).click()]);
    await report.getByRole("heading", { name: "before" }).waitFor();
    assert.equal(await report.evaluate(() => window.origin), "null");
    await picture(report, "report-1440-light");
    await report.close();
    for (const [name, ending] of [
      ["JSON", /\.json$/],
      ["HTML", /\.html$/],
      ["HDR", /\.hlog$/],
    ]) {
      const [download] = await Promise.all([page.waitForEvent("download"), row("before").getByRole("link", { name }).click()]);
      assert.match(download.suggestedFilename(), ending);
    }
  });

  test("two ticked runs are compared with the numbers of the command line", async () => {
    const { page } = view;
    await picture(page, "history-1440-light");
    await row("before").getByRole("checkbox").check();
    await row("after").getByRole("checkbox").check();
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator(".conclusion.bad h2").waitFor();
    const { runs } = await fleet.get("/api/v1/runs");
    const id = (name) => runs.find((run) => run.name.startsWith(name)).id;
    assert.equal(
      await page.getByLabel("The base run").inputValue(),
      await page.evaluate(() => new URLSearchParams(location.hash.split("?")[1]).get("base")),
    );
    const [base, newer] = [await page.getByLabel("The base run").inputValue(), await page.getByLabel("The new run").inputValue()];
    assert.deepEqual([base, newer].sort(), [id("before"), id("after")].sort());
    const text = await fleet.squall("runs", "compare", base, newer, "--history", fleet.history).catch((error) => error.stdout);
    assert.ok(text.includes(await page.locator(".conclusion h2").textContent()), text);
    const shown = await page.locator("table.changes tbody tr").allInnerTexts();
    assert.equal(shown.length, 6);
    for (const cells of await page.locator("table.changes tbody td.number").allInnerTexts())
      assert.ok(text.includes(cells), `${cells} in ${text}`);
    assert.ok((await page.locator(".point.bad").count()) + (await page.locator(".point.good").count()) > 0);
  });

  test("tolerance, rows, swap and the saved page follow the address", async () => {
    const { page } = view;
    const headline = () => page.locator(".conclusion h2").textContent();
    const before = await headline();
    await page.getByLabel("Tolerance").fill("900");
    await page.keyboard.press("Enter");
    await until("another verdict", async () => (await headline()).includes("900 %"));
    assert.match(page.url(), /tolerance=900/);
    await page.getByLabel("Tolerance").fill("5");
    await page.keyboard.press("Enter");
    await until("the same verdict", async () => (await headline()) === before);
    await page.getByRole("button", { name: "Significant" }).click();
    await until("fewer rows", async () => (await page.locator("table.changes tbody tr").count()) < 6);
    await page.getByRole("button", { name: "All" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Save as HTML" }).click()]);
    assert.match(readFileSync(await download.path(), "utf8"), /Squall comparison/);
    const base = await page.getByLabel("The base run").inputValue();
    await page.getByLabel("Filter rows").fill("p");
    await page.locator("h1").click();
    await page.keyboard.press("s");
    await until("swapped", async () => (await page.getByLabel("The new run").inputValue()) === base);
    await page.locator(".conclusion h2", { hasText: "No significant regression" }).waitFor();
    assert.match(page.url(), /tolerance=5&filter=p/);
    await page.keyboard.press("s");
    await page.locator(".conclusion.bad h2").waitFor();
    await page.getByLabel("Filter rows").fill("");
    await page.locator("h1").click();
  });

  test("g s swaps nothing, and a fleet without streams has no page of them", async () => {
    const { page } = view;
    const compare = page.url();
    await page.keyboard.press("g");
    await page.keyboard.press("s");
    assert.equal(page.url(), compare);
    await page.keyboard.press("g");
    await page.keyboard.press("h");
    await until("another page", () => page.url().endsWith("#/history"));
    await page.goBack();
    await page.locator(".conclusion.bad h2").waitFor();
    assert.equal(page.url(), compare);
  });

  test("an older comparison that arrives late does not replace a newer one", async () => {
    const { page } = view;
    const shown = await page.locator(".conclusion h2").textContent();
    let release = () => undefined;
    const held = new Promise((resolve) => {
      release = resolve;
    });
    // A tolerance of 900 %.
    const older = /api\/v1\/compare\?.*tolerance=9$/;
    await page.route(older, async (route) => {
      const response = await route.fetch();
      await held;
      await route.fulfill({ response });
    });
    const tolerance = page.getByLabel("Tolerance");
    const late = page.waitForResponse(older);
    await tolerance.fill("900");
    await page.keyboard.press("Enter");
    await until("no verdict", async () => (await page.locator(".conclusion h2").textContent()) === "–");
    await tolerance.fill("5");
    await page.keyboard.press("Enter");
    await until("the verdict", async () => (await page.locator(".conclusion h2").textContent()) === shown);
    release();
    await (await late).finished();
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100))));
    assert.equal(await page.locator(".conclusion h2").textContent(), shown);
    await page.unroute(older);
  });

  test("pages have no serious finding of axe in either theme and width", async () => {
    const compare = new URL(view.page.url()).hash;
    for (const colorScheme of ["light", "dark"]) {
      for (const [width, viewport] of [
        ["1440", undefined],
        ["420", NARROW],
      ]) {
        const other = await open(browser, fleet, { colorScheme, path: "/#/history", ...(viewport ? { viewport } : {}) });
        for (const [name, hash, ready] of [
          ["history", "#/history", "table.runs"],
          ["compare", compare, ".conclusion.bad"],
        ]) {
          await other.page.goto(`${fleet.api}/${hash}`);
          await other.page.locator(ready).first().waitFor();
          await picture(other.page, `${name}-${width}-${colorScheme}`);
          assert.deepEqual(await seriousFindings(other.page, AXE), [], `${name} ${colorScheme} ${width}`);
          if (width === "1440") {
            const beyond = await other.page
              .locator("main .scroll")
              .evaluateAll((all) => all.map((part) => part.scrollWidth - part.clientWidth));
            assert.deepEqual(Math.max(...beyond), 0, `a table of ${name} is wider than the page`);
          }
          if (name === "compare") {
            const facts = await other.page
              .locator(".facts tbody th")
              .evaluateAll((all) => all.map((fact) => fact.offsetWidth / fact.textContent.length));
            assert.ok(Math.min(...facts) > 3, `names of facts have ${facts} px for a letter`);
          }
          const [content, room] = await other.page.evaluate(() => [
            document.documentElement.scrollWidth,
            document.documentElement.clientWidth,
          ]);
          assert.ok(content <= room, `${name} is ${content} px wide in ${room}`);
        }
        assert.deepEqual(other.problems, []);
        await other.context.close();
      }
    }
  });

  test("a run is deleted after a question", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/history`);
    await page.getByRole("button", { name: "Delete of the fleet" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await until("two runs", async () => (await page.locator("table.runs tbody tr").count()) === 2);
    assert.equal((await fleet.get("/api/v1/runs")).total, 2);
  });

  test("squall ui shows a folder of results and no pages of a fleet", async () => {
    const served = await fleet.serve("ui", fleet.history, "--listen", "127.0.0.1:0");
    const { page, problems, context } = await open(browser, served);
    await until("two runs", async () => (await page.locator("table.runs tbody tr").count()) === 2);
    assert.deepEqual(await page.locator(".navigation .group a span").allInnerTexts(), ["History", "Compare"]);
    await picture(page, "ui-folder-1440-light");
    await page.setViewportSize(NARROW);
    for (const name of ["History", "Compare"]) await page.getByRole("link", { name }).waitFor();
    assert.deepEqual(problems, []);
    await context.close();
    served.child.kill("SIGINT");
    assert.equal(await served.ended, 0);
  });

  test("squall run --web serves the run, and stays until its page is closed", async () => {
    const served = await fleet.serve(
      "run",
      `${fleet.target}/health`,
      "--rate",
      "50",
      "--for",
      "4s",
      "--web",
      "127.0.0.1:0",
      "--name",
      "local",
    );
    const { page, problems, context } = await open(browser, served);
    await page.getByRole("heading", { level: 1, name: "local" }).waitFor();
    await page.locator(".chip", { hasText: "Passed" }).waitFor();
    await picture(page, "run-web-1440-light");
    await until("the summary", () => served.output().includes("stays while it is open"));
    assert.equal(served.child.exitCode, null);
    assert.deepEqual(problems, []);
    await context.close();
    assert.equal(await served.ended, 0);
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

// Pages that start runs and show what shares the fleet's Redis server: scenarios of a folder, a run again,
// streams with a partition in quarantine, and a browser grid.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, NARROW, open, picture, seriousFindings } from "./browser.mjs";
import { Fleet, PATIENCE_MS, until } from "./fleet.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What a worker of the built-in stream commands leaves after a failure: its reason, under the documented key. */
const REASON = { error: "ValueError: <b>no</b> price", xids: ["1-0"], attempts: 3 };

describe("a fleet with a folder of scenarios, streams and a grid", { timeout: 10 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 1, history: true, scenarios: true, extra: ["--streams", "--grid", "main"] });
    for (const name of ["users.toml", "shop.toml"]) {
      const text = readFileSync(join(import.meta.dirname, name), "utf8").replace(/^target = .*/m, `target = "${fleet.target}"`);
      writeFileSync(join(fleet.scenarios, name), text);
    }
    writeFileSync(join(fleet.scenarios, "broken.toml"), 'target = "http://127.0.0.1:1"\n[[task]]\nname = "x"\n');
    view = await open(browser, fleet, { path: "/#/start" });
    view.page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  test("a scenario that cannot run says why in the words of the command line", async () => {
    const { page } = view;
    await page.getByLabel("Scenario").selectOption("broken.toml");
    const refusal = page.getByRole("alert").filter({ hasText: "broken.toml" }).first();
    await refusal.waitFor();
    const text = await refusal.textContent();
    assert.ok(text.includes("\n") && !text.includes("⟨a⟩"), `the lines of ${text}`);
    assert.equal(await page.getByRole("button", { name: "Start" }).count(), 0);
  });

  test("the form shows the plan as a shape and as a command line, and a refusal at its field", async () => {
    const { page } = view;
    await page.getByLabel("Scenario").selectOption("users.toml");
    await page.getByRole("button", { name: "Rate", exact: true }).click();
    await page.getByLabel("Length").fill("soon");
    const length = page.locator("label", { hasText: "Length" });
    await length.getByText("`soon` is not a duration").waitFor();
    assert.ok(await page.getByRole("button", { name: "Start" }).isDisabled());
    await page.getByLabel("Length").fill("5m");
    await page.getByLabel("Ramp-up").fill("1m");
    await page.getByLabel("Starts per second").fill("20");
    // A text that looks like a number stays as typed.
    await page.getByLabel("shelf").fill("02");
    await page.getByLabel(/More thresholds/).fill("p99<5s\nerror_rate<10%");
    await page.getByText("open load · up to 20/s for 5 min, 2 thresholds").waitFor();
    await page.getByRole("img", { name: "Planned load: up to 20/s, 5 min" }).waitFor();
    const command = await page.locator(".what-runs > pre").textContent();
    assert.ok(
      command.includes("users.toml --rate 20 --for 5m --ramp-up 1m --threshold 'p99<5s' --threshold 'error_rate<10%' --param shelf=02"),
      command,
    );
    await picture(page, "start-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
  });

  test("the run of the form starts, and its thresholds are judged", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await page.locator(".threshold", { hasText: "p99<5s" }).waitFor();
    await page.goto(`${fleet.api}/#/start?scenario=users.toml`);
    await page.getByText("A run is under way").waitFor();
    assert.ok(await page.getByRole("button", { name: "Start", exact: true }).isDisabled());
    await page.goto(`${fleet.api}/#/live`);
    await until("requests", async () => (await fleet.get("/api/v1/tests/current")).live?.requests_total > 20);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Cut it off" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
  });

  test("a finished run starts again from the bar, and one of the history from the form", async () => {
    const { page } = view;
    await page.getByRole("button", { name: "Run again" }).click();
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    assert.equal((await fleet.get("/api/v1/tests/current")).epoch, 2);
    await fleet.squall("test", "stop", "--api", fleet.api);
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    await page.goto(`${fleet.api}/#/history`);
    await page
      .getByRole("button", { name: /^Run again/ })
      .first()
      .click();
    await page.getByText(/as it was on/).waitFor();
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    const third = await until("the third run", async () => {
      const current = await fleet.get("/api/v1/tests/current");
      return current.epoch === 3 && current.name && current;
    });
    assert.deepEqual([third.name, third.driven_by], ["users", "rate"]);
    await fleet.squall("test", "stop", "--api", fleet.api);
  });

  test("streams show lag and owners, and a partition leaves the quarantine", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/streams`);
    await page.getByText("No streams yet").waitFor();
    for (const id of ["1", "2", "3"]) {
      await fleet.squall(
        "stream",
        "send",
        "shop.orders",
        JSON.stringify({ id }),
        "--partitions",
        "4",
        "--partition-by",
        "id",
        "--redis",
        fleet.redis(),
      );
    }
    // A processor that has read nothing, and one partition that a worker gave up.
    await fleet.redisCli("XGROUP", "CREATE", "squall:__strm:shop.orders.{0}", "billing", "0", "MKSTREAM");
    await fleet.redisCli("SET", "squall:__quar:shop.orders.billing.{0}", JSON.stringify(REASON));
    const card = page.getByRole("region", { name: "Processor billing" });
    await card.waitFor();
    await card.getByText("ValueError: <b>no</b> price").waitFor();
    await card.getByText("nothing is processed").waitFor();
    for (const [width, colorScheme, viewport] of [
      ["420", "dark", NARROW],
      ["420", "light", NARROW],
      ["1440", "dark", undefined],
    ]) {
      const other = await open(browser, fleet, { path: "/#/streams", colorScheme, ...(viewport ? { viewport } : {}) });
      await other.page.getByRole("region", { name: "Processor billing" }).waitFor();
      await picture(other.page, `streams-${width}-${colorScheme}`);
      assert.deepEqual(await seriousFindings(other.page, AXE), [], `${colorScheme} ${width}`);
      await other.context.close();
    }
    await picture(page, "streams-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
    await card.getByRole("button", { name: /Let go on/ }).click();
    await page.getByRole("button", { name: "Try the failed events again" }).click();
    await until("no quarantine", async () => (await card.getByText("ValueError").count()) === 0);
    assert.equal((await fleet.redisCli("EXISTS", "squall:__quar:shop.orders.billing.{0}")).trim(), "0");
  });

  test("the grid shows slots and sessions, and a session is ended", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/grid`);
    await page.getByText("No worker offers slots").waitFor();
    const grid = await fleet.startGridWorker();
    try {
      await page.getByRole("row", { name: /grid-1 Available chromium/ }).waitFor();
      await page.getByText("of 2 slots").waitFor();
      const client = await grid.connect();
      const session = page.getByRole("row", { name: /running chromium:grid-1/ });
      await session.waitFor();
      for (const [width, colorScheme, viewport] of [
        ["420", "dark", NARROW],
        ["420", "light", NARROW],
        ["1440", "dark", undefined],
      ]) {
        const other = await open(browser, fleet, { path: "/#/grid", colorScheme, ...(viewport ? { viewport } : {}) });
        await other.page.getByRole("row", { name: /running chromium:grid-1/ }).waitFor();
        await picture(other.page, `grid-${width}-${colorScheme}`);
        assert.deepEqual(await seriousFindings(other.page, AXE), [], `${colorScheme} ${width}`);
        await other.context.close();
      }
      await picture(page, "grid-1440-light");
      assert.deepEqual(await seriousFindings(page, AXE), []);
      const second = await grid.connect();
      const third = grid.connect();
      await page.getByText(/^1 for chromium, up to [0-9.]+ s$/).waitFor();
      await second.close();
      await (await third).close();
      await until("one session", async () => (await page.getByRole("button", { name: /^End session/ }).count()) === 1);
      const ended = new Promise((resolve) => client.on("disconnected", resolve));
      await session.getByRole("button", { name: /^End session/ }).click();
      await page.getByRole("button", { name: "End it" }).click();
      await ended;
      await page.getByText("No client is connected.").waitFor();
    } finally {
      await grid.stop();
    }
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

// Signing in and starting a run from the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, open, picture, seriousFindings } from "./browser.mjs";
import { Fleet, PATIENCE_MS } from "./fleet.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TOKEN = "a-token-for-tests-only";

describe("an orchestrator with a token and a scenario", { timeout: 10 * PATIENCE_MS }, () => {
  let browser;
  let fleet;
  let view;

  before(async () => {
    browser = await launch();
    fleet = await Fleet.start({ workers: 1, token: TOKEN, scenario: join(import.meta.dirname, "users.toml") });
    view = await open(browser, fleet);
    view.page.setDefaultTimeout(PATIENCE_MS);
  });

  after(async () => {
    await browser?.close();
    await fleet?.stop();
  });

  test("the page asks for the token, refuses a wrong one and keeps none", async () => {
    const { page, context } = view;
    await page.getByRole("dialog", { name: "Sign in" }).waitFor();
    await picture(page, "sign-in-1440-light");
    const field = page.getByLabel(/The token of this orchestrator/);
    const label = page.locator("dialog label > span");
    assert.ok((await label.boundingBox()).height < 45, "the label is a sentence");
    await field.fill("not-the-right-token");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("the token is wrong").waitFor();
    await field.fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("No run yet").waitFor();
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie + window.location.href);
    assert.ok(!kept.includes(TOKEN) && !kept.includes("squall_session"), kept);
    const [cookie] = await context.cookies();
    assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ["squall_session", true, "Strict"]);
  });

  test("a run starts from the form, and the API's refusal of a change appears at its field", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/start`);
    await page.getByRole("button", { name: "Users", exact: true }).click();
    await page.getByLabel("Virtual users").fill("7");
    await page.getByLabel("shelf").fill("2");
    await page.getByText("closed load · 7 users for 5 min").waitFor();
    await picture(page, "start-form-1440-light");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.locator(".chip", { hasText: "Running" }).waitFor();
    await page.locator(".figure", { hasText: "Users" }).locator(".value", { hasText: "7" }).waitFor();
    await page.getByRole("button", { name: "Change load" }).click();
    await page.getByLabel("New number of users").first().fill("2000000");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByRole("alert").getByText("users: 2000000 is more than 1000000").waitFor();
    await page.getByLabel("New number of users").first().fill("9");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("1 of 1 worker").waitFor();
    await page.locator(".figure", { hasText: "Users" }).locator(".value", { hasText: "9" }).waitFor();
  });

  test("resources are added from the form, and each says who holds it", async () => {
    const { page } = view;
    await page.goto(`${fleet.api}/#/resources`);
    await page.getByText("No pool has a resource").waitFor();
    await page.getByLabel("Pool", { exact: true }).fill("no spaces");
    await page.getByRole("button", { name: "Add" }).click();
    await page
      .getByRole("alert")
      .getByText(/no spaces/)
      .waitFor();
    await page.getByLabel("Pool", { exact: true }).fill("accounts");
    await page.getByLabel("How many").fill("5");
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByText("5 added to accounts.").waitFor();
    await page.getByRole("row", { name: /accounts 5 5 0 0/ }).waitFor();
    await page.getByRole("button", { name: "accounts" }).click();
    await page.getByRole("row", { name: /^1 free/ }).waitFor();
    await picture(page, "resources-items-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
  });

  test("the operations of the API are shown, and nothing comes from another host", async () => {
    const { page } = view;
    const answer = await fetch(`${fleet.api}/api/docs`, { redirect: "manual" });
    assert.deepEqual([answer.status, answer.headers.get("location")], [303, "/#/api"]);
    await page.goto(`${fleet.api}/#/api`);
    await page.getByText("/api/v1/tests/current/notes").click();
    await page.getByText('"maxLength": 500').waitFor();
    await picture(page, "api-1440-light");
    assert.deepEqual(await seriousFindings(page, AXE), []);
  });

  test("a page whose session has ended asks for the token again, whatever key is pressed", async () => {
    const { page, context } = view;
    await context.clearCookies();
    await page.goto(`${fleet.api}/#/resources`);
    const dialog = page.getByRole("dialog", { name: "Sign in" });
    await dialog.waitFor();
    for (let press = 0; press < 3; press += 1) await page.keyboard.press("Escape");
    await page.getByLabel(/The token of this orchestrator/).fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("row", { name: /accounts 5/ }).waitFor();
    await dialog.waitFor({ state: "detached" });
  });

  test("no script failed, and nothing was asked of another host", () => {
    assert.deepEqual(view.problems, []);
  });
});

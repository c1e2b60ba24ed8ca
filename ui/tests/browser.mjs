// Chromium's headless shell, driven by playwright-core, and pages that fail a test on any error or on
// any request to another host.

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const PROGRAMS = ["/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium"];
const PICTURES = join(import.meta.dirname, "../../target/ui-pictures");

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"];
// A page that does not come from the server's address may not connect to it otherwise.
const DISK_ARGS = ["--disable-features=LocalNetworkAccessChecks"];

export const WIDE = { width: 1440, height: 900 };
export const NARROW = { width: 420, height: 900 };

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? PROGRAMS.find(existsSync);
  if (!executablePath) throw new Error("no Chromium: apt-get install chromium-headless-shell");
  mkdirSync(PICTURES, { recursive: true });
  return chromium.launch({ executablePath, args: [...ARGS, ...(process.env.UI_DIST ? DISK_ARGS : [])] });
}

/** A page of the fleet. `problems` gets errors of scripts, CSP reports and foreign requests. */
export async function open(browser, fleet, { viewport = WIDE, colorScheme = "light", path = "/" } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => {
    // A server that is away is part of some tests.
    const expected = /ERR_CONNECTION_REFUSED|WebSocket connection to|status of 401|status of 4\d\d|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/;
    if (message.type() === "error" && !expected.test(message.text())) problems.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(fleet.api) && !request.url().startsWith("data:")) problems.push(`foreign request: ${request.url()}`);
  });
  if (process.env.UI_DIST) await serveFromDisk(page, fleet);
  await page.goto(fleet.api + path);
  return { page, problems, context };
}

/** Replaces the files that the server embeds, to try changes of the UI without building the server. */
async function serveFromDisk(page, fleet) {
  const file = (path) => join(process.env.UI_DIST, path);
  await page.route(`${fleet.api}/`, (route) => route.fulfill({ path: file("index.html") }));
  await page.route(`${fleet.api}/assets/*`, (route) => route.fulfill({ path: file(new URL(route.request().url()).pathname) }));
}

/** Writes a picture when every chart on the screen is drawn, which takes several frames. */
export async function picture(page, name) {
  await page.waitForFunction(() => {
    const drawnOrHidden = (chart) => chart.childElementCount > 0 || chart.getBoundingClientRect().top > innerHeight;
    return [...document.querySelectorAll(".chart")].every(drawnOrHidden);
  });
  // What was drawn last is on the screen two frames later.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

/** How many pixels the page scrolls sideways in a window of 320 px. */
export async function sidewaysAt320(page) {
  const before = page.viewportSize();
  await page.setViewportSize({ width: 320, height: 700 });
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  await page.setViewportSize(before);
  return sideways;
}

/** Violations of axe's rules with serious or critical impact. */
export async function seriousFindings(page, axeSource) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

// Remakes docs/img/web-ui.png: Live during a run in which the shop freezes for a moment.
// `SQUALL=target/release/squall node ui/tests/picture.mjs`, after `make ui` and
// `scripts/ui-tools test`.

import { join } from "node:path";
import { launch, open } from "./browser.mjs";
import { Fleet, until } from "./fleet.mjs";

const SECONDS = 75;
const browser = await launch();
const fleet = await Fleet.start({ workers: 3 });
try {
  const { page } = await open(browser, fleet, { path: "/#/live" });
  await fleet.startRun(join(import.meta.dirname, "picture.toml"));
  const elapsed = async () => (await fleet.get("/api/v1/tests/current")).elapsed_s ?? 0;
  await until("the load is steady", async () => (await elapsed()) > 40);
  await fetch(`${fleet.target}/freeze/1200`);
  await until("the picture's time", async () => (await elapsed()) > SECONDS);
  await page.locator(".threshold").first().waitFor();
  await page.screenshot({ path: join(import.meta.dirname, "../../docs/img/web-ui.png") });
} finally {
  await browser.close();
  await fleet.stop();
}

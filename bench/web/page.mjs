// What the page costs a browser: 500 metrics, an hour of seconds, one message each second over a real
// WebSocket. It prints main-thread CPU per update, long tasks, memory and bytes; it asserts nothing. Run
// it after `make ui` and `scripts/ui-tools test`: node bench/web/page.mjs [seconds]
// With TRACE=FOLDER it also writes Chromium's traces of each page: while it loads, and of its updates. DIST
// names another folder of built files, to compare two builds in turn, and PAGE (live, metrics) one page.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");
const { chromium } = createRequire(join(ROOT, "ui/package.json"))("playwright-core");
const DIST = process.env.DIST ?? join(ROOT, "crates/squall-web/dist");
const GOLDEN = join(ROOT, "crates/squall-web/src/live/golden");
const SECONDS = Number(process.argv[2] ?? 30);
const METRICS = 500;
const HISTORY = 3600;
/** As in crates/squall-web/src/live/live_feed.rs. */
const TABLE_PARTS = 5;
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };
const CATEGORIES = ["devtools.timeline", "toplevel", "v8", "blink", "cc", "disabled-by-default-v8.gc", "disabled-by-default-v8.cpu_profiler"];
const KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** Time to read the clock of the page before the next update. */
const READ_MS = 200;
/** Seconds from the first message to the first one that is measured. */
const SETTLE_S = 5;

const golden = (name) => JSON.parse(readFileSync(join(GOLDEN, `${name}.json`), "utf8"));
const noise = (base) => Math.round(base * (0.8 + 0.4 * Math.random()));
const range = (length, make) => Array.from({ length }, (_, index) => make(index));

/** Made-up messages of the real form. */
class Messages {
  #hello = golden("hello");
  #names = range(METRICS, (id) => [id, `GET /api/products/${id}`, "request"]);
  #t = HISTORY;

  #row(t) {
    return this.#hello.columns.map((name) => (name === "t" ? t : /p\d|max|lag/.test(name) ? noise(40_000) : noise(1500)));
  }

  #heat() {
    return range(40, (index) => [100 + index, noise(30)]).flat();
  }

  /** The metrics of one part of the table; the server sends one part each second. */
  #table(place, parts) {
    // Requests of a run only grow, so the order of the metrics stays.
    const requests = (id) => this.#t * (METRICS - id);
    const row = (id) => this.#hello.table_columns.map((name) => (name === "id" ? id : name === "requests" ? requests(id) : noise(20_000)));
    const rows = () => [-1, ...this.#names.keys()].filter((id) => (id + 1) % parts === place).map(row);
    return { ...golden("snapshot").table, part: [place, parts], total: rows(), window: rows() };
  }

  first() {
    const rows = range(HISTORY, (index) => this.#row(index + 1));
    const seconds = this.#hello.columns.map((_, column) => rows.map((row) => row[column]));
    const cpu = range(HISTORY, () => noise(40));
    const run = { finished: false, run: "r1", metrics: this.#names, seconds, cpu, failures: [], elapsed_s: HISTORY };
    const heat = seconds[0].map((t) => [t, this.#heat()]);
    const trends = this.#names.map(([id]) => [id, seconds[0].slice(-60), seconds[8].slice(-60)]);
    const plan = { name: "bench", target: "http://127.0.0.1", model: "open", driven_by: "rate", stages: [[7200, 1500, 1500]], duration_s: 7200, warm_up_s: 0, iterations: null, max_users: 100, started_ms: 0, until_stopped: false };
    const state = { type: "state", store_up: true, phase: "RUNNING", epoch: 1, revision: 1, run: "r1", paused: false, stop: null, plan, result: null };
    const history = (name, values, size) => range(Math.ceil(values.length / size), (part) => ({ type: "history", run: "r1", [name]: values.slice(part * size, (part + 1) * size) }));
    const snapshot = { ...golden("snapshot"), ...run, table: this.#table(0, 1) };
    return [this.#hello, state, snapshot, ...history("heat", heat, 600), ...history("trends", trends, 125)];
  }

  /** What the server sends for one closed second. */
  next() {
    this.#t += 1;
    const metrics = this.#names.flatMap(([id]) => [id, noise(3), noise(60_000)]);
    const second = { ...golden("second"), run: "r1", elapsed_s: this.#t, row: this.#row(this.#t), cpu: noise(40), heat: this.#heat(), failures: [["HTTP_503", noise(5)]], new_metrics: [], metrics };
    return [second, { type: "table", run: "r1", ...this.#table(this.#t % TABLE_PARTS, TABLE_PARTS) }, golden("fleet")];
  }
}

/** A text as one WebSocket frame of a server. */
function frame(text) {
  const body = Buffer.from(text);
  const head = body.length < 65_536 ? Buffer.alloc(4) : Buffer.alloc(10);
  head[0] = 0x81;
  if (body.length < 126) return Buffer.concat([Buffer.from([0x81, body.length]), body]);
  head[1] = body.length < 65_536 ? 126 : 127;
  if (head[1] === 126) head.writeUInt16BE(body.length, 2);
  else head.writeBigUInt64BE(BigInt(body.length), 2);
  return Buffer.concat([head, body]);
}

/** What the server has sent. `update` is called before the messages of a second. */
const sent = { bytes: 0, update: () => undefined };

/** The next time at which the server is about to send a second. */
const nextUpdate = () => new Promise((resolve) => (sent.update = resolve));

function serve() {
  const server = createServer((request, response) => {
    const path = request.url === "/" ? "/index.html" : request.url;
    try {
      const body = readFileSync(join(DIST, path));
      response.writeHead(200, { "content-type": TYPES[path.split(".").at(-1)] ?? "text/plain" }).end(body);
    } catch {
      response.writeHead(404).end("{}");
    }
  });
  server.on("upgrade", (request, socket) => {
    const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + KEY_SUFFIX).digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    const messages = new Messages();
    const send = (message) => {
      const data = frame(JSON.stringify(message));
      sent.bytes += data.length;
      socket.write(data);
    };
    messages.first().forEach(send);
    const timer = setInterval(() => {
      sent.update();
      setTimeout(() => messages.next().forEach(send), READ_MS);
    }, 1000);
    for (const end of ["close", "error"]) socket.on(end, () => clearInterval(timer));
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

/** Proportional set size of the largest renderer, in MB. */
async function rendererPss(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const pss = ({ id }) => Number(readFileSync(`/proc/${id}/smaps_rollup`, "utf8").match(/^Pss:\s+(\d+)/m)?.[1] ?? 0);
  return Math.max(...processInfo.filter(({ type }) => type === "renderer").map(pss)) / 1024;
}

/** Milliseconds that the main thread of a page has worked. */
async function clockOf(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async (name) => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find((metric) => metric.name === name).value;
  };
}

function percentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)];
}

async function measure(browser, address, name) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  page.on("pageerror", (error) => console.error(String(error)));
  await page.addInitScript(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => globalThis.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ["longtask"] });
  });
  const metric = await clockOf(page);
  let tracing = false;
  /** Ends the trace before, if any, and begins one of `part`. */
  const trace = async (part) => {
    if (!process.env.TRACE) return;
    if (tracing) await browser.stopTracing();
    tracing = part !== null;
    if (tracing) await browser.startTracing(page, { path: join(process.env.TRACE, `${name}-${part}.json`), categories: CATEGORIES });
  };
  await trace("load");
  await page.goto(address);
  await page.locator(".metrics tbody tr").first().waitFor();
  await page.waitForTimeout(SETTLE_S * 1000);
  const first = await page.evaluate(() => globalThis.longTasks.splice(0));
  await trace("updates");
  await nextUpdate();
  const [from, bytes] = [Date.now(), sent.bytes];
  const costs = [];
  // Read between two updates, so that each figure is the cost of one.
  for (let before = await metric("TaskDuration"); costs.length < SECONDS; ) {
    await nextUpdate();
    const after = await metric("TaskDuration");
    costs.push((after - before) * 1000);
    before = after;
  }
  await trace(null);
  const rate = (sent.bytes - bytes) / (Date.now() - from);
  const long = await page.evaluate(() => globalThis.longTasks);
  const rows = await page.locator(".metrics tbody tr").count();
  const mean = costs.reduce((sum, cost) => sum + cost, 0) / costs.length;
  console.log(
    `${name}: ${mean.toFixed(1)} ms of main thread per second (median ${percentile(costs, 0.5).toFixed(1)}, p95 ${percentile(costs, 0.95).toFixed(1)}, max ${Math.max(...costs).toFixed(1)}), ` +
      `${long.length} tasks over 50 ms (${long.map(Math.round).join(" ")}), first ${first.map(Math.round).join(" ")} ms, ` +
      `${rate.toFixed(1)} kB/s, ${rows} rows in the document, ${((await metric("JSHeapUsedSize")) / 1e6).toFixed(0)} MB heap, ${(await rendererPss(browser)).toFixed(0)} MB PSS`,
  );
  await page.close();
}

const server = await serve();
const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/lib/chromium/chromium-headless-shell", args: ["--no-sandbox", "--disable-gpu"] });
try {
  for (const [name, path] of [["live", "/"], ["metrics", "/#/metrics"]]) {
    if (process.env.PAGE && process.env.PAGE !== name) continue;
    const browser = await launch();
    try {
      await measure(browser, `http://127.0.0.1:${server.address().port}${path}`, name);
    } finally {
      await browser.close();
    }
  }
} finally {
  server.close();
  server.closeAllConnections();
}

// What viewers cost an orchestrator: CPU and memory of its process without readers of the live feed,
// with 100 readers, and with 100 that stopped reading, during a run of 500 metrics. The age of the latest
// second says whether they slow the collector. It prints the figures and asserts nothing.
// SQUALL=target/release/squall node bench/web/viewers.mjs [viewers [metrics]]

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Fleet, until } from "../../ui/tests/fleet.mjs";

const VIEWERS = Number(process.argv[2] ?? 100);
const METRICS = Number(process.argv[3] ?? 500);
const SECONDS = 15;
const TICKS_PER_S = 100;

/** CPU seconds and resident megabytes of a process. */
function usage(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  const resident = Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * 4096;
  return { cpu: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S, mb: resident / 1e6 };
}

/** Opens the feed and counts what arrives. */
function view(api, counted) {
  const { hostname, port } = new URL(api);
  const socket = connect(Number(port), hostname);
  socket.write(
    "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  );
  socket.on("data", (data) => {
    counted.bytes += data.length;
  });
  return socket;
}

const SECOND = /"type":"second","run":"[^"]*","elapsed_s":([\d.]+),"row":\[(\d+),/g;

/** A viewer that notes how old each second is when the orchestrator sends it. */
function watchAges(api, ages) {
  let text = "";
  const socket = view(api, { bytes: 0 });
  socket.on("data", (data) => {
    text += data.toString("latin1");
    for (const [, elapsed, t] of text.matchAll(SECOND)) ages.push(Number(elapsed) - Number(t));
    // The beginning of a message may be at the end of the text.
    text = text.slice(-200).replaceAll(SECOND, "");
  });
  return socket;
}

/** A scenario in which each metric has a request per second. */
function scenario(folder) {
  const file = join(folder, "many.toml");
  const tasks = Array.from({ length: METRICS }, (_, id) => `[[task]]\nname = "GET /api/products/${id}"\nget = "/"\n`);
  writeFileSync(file, `name = "many"\ntarget = "http://127.0.0.1:1"\n\n[load]\nrate = "${METRICS}/s"\nfor = "10m"\n\n${tasks.join("\n")}`);
  return file;
}

async function measure(fleet, counted, ages) {
  const pid = fleet.pid("orchestrator");
  ages.length = 0;
  const [before, bytes, start] = [usage(pid), counted.bytes, Date.now()];
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
  const [after, seconds] = [usage(pid), (Date.now() - start) / 1000];
  return { cpu: ((after.cpu - before.cpu) / seconds) * 100, mb: after.mb, kb: (counted.bytes - bytes) / seconds / 1000, age: Math.max(...ages), seconds: ages.length };
}

const show = (name, { cpu, mb, kb, age, seconds }) =>
  console.log(`${name}: ${cpu.toFixed(1)} % of a core, ${mb.toFixed(0)} MB, ${(kb / VIEWERS).toFixed(1)} kB/s each, ${seconds} seconds at most ${age.toFixed(1)} s old`);

const settle = () => new Promise((resolve) => setTimeout(resolve, 3000));
const folder = mkdtempSync(join(tmpdir(), "squall-viewers-"));
const fleet = await Fleet.start({ workers: 1 });
try {
  await fleet.startRun(scenario(folder));
  await until("the run is under way", async () => ((await fleet.get("/api/v1/tests/current")).elapsed_s ?? 0) > 0);
  // The orchestrator keeps the latest minute in detail, so its memory grows until then.
  await new Promise((resolve) => setTimeout(resolve, 70_000));
  const [counted, ages] = [{ bytes: 0 }, []];
  const probe = watchAges(fleet.api, ages);
  await settle();
  show("without other viewers", await measure(fleet, counted, ages));
  const sockets = Array.from({ length: VIEWERS }, () => view(fleet.api, counted));
  await settle();
  show(`${VIEWERS} viewers`, await measure(fleet, counted, ages));
  for (const socket of sockets) socket.pause();
  await settle();
  show(`${VIEWERS} viewers that do not read`, await measure(fleet, counted, ages));
  for (const socket of [...sockets, probe]) socket.destroy();
} finally {
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
}

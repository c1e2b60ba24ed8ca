// What viewers cost an orchestrator: CPU and memory of its process with 0 and with 100 readers of the
// live feed during a run. It prints the figures and asserts nothing.
// SQUALL=target/release/squall node bench/web/viewers.mjs [viewers]

import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { Fleet, until } from "../../ui/tests/fleet.mjs";

const VIEWERS = Number(process.argv[2] ?? 100);
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

async function measure(pid, counted) {
  const [before, bytes] = [usage(pid), counted.bytes];
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
  const after = usage(pid);
  return { cpu: ((after.cpu - before.cpu) / SECONDS) * 100, mb: after.mb, kb: (counted.bytes - bytes) / SECONDS / 1000 };
}

const fleet = await Fleet.start({ workers: 1 });
try {
  await fleet.startRun(join(import.meta.dirname, "../../ui/tests/shop.toml"));
  await until("the run is under way", async () => ((await fleet.get("/api/v1/tests/current")).elapsed_s ?? 0) > 5);
  const pid = fleet.pid("orchestrator");
  const counted = { bytes: 0 };
  const alone = await measure(pid, counted);
  const sockets = Array.from({ length: VIEWERS }, () => view(fleet.api, counted));
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const watched = await measure(pid, counted);
  console.log(`without viewers: ${alone.cpu.toFixed(1)} % of a core, ${alone.mb.toFixed(0)} MB`);
  console.log(`${VIEWERS} viewers: ${watched.cpu.toFixed(1)} % of a core, ${watched.mb.toFixed(0)} MB, ${(watched.kb / VIEWERS).toFixed(1)} kB/s each`);
  for (const socket of sockets) socket.destroy();
} finally {
  await fleet.stop();
}

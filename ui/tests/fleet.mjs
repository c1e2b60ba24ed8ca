// A real fleet for browser tests: `squall up`, and `squall target` as the shop under test. Each has its
// own folder and ports, and ends with the test.

import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const run = promisify(execFile);
const SQUALL = process.env.SQUALL ?? join(import.meta.dirname, "../../target/debug/squall");
/** A time that a busy machine does not reach. */
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 60_000);

/** Calls `look` until it returns something other than null, undefined or false. */
export async function until(what, look) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`this did not happen in ${PATIENCE_MS / 1000} s: ${what}`);
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Fleet {
  #folder;
  #target;
  #env;
  #orchestrator;
  #extra = [];

  static async start({ workers = 3, token = null, scenario = null, history = false, scenarios = false, extra = [] } = {}) {
    const fleet = new Fleet();
    fleet.#folder = mkdtempSync(join(tmpdir(), "squall-ui-"));
    fleet.#env = { ...process.env, XDG_RUNTIME_DIR: fleet.#folder, ...(token ? { SQUALL_TOKEN: token } : {}) };
    await fleet.#startTarget();
    const listen = `127.0.0.1:${await freePort()}`;
    fleet.api = `http://${listen}`;
    fleet.headers = token ? { Authorization: `Bearer ${token}` } : {};
    const args = ["up", "--workers", String(workers), "--listen", listen];
    if (scenario) args.push("--scenario", fleet.#copyScenario(scenario));
    fleet.history = join(fleet.#folder, "runs");
    if (history) args.push("--history", fleet.history);
    fleet.scenarios = join(fleet.#folder, "scenarios");
    if (scenarios) {
      mkdirSync(fleet.scenarios);
      args.push("--scenarios", fleet.scenarios);
    }
    fleet.#extra = extra;
    await fleet.squall(...args, ...extra);
    return fleet;
  }

  async #startTarget() {
    this.#target = spawn(SQUALL, ["target", "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    for (const stream of [this.#target.stdout, this.#target.stderr]) {
      stream.on("data", (data) => {
        text += data;
      });
    }
    this.target = await until("the shop listens", () => text.match(/http:\/\/[0-9.:]+/)?.[0]);
  }

  /** A copy of a scenario file that names this fleet's shop. */
  #copyScenario(file) {
    const copy = join(this.#folder, "scenario.toml");
    writeFileSync(copy, readFileSync(file, "utf8").replace(/^target = .*/m, `target = "${this.target}"`));
    return copy;
  }

  /** Runs a squall command with this fleet's folder. */
  async squall(...args) {
    const { stdout } = await run(SQUALL, args, { env: this.#env });
    return stdout;
  }

  async startRun(file, ...args) {
    await this.squall("test", "start", file, "--target", this.target, "--api", this.api, ...args);
  }

  /** Starts a squall command that serves a page, and waits until it says where. */
  async serve(...args) {
    const child = spawn(SQUALL, args, { env: this.#env, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        text += data;
      });
    }
    const ended = new Promise((resolve) => child.on("close", resolve));
    const api = await until(`the page of squall ${args[0]}`, () => text.match(/http:\/\/127\.0\.0\.1:\d+(?=\/)/)?.[0]);
    return { api, child, ended, output: () => text };
  }

  /** The record of `squall up`. */
  #state() {
    return JSON.parse(readFileSync(join(this.#folder, "squall/fleet.json"), "utf8"));
  }

  /** The pid of a process of the fleet, such as `worker-2`. */
  pid(role) {
    return this.#state().processes.find((process) => process.role === role).pid;
  }

  /** The address of the fleet's Redis server. */
  redis() {
    return this.#state().store.redis;
  }

  async redisCli(...words) {
    const { hostname, port, password } = new URL(this.redis());
    const { stdout } = await run("redis-cli", ["-e", "-h", hostname, "-p", port, "-a", password, "--no-auth-warning", ...words]);
    return stdout;
  }

  /** Starts a program of the fleet, and waits until its output has what `found` looks for. */
  async #start(args, found) {
    const child = spawn(SQUALL, args, { env: this.#env, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        text += data;
      });
    }
    const stop = async () => {
      const ended = new Promise((resolve) => child.on("close", resolve));
      child.kill();
      await ended;
    };
    return { stop, found: await until(`squall ${args.join(" ")}: ${text}`, () => text.match(found)?.[0]) };
  }

  /** Starts the orchestrator again at its address, after it was killed. */
  async restartOrchestrator() {
    const args = ["orchestrator", "--redis", this.redis(), "--listen", new URL(this.api).host, "--history", this.history, ...this.#extra];
    this.#orchestrator = await this.#start(args, /serves the API/);
  }

  /** A server and a worker of a browser grid on the fleet's Redis server. */
  async startGridWorker() {
    const server = await this.#start(["grid", "serve", "--redis", this.redis(), "--listen", "127.0.0.1:0"], /127\.0\.0\.1:\d+/);
    const playwright = join(import.meta.dirname, "../node_modules/playwright-core");
    const args = ["grid", "worker", "--redis", this.redis(), "--id", "grid-1", "--slots", "2", "--playwright", playwright];
    const worker = await this.#start([...args, "--arg=--no-sandbox"], /grid-1/);
    return {
      connect: () => chromium.connect(`ws://${server.found}/`),
      stop: async () => {
        await worker.stop();
        await server.stop();
      },
    };
  }

  async get(path) {
    const response = await fetch(this.api + path, { headers: this.headers });
    return response.json();
  }

  async stop() {
    await this.#orchestrator?.stop();
    await this.squall("down").catch(() => undefined);
    this.#target?.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

// Starts and ends browsers with Playwright for a Squall grid worker, which starts this script and
// talks to it in JSON lines: requests on standard input, answers and events on standard output.
// It decides nothing. When its input ends, it kills all browsers, removes the folder and exits, so no
// browser outlives its worker.
//
// node host.js PLAYWRIGHT_DIR BROWSER FOLDER
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');

const [playwrightDir, browserName, folder] = process.argv.slice(2);
const browsers = new Map();
// How long the end waits for a launch and for killed browsers.
const END_MS = 2000;

// A worker that was killed reads nothing more; the browsers and the folder still have to go.
process.stdout.on('error', () => {});

function send(message) {
  process.stdout.write(JSON.stringify(message) + '\n');
}

let playwright;
try {
  playwright = require(path.resolve(playwrightDir));
  send({ event: 'ready' });
} catch (error) {
  send({ event: 'failed', error: String(error.message).split('\n')[0] });
  process.exit(1);
}
const browserType = playwright[browserName];

function killGroup(pid) {
  try { process.kill(-pid, 'SIGKILL'); } catch { /* it has ended already */ }
}

async function launch({ id, executable, args, sandbox, socket, dir, timeout }) {
  // Playwright puts profiles and artifacts into the temporary folder of the moment.
  process.env.TMPDIR = dir;
  const server = await browserType.launchServer({
    executablePath: executable || undefined,
    args, chromiumSandbox: sandbox, headless: true, timeout,
    handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false,
    // A string is passed to `listen` of the HTTP server, so this is a Unix socket that no page can
    // open.
    port: socket, wsPath: '/browser',
  });
  const pid = server.process().pid;
  browsers.set(id, { server, pid, socket });
  server.on('close', (code, signal) => {
    browsers.delete(id);
    send({ event: 'closed', id, code, signal });
  });
  return { pid };
}

async function probe({ id }) {
  const browser = browsers.get(id);
  // The connection is kept: to connect takes more than twice the CPU of the rest.
  if (!browser.client?.isConnected()) {
    browser.client = await browserType.connect(`ws+unix://${browser.socket}:/browser`, { timeout: 30000 });
  }
  const context = await browser.client.newContext();
  await context.close();
  return {};
}

async function kill({ id }) {
  const browser = browsers.get(id);
  if (browser) {
    killGroup(browser.pid);
    await browser.server.kill();
  }
  return {};
}

const operations = { launch, probe, kill };
// One launch at a time, because launches share the variable TMPDIR.
let launching = Promise.resolve();

async function answer(request) {
  try {
    let work;
    if (request.op === 'launch') {
      work = launching.then(() => launch(request));
      launching = work.catch(() => {});
    } else {
      work = operations[request.op](request);
    }
    send({ answer: request.request, ...(await work) });
  } catch (error) {
    send({ answer: request.request, error: String(error && error.message || error) });
  }
}

const input = readline.createInterface({ input: process.stdin });
input.on('line', line => answer(JSON.parse(line)));
input.on('close', end);

function sleep(ms) {
  return new Promise(resolve => setTimeout(resolve, ms));
}

function isAlive(pid) {
  try { return process.kill(-pid, 0); } catch { return false; }
}

async function end() {
  const deadline = Date.now() + END_MS;
  const killed = new Set();
  const killAll = () => {
    for (const { pid } of browsers.values()) {
      killGroup(pid);
      killed.add(pid);
    }
  };
  killAll();
  // A browser that is being launched is in no list yet.
  await Promise.race([launching, sleep(END_MS)]);
  killAll();
  // A killed process may write to the folder until it has ended.
  while ([...killed].some(isAlive) && Date.now() < deadline) await sleep(5);
  // A host that is confined may empty the folder, and not remove it.
  try { fs.rmSync(folder, { recursive: true, force: true }); } catch { /* the worker removes the rest */ }
  process.exit(0);
}

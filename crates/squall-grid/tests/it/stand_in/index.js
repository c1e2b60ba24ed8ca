// A stand-in for Playwright's Firefox and WebKit, which Debian does not have: a server on a Unix socket that accepts
// WebSockets and sends back the bytes that it gets. It drives no browser.
'use strict';
const { spawn } = require('child_process');
const { EventEmitter } = require('events');
const crypto = require('crypto');
const http = require('http');

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

async function launchServer({ port }) {
  const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
  const server = http.createServer();
  server.on('upgrade', (request, socket) => {
    const accept = crypto.createHash('sha1').update(request.headers['sec-websocket-key'] + GUID).digest('base64');
    socket.on('error', () => {});
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    socket.on('data', frame => {
      // Short masked text frames only.
      if ((frame[0] & 0x0f) !== 1) return socket.end();
      const mask = frame.subarray(2, 6), text = frame.subarray(6).map((byte, at) => byte ^ mask[at % 4]);
      socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
    });
  });
  await new Promise(resolve => server.listen(port, resolve));
  const events = new EventEmitter();
  child.on('exit', (code, signal) => { server.close(); events.emit('close', code, signal); });
  events.process = () => child;
  events.kill = async () => { child.kill('SIGKILL'); };
  return events;
}

async function connect() {
  return { newContext: async () => ({ close: async () => {} }), close: async () => {} };
}

exports.chromium = exports.firefox = exports.webkit = { launchServer, connect };

// Keeps one WebSocket to /api/v1/live open and says how fresh its data is. It understands no message
// but their arrival; the store applies them.

import type { Message } from "./messages";
import { reconnectDelay } from "./reconnect";

/** Without any message for this long the figures count as stale: the server sends one each second. */
export const SILENCE_MS = 3000;
/** A busy server may take this long to greet; giving up sooner would only ask it again. */
const GREETING_MS = 10_000;

export interface ConnectionEvents {
  onMessage(message: Message): void;
  /** The connection was refused or ended. */
  onClosed(): void;
  /** What the page already has. */
  resumeFrom(): { run: string; since: number } | null;
}

export class Connection {
  private socket: WebSocket | null = null;
  private attempt = 0;
  private startedAt = 0;
  private greeted = false;
  private timer: number | undefined;
  /** When the next attempt is due; null while connected or connecting. */
  retryAt: number | null = null;
  lastMessageAt: number | null = null;

  constructor(private readonly events: ConnectionEvents) {
    const wake = (): void => {
      if (document.visibilityState === "visible" && this.retryAt !== null) this.connect();
    };
    document.addEventListener("visibilitychange", wake);
    window.addEventListener("online", wake);
    // A connection can end without any sign, so silence ends it too.
    window.setInterval(() => {
      const since = Math.max(this.lastMessageAt ?? 0, this.startedAt);
      if (this.socket && Date.now() - since > (this.greeted ? SILENCE_MS : GREETING_MS)) this.lose(this.socket);
    }, 1000);
  }

  /** Milliseconds without a message; null if there was none yet. */
  silence(now: number): number | null {
    return this.lastMessageAt === null ? null : now - this.lastMessageAt;
  }

  connect(): void {
    window.clearTimeout(this.timer);
    this.retryAt = null;
    this.close();
    const address = new URL("/api/v1/live", window.location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const known = this.events.resumeFrom();
    if (known) address.search = new URLSearchParams({ run: known.run, since: String(known.since) }).toString();
    const socket = new WebSocket(address);
    this.socket = socket;
    this.startedAt = Date.now();
    this.greeted = false;
    socket.onmessage = ({ data }) => {
      if (this.socket !== socket) return;
      this.attempt = 0;
      this.greeted = true;
      this.lastMessageAt = Date.now();
      this.events.onMessage(JSON.parse(String(data)) as Message);
    };
    socket.onclose = () => this.lose(socket);
  }

  /** Plans the next attempt after `socket` has ended. */
  private lose(socket: WebSocket): void {
    if (this.socket !== socket) return;
    this.close();
    const wait = reconnectDelay(this.attempt, Math.random());
    this.attempt += 1;
    this.retryAt = Date.now() + wait;
    this.timer = window.setTimeout(() => this.connect(), wait);
    this.events.onClosed();
  }

  /** Ends the connection without another attempt. */
  stop(): void {
    window.clearTimeout(this.timer);
    this.retryAt = null;
    this.close();
  }

  private close(): void {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }
}

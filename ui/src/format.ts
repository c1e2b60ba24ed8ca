// Numbers and texts as people read them: thousands separated, three digits, a real minus, and no
// invisible characters.

import type { IconName } from "./parts/icons";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const ONE_DECIMAL = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Stands for a value that is not known. */
export const UNKNOWN = "–";
const LONGEST_TEXT = 200;

export const count = (n: number): string => (n >= 0 && n < 1000 ? String(Math.round(n)) : WHOLE.format(n).replace("-", "−"));

/** Three digits, whole from 100 on. */
export function three(n: number): string {
  const size = Math.abs(n);
  if (size >= 100 || n === 0) return count(n);
  const decimals = size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return n.toFixed(decimals).replace("-", "−");
}

/** At most one decimal, for shares of a machine and ages. */
export const short = (n: number): string => (n >= 10 || n === 0 ? count(n) : n.toFixed(1));

/** A text without decimals that are all 0, for axes: 75.0/s is 75/s. */
export const withoutZeros = (text: string): string => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

/** A level of the load, as a person types it: 60, not 60.0. */
export const levelText = (level: number): string => withoutZeros(three(level));

/** Microseconds as milliseconds with one decimal, for tables. */
export const tableMs = (us: number): string => (us >= 0 && us < 999_950 ? (us / 1000).toFixed(1) : ONE_DECIMAL.format(us / 1000));

/** Microseconds as [number, unit]. */
export function time(us: number): [string, string] {
  if (us >= 10_000_000) return [three(us / 1e6), "s"];
  return [three(us / 1000), "ms"];
}

export const timeText = (us: number): string => time(us).join(" ");

/** Microseconds on an axis: in seconds from one on, as 1 s above 100 ms. */
export const tickTime = (us: number): string => (us >= 1e6 ? `${three(us / 1e6)} s` : timeText(us));

/** A share (0..1) in percent, without the sign. */
export function percent(share: number): string {
  const value = share * 100;
  if (value === 0) return "0";
  return value < 0.01 ? "<0.01" : three(value);
}

/** Seconds as m:ss or h:mm:ss. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (n: number): string => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Seconds in words: 4.5 s, 10 min, 6 min 10 s, 2 h. */
export function length(seconds: number): string {
  if (seconds < 60) return `${levelText(seconds)} s`;
  const whole = Math.round(seconds);
  const [size, large, small] = whole < 3600 ? [60, "min", "s"] : [3600, "h", "min"];
  const rest = Math.floor((whole % size) / (size / 60));
  return `${Math.floor(whole / size)} ${large}${rest > 0 ? ` ${rest} ${small}` : ""}`;
}

export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = n < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3));
  return `${three(n / 1000 ** power)} ${units[power]}`;
}

export const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** A state or verdict in a word, with its colour and icon. */
export interface Chip {
  text: string;
  tone: string;
  icon: IconName;
}

export function verdictChip(verdict: string): Chip {
  const [tone, icon]: [string, IconName] = verdict === "passed" ? ["good", "ok"] : [verdict === "interrupted" ? "warn" : "bad", "no"];
  return { text: capitalized(verdict.replaceAll("_", " ")), tone, icon };
}

// Control characters, zero-width characters, marks that turn the direction of text, and letters without a shape. A
// name that contains them could look like another one.
const INVISIBLE = /[\u034f\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0]/gu;

/** Makes invisible characters visible. */
export const visible = (text: string): string =>
  text.replace(INVISIBLE, (character) => `\u27e8${(character.codePointAt(0) ?? 0).toString(16)}\u27e9`);

/** The beginning of a long text. */
export const shorten = (text: string): string => (text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text);

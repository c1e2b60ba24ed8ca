// The icons of the page, as paths on a grid of 16.

import type { JSX } from "preact";

const PATHS = {
  live: "M1.5 8h3l2-5 3 10 2-5h3",
  table: "M2 3.5h12v9H2zM2 6.5h12M2 9.5h12M6 6.5v6",
  errors: "M8 2.2 14.3 13H1.7zM8 6.4v3.2M8 11.4v.1",
  workers:
    "M3 2.5h10a1 1 0 0 1 1 1V6a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V3.5a1 1 0 0 1 1-1zM3 9h10a1 1 0 0 1 1 1v2.5a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V10a1 1 0 0 1 1-1zM4.5 4.8h.1M4.5 11.3h.1",
  probe: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 8l3-3M8 8h.1",
  pool: "M2.5 4.5c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2zM2.5 4.5v7c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2v-7M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2",
  stream: "M2 4.5h8l-2-2M2 8h12M6 11.5h8l-2 2",
  grid: "M2.5 3h11v10h-11zM2.5 6h11M5 4.5h.1M8 6v7",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  plus: "M8 3v10M3 8h10",
  ok: "m3 8.4 3.2 3.2L13 4.8",
  no: "m4 4 8 8M12 4l-8 8",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  stop: "M4.5 3.5h7a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1h-7a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1z",
  play: "M4.5 3v10l8-5z",
  change: "M2 5h7M13 5h1M2 11h1M7 11h7M11 3.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6M5 9.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 2.5v11M8 5l4.6-.4M8 8h5.4M8 11l4.6.4",
  page: "M4 2.5h5l3 3v8H4zM9 2.5v3h3M6 8.5h4M6 11h4",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13.2h10",
  history: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3.2l2.2 1.6",
  compare: "M5 13V3M2.5 5.5 5 3l2.5 2.5M11 3v10M8.5 10.5 11 13l2.5-2.5",
  dash: "M4 8h8",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, small = false }: { name: IconName; small?: boolean }): JSX.Element {
  return (
    <svg class={small ? "icon small" : "icon"} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo(): JSX.Element {
  return (
    <svg class="logo" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M3 9h11.5a3 3 0 1 0-2.9-3.8M3 13.5h15a2.8 2.8 0 1 1-2.7 3.6M3 18h7" />
    </svg>
  );
}

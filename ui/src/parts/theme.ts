// Light or dark: as the system says, until a person chooses. Charts read the colours from here,
// because a canvas does not know CSS variables.

const KEY = "squall.theme";
const listeners = new Set<() => void>();
const colors = new Map<string, string>();

export type Theme = "light" | "dark";

const systemTheme = (): Theme => (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

export function currentTheme(): Theme {
  const chosen = localStorage.getItem(KEY);
  return chosen === "light" || chosen === "dark" ? chosen : systemTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = currentTheme();
  colors.clear();
  for (const listener of listeners) listener();
}

export function toggleTheme(): void {
  localStorage.setItem(KEY, currentTheme() === "dark" ? "light" : "dark");
  applyTheme();
}

export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A colour of the theme. Reading it from the document is slow, so it is remembered. */
export function color(name: string): string {
  const known = colors.get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colors.set(name, value);
  return value;
}

/** The font of the page, for canvases. */
let family = "";
export function font(weight: number, pixels: number): string {
  family ||= getComputedStyle(document.body).fontFamily;
  return `${weight} ${pixels}px ${family}`;
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);

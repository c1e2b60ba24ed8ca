// The beginning of the page.

import { render } from "preact";
import { App } from "./app";
import { loadPanels } from "./parts/panel";
import { applyTheme } from "./parts/theme";
import { store } from "./store";
import "./style.css";

/** Panels load when the page stands. */
const PANELS_AFTER_MS = 2000;

applyTheme();
store.connection.connect();
void store.checkAccess();
// In a task of its own: the scripts have held the page up already.
window.setTimeout(() => {
  const root = document.getElementById("app");
  if (root) render(<App />, root);
});
window.setTimeout(() => void loadPanels().catch(() => undefined), PANELS_AFTER_MS);

// The beginning of the page.

import { render } from "preact";
import { App } from "./app";
import { applyTheme } from "./parts/theme";
import { store } from "./store";
import "./style.css";

applyTheme();
const root = document.getElementById("app");
if (root) render(<App />, root);
store.connection.connect();
void store.checkAccess();

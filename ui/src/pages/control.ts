// The pages that start runs and show what shares the fleet's Redis server, as one file that loads on
// their first visit.

import "./shared_sheet";
import { addSheet } from "../parts/sheet";
import sheet from "./control.css" with { type: "text" };

export { default as BrowserGrid } from "./grid";
export { default as Start } from "./start";
export { default as Streams } from "./streams";

addSheet(sheet);

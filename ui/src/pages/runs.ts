// The pages of finished runs, as one file that loads on their first visit.

import "./shared_sheet";
import { addSheet } from "../parts/sheet";
import sheet from "./runs.css" with { type: "text" };

export { default as Compare } from "./compare";
export { default as History } from "./history";

addSheet(sheet);

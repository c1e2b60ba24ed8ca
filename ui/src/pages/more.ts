// The panels, and the pages that load on their first visit, as one file: what they share with Live then is one file
// too, and the first paint needs few requests.

import "../parts/flag_marks";
import "./shared_sheet";
import { addSheet } from "../parts/sheet";
import sheet from "./more.css" with { type: "text" };

export { KeyList } from "../key_list";
export { FirstSteps } from "../parts/first_steps";
export { ChangeLoad, StopRun } from "../parts/load_panels";
export { NoteForm } from "../parts/note_form";
export { PageList } from "../parts/page_list";
export { ValueTable } from "../parts/value_table";
export { SignIn } from "../sign_in";
export { default as ApiPage } from "./api";
export { default as Errors } from "./errors";
export { GeneratorCharts } from "./generator_charts";
export { default as Metric } from "./metric";
export { default as Metrics } from "./metrics";
export { default as Probes } from "./probes";
export { default as Resources } from "./resources";
export { default as Workers } from "./workers";

addSheet(sheet);

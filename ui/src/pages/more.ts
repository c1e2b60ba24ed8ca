// The pages that load on their first visit, as one file: what they share with Live then is one file
// too, and the first paint needs few requests.

export { default as ApiPage } from "./api";
export { default as Errors } from "./errors";
export { default as Metric } from "./metric";
export { default as Metrics } from "./metrics";
export { default as Probes } from "./probes";
export { default as Resources } from "./resources";
export { default as Workers } from "./workers";

// The pages of finished runs, as one file that loads on their first visit.

export { default as Compare } from "./compare";
export { default as History } from "./history";

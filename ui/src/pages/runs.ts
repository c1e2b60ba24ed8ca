// The pages of finished runs, as one file that loads on their first visit.

import sheet from "./runs.css" with { type: "text" };

export { default as Compare } from "./compare";
export { default as History } from "./history";

const styles = new CSSStyleSheet();
styles.replaceSync(sheet);
document.adoptedStyleSheets.push(styles);

// Texts of several lines.

import { visible } from "../format";

/** A text of several lines without invisible characters. */
export const lines = (text: string): string => text.split("\n").map(visible).join("\n");

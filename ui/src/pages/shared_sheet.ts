// Adds the style sheet that the further pages share. Each of their files imports this one.

import { addSheet } from "../parts/sheet";
import sheet from "./shared.css" with { type: "text" };

addSheet(sheet);

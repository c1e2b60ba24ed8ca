// The value of a scenario's parameter, from what a person typed.

/** A value with the type of the parameter's default. Without a default it has the type that `--param` would give it. */
export function paramValue(text: string, standard: unknown): unknown {
  const untyped = standard === null || standard === undefined;
  if ((untyped || typeof standard === "boolean") && (text === "true" || text === "false")) return text === "true";
  const number = Number(text);
  // 01234 and 1.0 stay as typed: as numbers they would become other texts.
  const isNumber = typeof standard === "number" || (untyped && String(number) === text);
  return isNumber && Number.isFinite(number) ? number : text;
}

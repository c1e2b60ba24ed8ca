// A choice of a few, of which one is on.

import type { JSX } from "preact";

interface Props<T extends string> {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T | null;
  onChoose: (value: T) => void;
}

export function Segments<T extends string>({ label, options, value, onChoose }: Props<T>): JSX.Element {
  return (
    <fieldset class="segments">
      <legend class="hidden-text">{label}</legend>
      {options.map(([option, text]) => (
        <button type="button" key={option} aria-pressed={option === value} onClick={() => onChoose(option)}>
          {text}
        </button>
      ))}
    </fieldset>
  );
}

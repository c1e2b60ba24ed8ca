//! Verdicts, renderers and run comparison.

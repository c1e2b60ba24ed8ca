//! The default path of the baseline, for `--save-baseline` and `squall compare`.

/// Relative to the working directory.
pub(crate) const DEFAULT_PATH: &str = ".squall/baseline.json";

//! Where a run is kept for later comparison.

/// Relative to the working directory.
pub(crate) const DEFAULT_PATH: &str = ".squall/baseline.json";

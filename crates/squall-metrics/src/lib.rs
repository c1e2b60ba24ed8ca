//! Samples, per-thread recorders and mergeable snapshots.

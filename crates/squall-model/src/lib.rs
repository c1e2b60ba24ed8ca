//! Ids, Plan, load profiles and thresholds of a Squall run.

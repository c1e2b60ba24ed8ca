//! The run: collection, stop rules, outcome.

//! A leader on a real Redis, with workers that only report.

mod shown;
mod stage;

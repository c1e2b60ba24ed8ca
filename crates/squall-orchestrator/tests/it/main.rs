//! A leader on a real Redis, with workers that only report.

mod bad_input;
mod ends;
mod leaders;
mod shown;
mod stage;

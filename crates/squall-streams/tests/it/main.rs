//! Streams against a real server: order, exactly-once, hand-over, failures, faults, tools.

mod checker;
mod matrix;
mod support;

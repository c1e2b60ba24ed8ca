//! The random primitives of cassandra-stress, byte for byte: keys, cells and rows are interchangeable
//! with those of the Java tool only if every draw is equal.
//! It knows neither distributions nor columns. `distribution`, `standard` and `profile` call it.

mod fast_random;
mod java_random;
mod salt;
mod seed_fold;

pub(crate) use fast_random::FastRandom;
pub(crate) use java_random::JavaRandom;
pub(crate) use salt::salt;
pub(crate) use seed_fold::{fold_bytes, fold_number, fold_text};

//! A built-in shop API to try load tests on.

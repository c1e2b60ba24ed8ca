//! Partitioned, ordered stream processing on Redis.

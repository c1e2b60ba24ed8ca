//! Development only: redis-server launcher, targets, fault proxies.

pub mod hostile;
pub mod redis;
pub mod tls;

//! Development only: redis-server launcher, targets, fault proxies.

pub mod hostile;
pub mod proxy;
pub mod redis;
pub mod tls;

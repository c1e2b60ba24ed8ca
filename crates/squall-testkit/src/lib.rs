//! Development only: redis-server launcher, targets, fault proxies, what was told.

pub mod hostile;
pub mod proxy;
pub mod redis;
pub mod tls;
pub mod told;

//! Development only: redis-server launcher, targets, fault proxies, what was told.

pub mod fault_proxy;
pub mod redis;
pub mod scripted_server;
pub mod tls;
pub mod tracing_capture;

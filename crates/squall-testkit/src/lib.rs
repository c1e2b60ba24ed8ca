//! Test helpers: a redis-server launcher, scripted HTTP servers, a fault proxy, certificates and captured log events.
//! Only tests depend on this crate.

pub mod fault_proxy;
pub mod redis;
pub mod scripted_server;
pub mod tls;
pub mod tracing_capture;

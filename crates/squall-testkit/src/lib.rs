//! Test helpers: launchers of Redis and Cassandra, scripted servers, a fault proxy, certificates and
//! captured log events. Only tests depend on this crate.

pub mod cassandra;
pub mod fault_proxy;
pub mod redis;
pub mod scripted_server;
pub mod tls;
pub mod tracing_capture;

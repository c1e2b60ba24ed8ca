//! The API of a fleet: control, live feed, health, over HTTP and WebSocket. Computes no statistics and keeps no state of the run:
//! it asks the [`Fleet`](squall_orchestrator::Fleet) to change the record and shows what a follower has merged.
//!
//! * [`serve`]: the server, on a listener that the caller has bound.
//! * [`WebConfig`]: who may use it, and what `/start_test` starts.
//! * [`TlsFiles`]: certificate and key for HTTPS.
//! * [`router_paths`] and [`OPENAPI`]: what there is, for people and programs; a test holds them together.

mod access_guard;
mod api_metrics;
mod config;
mod error;
mod query;
mod request_body;
mod requests;
mod router;
mod routes;
mod run_watcher;
mod server;
mod tls;
mod vikhry_json;
mod vikhry_probes;

pub use config::{ApiToken, StartableParam, StartableScenario, WebConfig, WebConfigError};
pub use requests::MAX_USERS;
pub use router::{OPENAPI, router_paths};
pub use server::serve;
pub use tls::{TlsError, TlsFiles};

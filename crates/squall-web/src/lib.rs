//! The API of a fleet: control, live feed, health, over HTTP and WebSocket. Computes no statistics and keeps no state of the run:
//! it asks the [`Fleet`](squall_orchestrator::Fleet) to change the record and shows what a follower has merged.
//!
//! * [`serve`]: the server, on a listener that the caller has bound.
//! * [`WebConfig`]: who may use it, and what `/start_test` starts.
//! * [`TlsFiles`]: certificate and key for HTTPS.
//! * [`router_paths`] and [`OPENAPI`]: what there is, for people and programs; a test holds them together.

mod body;
mod config;
mod error;
mod guard;
mod inputs;
mod live;
mod own_metrics;
mod probes;
mod query;
mod router;
mod routes;
mod server;
mod shapes;
mod tls;

pub use config::{ConfigError, Offer, OfferParam, Token, WebConfig};
pub use inputs::MOST_USERS;
pub use router::{OPENAPI, router_paths};
pub use server::serve;
pub use tls::{TlsError, TlsFiles};

//! The API of a fleet over HTTP and WebSocket (control, live feed, health) and the web UI. It computes no
//! statistics and keeps no state of the run: it asks the
//! [`FleetClient`](squall_orchestrator::FleetClient) to change the run record, and shows the
//! numbers that a [`RunAggregator`](squall_orchestrator::RunAggregator) has merged. squall-cli
//! starts it in the orchestrator.
//!
//! * [`serve`]: the server, on a listener that the caller has bound.
//! * [`WebConfig`]: the access rules, and the scenario that `/start_test` starts.
//! * [`TlsFiles`]: certificate and key for HTTPS.
//! * [`router_paths`] and [`OPENAPI`]: the list of routes and their description, equal by test.

mod access_guard;
mod api_metrics;
mod config;
mod cpu_history;
mod error;
mod live;
mod path;
mod query;
mod request_body;
mod requests;
mod router;
mod routes;
mod run_saver;
mod run_watcher;
mod scenario_catalog;
mod server;
mod session;
mod tls;
mod vikhry_json;
mod vikhry_probes;
mod worker_history;

pub use config::{
    AllowedOrigin, ApiToken, MakeResource, ResourceFactory, RunHistory, ServerMode, ShownGrid, ShownStreams,
    StartableParam, StartableScenario, ViewerCount, WebConfig, WebConfigError,
};
pub use requests::MAX_USERS;
pub use router::{OPENAPI, router_paths};
pub use routes::ui::has_ui;
pub use scenario_catalog::{CatalogError, OrderedRun, ScenarioCatalog, ScenarioDescription, SharedCatalog, StartOrder};
pub use server::serve;
pub use tls::{TlsError, TlsFiles};

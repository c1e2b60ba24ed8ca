//! A fast shop to try load tests on: an API, and pages for browsers. `squall target` serves it, and
//! tests of other crates compare reports with its counts (`/stats`, [`TargetServer::requests`]). It
//! keeps no state that grows with use and knows nothing of load tests.

mod endpoint;
mod pages;
mod query;
mod repeating_body;
mod respond;
mod server;
mod shop;
mod stats;

pub use endpoint::{TargetEndpoint, endpoint_guide};
pub use server::{TargetServer, TargetStartError};

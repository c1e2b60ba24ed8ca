//! A fast shop API to try load tests on: `squall target`, and the counting server of other rooms' tests. It keeps no state that
//! grows with use and knows nothing of load tests; what it received is told by `/stats` and [`TargetServer::requests`].

mod endpoint;
mod query;
mod repeating_body;
mod respond;
mod server;
mod shop;
mod stats;

pub use endpoint::{TargetEndpoint, endpoint_guide};
pub use server::{TargetServer, TargetStartError};

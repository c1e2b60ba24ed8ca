//! A fast shop API to try load tests on: `squall target`, and the counting server of other rooms' tests. It keeps no state that
//! grows with use and knows nothing of load tests; what it received is told by `/stats` and [`Target::requests`].

mod content;
mod endpoint;
mod query;
mod respond;
mod server;
mod shop;
mod stats;

pub use endpoint::{Endpoint, guide};
pub use server::{StartError, Target};

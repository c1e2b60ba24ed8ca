//! TLS to the nodes: reads the stores of `-transport`, and carries the driver's connections through TLS.
//! It parses no command line. `database::connect` calls it.

mod client_config;
mod der;
mod jks;
mod node_verifier;
mod private_key;
mod store;
mod tunnel;

pub(crate) use client_config::client_config;
pub use store::TlsStoreError;
pub(crate) use tunnel::{NodeAddresses, TlsTunnel};

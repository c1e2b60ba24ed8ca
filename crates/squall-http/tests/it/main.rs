//! The client against real sockets on loopback.

mod lane;

use squall_http::{Connector, HttpConfig, Prepared, Request};

/// A client with default settings, except for what `change` changes.
fn connector(change: impl FnOnce(&mut HttpConfig)) -> Connector {
    let mut config = HttpConfig::default();
    change(&mut config);
    Connector::new(config).expect("valid settings")
}

/// A GET request.
fn get(connector: &Connector, url: &str) -> Prepared {
    Prepared::new(&Request::get(url).expect("a URL"), connector).expect("a valid request")
}

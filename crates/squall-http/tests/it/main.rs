//! The client against real sockets on loopback.

mod allocations;
mod codings;
mod cookies;
mod faults;
mod http1_connection;
mod http2;
mod keep_alive;
mod proxies;
mod redirects;
mod requests;
mod routes;
mod settings;
mod streaming_response;
mod tls;

use std::time::Duration;

use squall_http::{BodyMode, Connector, HttpConfig, HttpRequest, PreparedRequest, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

/// A client with default settings, modified by `change`.
fn connector(change: impl FnOnce(&mut HttpConfig)) -> Connector {
    let mut config = HttpConfig::default();
    change(&mut config);
    Connector::new(config).expect("valid settings")
}

/// A GET request.
fn get(connector: &Connector, url: &str) -> PreparedRequest {
    PreparedRequest::new(&HttpRequest::get(url).expect("a URL"), connector).expect("a valid request")
}

/// A GET request with a short timeout, for responses that never arrive.
fn get_hastily(connector: &Connector, url: &str) -> PreparedRequest {
    let mut request = HttpRequest::get(url).expect("a URL");
    request.timeout = Some(SHORT);
    PreparedRequest::new(&request, connector).expect("a valid request")
}

/// Status and body of one GET by a new user.
async fn fetch(connector: &Connector, url: &str) -> Result<(u16, String), String> {
    let mut session = Session::new(connector);
    let request = get(connector, url);
    let exchange = session.send(&request, BodyMode::Keep).await;
    match exchange.result {
        Ok(response) => Ok((response.status, String::from_utf8_lossy(response.body()).into_owned())),
        Err(error) => Err(error.code().to_owned()),
    }
}

/// A server that answers every request with these bytes.
fn server(response: &str) -> ScriptedServer {
    ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(response), ServerStep::Restart])
}

/// A short timeout, for tests that wait for it.
const SHORT: Duration = Duration::from_millis(60);

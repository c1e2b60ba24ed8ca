//! The HTTP client of one virtual user: requests rendered once, connections that are reused,
//! responses read to the end.
//!
//! It knows no schedule and no histogram. It sends one request and returns the response, the time
//! of the last byte and the bytes moved. Checks, extraction and recording belong to the caller.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use squall_http::{BodyMode, Connector, HttpConfig, PreparedRequest, HttpRequest, Session};
//!
//! let connector = Connector::new(HttpConfig::default())?;
//! let request = PreparedRequest::new(&HttpRequest::get("http://127.0.0.1:8089/api/products")?, &connector)?;
//! let mut session = Session::new(&connector);
//! let exchange = session.send(&request, BodyMode::Keep).await;
//! match exchange.result {
//!     Ok(response) => println!("{} {} bytes", response.status, response.body().len()),
//!     Err(error) => println!("{}: {error}", error.code()),
//! }
//! # Ok(()) }
//! ```

mod config;
mod connection_stream;
mod connector;
mod cookies;
mod decode;
mod dial;
mod error;
mod http1_connection;
mod http2_connection;
mod origin;
pub mod parse;
mod request;
mod request_timer;
mod response;
mod session;
mod stream_opener;
mod streaming_response;
mod tls;

pub use config::{HttpConfig, HttpVersion, IpFamily, TlsOptions};
pub use connector::Connector;
pub use cookies::Cookies;
pub use error::{ConnectorError, HttpError, HttpErrorCategory, RequestError};
pub use origin::UrlScheme;
pub use request::{HttpRequest, OMIT_HEADER, PreparedRequest, basic_auth};
pub use response::{BodyMode, Exchange, ExchangePhases, HeaderIter, HttpResponse};
pub use session::Session;
pub use stream_opener::StreamOpener;
pub use streaming_response::{StreamingResponse, UpgradedStream};
pub use tls::{TlsClientConfig, websocket_tls};

//! Requests, rendered once into the bytes that travel. Refuses whatever could smuggle a line break into a head.

mod redirect;
mod render;
mod target;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::Method;
use url::Url;

use crate::connector::Connector;
use crate::dial::forwards;
use crate::error::RequestError;
use crate::origin::{Origin, Scheme};
pub use render::ABSENT;
use render::Constant;
pub(crate) use render::percent_decode;

/// What to ask for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Absolute URL; a user and password in it become basic authentication.
    pub url: Url,
    /// Sent in this order, after those that the client sets itself.
    pub headers: Vec<(String, String)>,
    /// Sent with its Content-Length.
    pub body: Bytes,
    /// Instead of [`crate::HttpConfig::timeout`].
    pub timeout: Option<Duration>,
}

impl Request {
    /// A request without headers or body.
    pub fn new(method: Method, url: &str) -> Result<Request, RequestError> {
        let url =
            Url::parse(url).map_err(|error| RequestError::BadUrl { url: url.into(), reason: error.to_string() })?;
        Ok(Request { method, url, headers: Vec::new(), body: Bytes::new(), timeout: None })
    }

    /// A GET request.
    pub fn get(url: &str) -> Result<Request, RequestError> {
        Request::new(Method::GET, url)
    }
}

/// The value of an Authorization header for basic authentication.
pub fn basic_auth(user: &str, password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

/// A request in the form in which it is sent.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: Method,
    pub(crate) timeout: Option<Duration>,
    /// Redirects followed to get here.
    hops: u32,
    connector: Connector,
    constant: Arc<Constant>,
    /// Path and query, encoded.
    target: String,
    /// Head and body.
    wire: Vec<u8>,
    /// Where the jar's cookies go.
    cookie_at: usize,
    /// Where the head's closing line break ends.
    body_at: usize,
    /// Where its own cookies begin, if it has any.
    cookies_from: Option<usize>,
    closes: bool,
}

impl Prepared {
    /// Checks and renders a request.
    pub fn new(request: &Request, connector: &Connector) -> Result<Prepared, RequestError> {
        let origin = Origin::of(&request.url)?;
        if origin.scheme == Scheme::Https {
            connector.tls();
        }
        let forward = forwards(connector, &origin);
        let constant = Constant::new(request, &origin, connector, forward)?;
        let mut prepared = Prepared {
            origin: Arc::new(origin),
            method: request.method.clone(),
            timeout: request.timeout,
            hops: 0,
            connector: connector.clone(),
            constant: Arc::new(constant),
            target: String::new(),
            wire: Vec::new(),
            cookie_at: 0,
            body_at: 0,
            cookies_from: None,
            closes: false,
        };
        let url = &request.url;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        prepared.patch(&path, &[], &request.body)?;
        Ok(prepared)
    }

    /// Renders again into the same buffers, with another path, these headers, and this body. A header stands in for the constant ones
    /// of its name; cookies are joined. A refused patch changes nothing.
    pub fn patch(&mut self, path_and_query: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(), RequestError> {
        for (name, value) in headers {
            render::check(name, value)?;
        }
        target::encode(path_and_query, &mut self.target)?;
        self.render(headers, body);
        Ok(())
    }

    /// The same with the path as it stands: only the headers and the body change.
    pub fn dress(&mut self, headers: &[(&str, &str)], body: &[u8]) -> Result<(), RequestError> {
        for (name, value) in headers {
            render::check(name, value)?;
        }
        self.render(headers, body);
        Ok(())
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Path and query as sent.
    pub fn path_and_query(&self) -> &str {
        &self.target
    }

    /// Its connection is not to be used again.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// The URL as it now stands.
    pub fn url(&self) -> Url {
        let text = format!("{}{}", self.origin, self.target);
        Url::parse(&text).expect("an origin from a URL and an encoded path make a URL")
    }

    /// Head and body as sent, without the jar's cookies.
    pub fn as_bytes(&self) -> &[u8] {
        &self.wire
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.wire[self.body_at..]
    }
}

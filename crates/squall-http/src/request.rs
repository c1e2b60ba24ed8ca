//! Requests, rendered once into the bytes that travel. Refuses whatever could smuggle a line break into a head.

mod path_encoding;
mod redirect;
mod render;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::Method;
use url::Url;

use crate::connector::Connector;
use crate::dial::uses_forward_proxy;
use crate::error::RequestError;
use crate::origin::{Origin, UrlScheme};
use render::FixedHead;
pub use render::OMIT_HEADER;
pub(crate) use render::percent_decode;

/// What to ask for.
#[derive(Debug, Clone)]
pub struct HttpRequest {
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

impl HttpRequest {
    /// A request without headers or body.
    pub fn new(method: Method, url: &str) -> Result<HttpRequest, RequestError> {
        let url =
            Url::parse(url).map_err(|error| RequestError::BadUrl { url: url.into(), reason: error.to_string() })?;
        Ok(HttpRequest { method, url, headers: Vec::new(), body: Bytes::new(), timeout: None })
    }

    /// A GET request.
    pub fn get(url: &str) -> Result<HttpRequest, RequestError> {
        HttpRequest::new(Method::GET, url)
    }
}

/// The value of an Authorization header for basic authentication.
pub fn basic_auth(user: &str, password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

/// A request in the form in which it is sent.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: Method,
    pub(crate) timeout: Option<Duration>,
    /// Redirects followed to get here.
    redirects_followed: u32,
    connector: Connector,
    fixed_head: Arc<FixedHead>,
    /// Path and query, encoded.
    path_and_query: String,
    /// Head and body.
    rendered: Vec<u8>,
    /// Where the jar's cookies go.
    cookie_insert_offset: usize,
    /// Where the head's closing line break ends.
    body_offset: usize,
    /// Where its own cookies begin, if it has any.
    own_cookies_offset: Option<usize>,
    closes_connection: bool,
}

impl PreparedRequest {
    /// Checks and renders a request.
    pub fn new(request: &HttpRequest, connector: &Connector) -> Result<PreparedRequest, RequestError> {
        let origin = Origin::from_url(&request.url)?;
        if origin.scheme == UrlScheme::Https {
            connector.tls();
        }
        let forward = uses_forward_proxy(connector, &origin);
        let constant = FixedHead::new(request, &origin, connector, forward)?;
        let mut prepared = PreparedRequest {
            origin: Arc::new(origin),
            method: request.method.clone(),
            timeout: request.timeout,
            redirects_followed: 0,
            connector: connector.clone(),
            fixed_head: Arc::new(constant),
            path_and_query: String::new(),
            rendered: Vec::new(),
            cookie_insert_offset: 0,
            body_offset: 0,
            own_cookies_offset: None,
            closes_connection: false,
        };
        let url = &request.url;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        prepared.update(&path, &[], &request.body)?;
        Ok(prepared)
    }

    /// Renders again into the same buffers, with another path, these headers, and this body. A header stands in for the constant ones
    /// of its name; cookies are joined. A refused patch changes nothing.
    pub fn update(&mut self, path_and_query: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(), RequestError> {
        for (name, value) in headers {
            render::check_header(name, value)?;
        }
        path_encoding::encode_path(path_and_query, &mut self.path_and_query)?;
        self.render(headers, body);
        Ok(())
    }

    /// The same with the path as it stands: only the headers and the body change.
    pub fn update_keeping_path(&mut self, headers: &[(&str, &str)], body: &[u8]) -> Result<(), RequestError> {
        for (name, value) in headers {
            render::check_header(name, value)?;
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
        &self.path_and_query
    }

    /// Its connection is not to be used again.
    pub(crate) fn closes_connection(&self) -> bool {
        self.closes_connection
    }

    /// The URL as it now stands.
    pub fn url(&self) -> Url {
        let text = format!("{}{}", self.origin, self.path_and_query);
        Url::parse(&text).expect("an origin from a URL and an encoded path make a URL")
    }

    /// Head and body as sent, without the jar's cookies.
    pub fn as_bytes(&self) -> &[u8] {
        &self.rendered
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.rendered[self.body_offset..]
    }
}

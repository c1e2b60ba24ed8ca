//! Requests, rendered once into the bytes to send. Rendering rejects everything that could put a
//! line break into a head.

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

/// A request: method, URL, headers, body.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// Absolute URL; a user and password in it become basic authentication.
    pub url: Url,
    /// Sent in this order, after the client's own headers.
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

/// A request as the bytes to send.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: Method,
    pub(crate) timeout: Option<Duration>,
    /// Number of redirects that led here.
    redirects_followed: u32,
    connector: Connector,
    fixed_head: Arc<FixedHead>,
    /// Path and query, encoded.
    path_and_query: String,
    /// Head and body.
    rendered: Vec<u8>,
    /// Position for the jar's cookies.
    cookie_insert_offset: usize,
    /// End of the head.
    body_offset: usize,
    /// Start of the request's own cookies, if it has any.
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

    /// Renders again into the same buffers, with another path, these headers and this body. A
    /// header replaces constant headers of the same name; cookies are joined. A rejected change
    /// leaves the request as it was.
    pub fn update(&mut self, path_and_query: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(), RequestError> {
        for (name, value) in headers {
            render::check_header(name, value)?;
        }
        path_encoding::encode_path(path_and_query, &mut self.path_and_query)?;
        self.render(headers, body);
        Ok(())
    }

    /// The same without changing the path.
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

    /// Whether the request closes its connection.
    pub(crate) fn closes_connection(&self) -> bool {
        self.closes_connection
    }

    /// The current URL.
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

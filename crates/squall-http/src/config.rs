//! The settings of a client: version, timeouts, trust, proxy, limits. This file holds values only;
//! [`crate::Connector::new`] reads files and checks combinations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Settings shared by every virtual user of a run.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Which HTTP to speak. Default [`HttpVersion::Auto`].
    pub version: HttpVersion,
    /// Reuse connections. `false` sends `Connection: close` and opens one for each request. Default `true`.
    pub keep_alive: bool,
    /// Trusted authorities and the client certificate.
    pub tls: TlsOptions,
    /// `http://[user:password@]host:port` or `socks5://…`. Default none; the environment is not read.
    pub proxy: Option<Url>,
    /// Limit for resolving, connecting and handshaking together. Default 10 s; never longer than what is left of
    /// the request's own limit.
    pub connect_timeout: Duration,
    /// Limit for a whole request, from before the connection is made until its last byte. Default 30 s.
    pub timeout: Duration,
    /// How many hops [`crate::PreparedRequest::redirect`] follows; 0 follows none. Default 10.
    pub max_redirects: u32,
    /// Ask for compressed bodies and decode the kept ones. Default `true`.
    pub decompress: bool,
    /// Which addresses of a name may be used. Default [`IpFamily::Any`].
    pub ip: IpFamily,
    /// Connect to this Unix socket instead of the URL's host.
    pub unix_socket: Option<PathBuf>,
    /// A longer response head fails as `HEAD_TOO_LARGE`. Default 64 KiB.
    pub max_head_bytes: usize,
    /// A longer body, on the wire or decoded, fails as `BODY_TOO_LARGE`. Default 256 MiB.
    pub max_body_bytes: usize,
    /// Measure dns, connect, tls, first byte and body. Default `false`.
    pub record_phases: bool,
    /// Host names with fixed addresses, looked up before DNS. A port of 0 means the URL's.
    pub resolve: Vec<(String, SocketAddr)>,
    /// Each session stores cookies and sends them back. Default `true`.
    pub cookies: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            version: HttpVersion::Auto,
            keep_alive: true,
            tls: TlsOptions::default(),
            proxy: None,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            max_redirects: 10,
            decompress: true,
            ip: IpFamily::Any,
            unix_socket: None,
            max_head_bytes: 64 * 1024,
            max_body_bytes: 256 * 1024 * 1024,
            record_phases: false,
            resolve: Vec::new(),
            cookies: true,
        }
    }
}

/// Which HTTP to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// HTTP/1.1 on `http://`; what the server picks by ALPN on `https://`.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only: with prior knowledge on `http://`, by ALPN on `https://`.
    Http2,
}

/// Which addresses of a name may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IpFamily {
    /// All, in the resolver's order.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Trusted authorities and the client certificate.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Accept any certificate.
    pub insecure: bool,
    /// Trust the certificates of this PEM file and no others. Default: the system's.
    pub ca: Option<PathBuf>,
    /// PEM chain that the client presents; needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// PEM private key of `client_cert`.
    pub client_key: Option<PathBuf>,
    /// Name to request and verify instead of the URL's host.
    pub server_name: Option<String>,
}

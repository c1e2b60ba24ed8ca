//! The HTTP flags: the one request of `squall run URL`, and how to speak HTTP in any run.

use clap::Args;

/// The request of `squall run URL`; refused together with a scenario file, which has its own.
#[derive(Debug, Default, Args)]
pub(crate) struct RequestArgs {
    /// Method [default: GET, or POST with a body]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Add name=value to the URL's query; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) query: Vec<String>,
    /// Body to send
    #[arg(long, short = 'd', value_name = "TEXT", group = "content", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// File to send as body
    #[arg(long, value_name = "PATH", group = "content")]
    pub(crate) body_file: Option<String>,
    /// JSON to send as body, with its content type
    #[arg(long, value_name = "JSON", group = "content")]
    pub(crate) body_json: Option<String>,
    /// Form field to send, with its content type; repeatable
    #[arg(long, short = 'F', value_name = "NAME=VALUE", group = "content")]
    pub(crate) form: Vec<String>,
    /// Statuses that count as success, e.g. 200, 2xx or 200,404
    #[arg(long, value_name = "STATUS")]
    pub(crate) expect_status: Option<String>,
    /// Text that the answer's body must contain
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect_body: Option<String>,
}

/// How to speak HTTP.
#[derive(Debug, Default, Args)]
pub(crate) struct HttpArgs {
    /// Header of every request; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// Log in with HTTP basic authentication
    #[arg(long, value_name = "USER:PASSWORD", group = "login")]
    pub(crate) basic: Option<String>,
    /// Log in with a bearer token
    #[arg(long, value_name = "TOKEN", group = "login")]
    pub(crate) bearer: Option<String>,
    /// For a whole request [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    /// For making a connection [default: 10s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) connect_timeout: Option<String>,
    /// HTTP/1.1 only
    #[arg(long, group = "version_choice")]
    pub(crate) http1: bool,
    /// HTTP/2 only; with prior knowledge on http://
    #[arg(long, group = "version_choice")]
    pub(crate) http2: bool,
    /// A new connection for every request
    #[arg(long)]
    pub(crate) no_keep_alive: bool,
    /// Follow at most so many redirects [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_redirects: Option<u32>,
    /// Follow no redirects
    #[arg(long, conflicts_with = "max_redirects")]
    pub(crate) no_redirects: bool,
    /// Ask for compressed answers (the default)
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Do not ask for compressed answers
    #[arg(long, conflicts_with = "compressed")]
    pub(crate) no_compression: bool,
    /// Each user keeps its cookies (the default)
    #[arg(long)]
    pub(crate) cookies: bool,
    /// Forget cookies
    #[arg(long, conflicts_with = "cookies")]
    pub(crate) no_cookies: bool,
    /// Accept any certificate
    #[arg(long, short = 'k')]
    pub(crate) insecure: bool,
    /// Trust the certificates of this PEM file and no others
    #[arg(long, value_name = "PATH")]
    pub(crate) ca: Option<String>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "PATH", requires = "key")]
    pub(crate) cert: Option<String>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "PATH", requires = "cert")]
    pub(crate) key: Option<String>,
    /// Name to verify in the certificate, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// http://[user:password@]host:port or socks5://host:port
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// Use this address for a host instead of DNS; repeatable
    #[arg(long, value_name = "HOST=ADDRESS[:PORT]")]
    pub(crate) resolve: Vec<String>,
    /// IPv4 addresses only
    #[arg(long, short = '4', group = "family")]
    pub(crate) ipv4: bool,
    /// IPv6 addresses only
    #[arg(long, short = '6', group = "family")]
    pub(crate) ipv6: bool,
    /// Connect to this Unix socket, whatever the URL's host
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<String>,
    /// Measure dns, connect, tls, first byte and body one by one
    #[arg(long)]
    pub(crate) phases: bool,
}

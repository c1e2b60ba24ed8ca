//! The HTTP flags: the request of `squall run URL`, and the HTTP settings of any run. Values stay
//! texts: squall-scenario parses them.

use clap::Args;

/// The request of `squall run URL`. Refused with a scenario file, which has its own requests.
#[derive(Debug, Default, Args)]
pub(crate) struct RequestArgs {
    /// Method [default: GET, or POST with a body]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Add name=value to the URL's query; repeatable. The value can be @FILE or $VARIABLE
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) query: Vec<String>,
    /// Body to send
    #[arg(long, short = 'd', value_name = "TEXT|@FILE|$VARIABLE", group = "content", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// File to send as body; - is standard input
    #[arg(long, value_name = "PATH|-", group = "content")]
    pub(crate) body_file: Option<String>,
    /// JSON to send as body, with its content type
    #[arg(long, value_name = "JSON|@FILE|$VARIABLE", group = "content")]
    pub(crate) body_json: Option<String>,
    /// Form field to send, with its content type; repeatable. The value can be @FILE or $VARIABLE
    #[arg(long, short = 'F', value_name = "NAME=VALUE", group = "content")]
    pub(crate) form: Vec<String>,
    /// Statuses that count as success, e.g. 200, 2xx or 200,404
    #[arg(long, value_name = "STATUS")]
    pub(crate) expect_status: Option<String>,
    /// Text that the response body must contain
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect_body: Option<String>,
}

/// HTTP settings.
#[derive(Debug, Default, Args)]
pub(crate) struct HttpArgs {
    /// Header of every request; repeatable. The value can be @FILE or $VARIABLE
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// Send HTTP basic authentication
    #[arg(long, value_name = "USER:PASSWORD|@FILE|$VARIABLE", group = "login")]
    pub(crate) basic: Option<String>,
    /// Send a bearer token
    #[arg(long, value_name = "TOKEN|@FILE|$VARIABLE", group = "login")]
    pub(crate) bearer: Option<String>,
    /// Timeout of a whole request [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    /// Timeout of connecting [default: 10s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) connect_timeout: Option<String>,
    /// Use HTTP/1.1 only
    #[arg(long, group = "version_choice")]
    pub(crate) http1: bool,
    /// Use HTTP/2 only; with prior knowledge on http://
    #[arg(long, group = "version_choice")]
    pub(crate) http2: bool,
    /// Open a new connection for every request
    #[arg(long)]
    pub(crate) no_keep_alive: bool,
    /// Most redirects to follow [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_redirects: Option<u32>,
    /// Follow no redirects
    #[arg(long, conflicts_with = "max_redirects")]
    pub(crate) no_redirects: bool,
    /// Ask for compressed responses (the default)
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Do not ask for compressed responses
    #[arg(long, conflicts_with = "compressed")]
    pub(crate) no_compression: bool,
    /// Keep the cookies of each user (the default)
    #[arg(long)]
    pub(crate) cookies: bool,
    /// Ignore cookies
    #[arg(long, conflicts_with = "cookies")]
    pub(crate) no_cookies: bool,
    /// Accept any certificate, without verifying it
    #[arg(long, short = 'k')]
    pub(crate) insecure: bool,
    /// Trust only the certificates of this PEM file
    #[arg(long, value_name = "PATH")]
    pub(crate) ca: Option<String>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "PATH", requires = "key")]
    pub(crate) cert: Option<String>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "PATH", requires = "cert")]
    pub(crate) key: Option<String>,
    /// Host name to verify in the certificate, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Proxy: http://[user:password@]host:port or socks5://host:port
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// Use this address for a host instead of DNS; repeatable
    #[arg(long, value_name = "HOST=ADDRESS[:PORT]")]
    pub(crate) resolve: Vec<String>,
    /// Use IPv4 addresses only
    #[arg(long, short = '4', group = "family")]
    pub(crate) ipv4: bool,
    /// Use IPv6 addresses only
    #[arg(long, short = '6', group = "family")]
    pub(crate) ipv6: bool,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<String>,
    /// Measure the phases of requests: dns, connect, tls, first byte, body
    #[arg(long)]
    pub(crate) phases: bool,
}

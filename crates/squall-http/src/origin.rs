//! The origin of a request: scheme, host and port. It compares origins and opens nothing.

use std::fmt;

use url::{Host, Url};

use crate::error::RequestError;

/// The two supported schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UrlScheme {
    /// Plain.
    Http,
    /// With TLS.
    Https,
}

impl UrlScheme {
    /// As URLs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            UrlScheme::Http => "http",
            UrlScheme::Https => "https",
        }
    }
}

/// One connection target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) scheme: UrlScheme,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// The host as URLs have it, in lower case.
    host_text: String,
}

impl Origin {
    pub(crate) fn from_url(url: &Url) -> Result<Origin, RequestError> {
        let scheme = match url.scheme() {
            "http" => UrlScheme::Http,
            "https" => UrlScheme::Https,
            other => {
                return Err(RequestError::UnsupportedScheme { scheme: other.into() });
            }
        };
        let host = url.host().ok_or_else(|| RequestError::NoHost { url: url.to_string() })?.to_owned();
        let port = url.port_or_known_default().expect("http and https have default ports");
        if port == 0 {
            let reason = "nobody can listen on port 0".to_owned();
            return Err(RequestError::BadUrl { url: url.to_string(), reason });
        }
        let host_text = host.to_string().to_ascii_lowercase();
        Ok(Origin { scheme, host, port, host_text })
    }

    /// The host in the form that cookies use.
    pub(crate) fn host_text(&self) -> &str {
        &self.host_text
    }

    /// The host is an IP address.
    pub(crate) fn is_ip_address(&self) -> bool {
        !matches!(self.host, Host::Domain(_))
    }

    /// Whether the connection is safe from eavesdropping: TLS, or this machine.
    pub(crate) fn is_trustworthy(&self) -> bool {
        self.scheme == UrlScheme::Https
            || match &self.host {
                Host::Ipv4(address) => address.is_loopback(),
                Host::Ipv6(address) => address.is_loopback(),
                Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
            }
    }

    /// `host:port`, for CONNECT, logs and addresses.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// As the Host header has it: the port only where it is not the scheme's own.
    pub(crate) fn host_header(&self) -> String {
        match (self.scheme, self.port) {
            (UrlScheme::Http, 80) | (UrlScheme::Https, 443) => self.host.to_string(),
            _ => self.authority(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.host_header())
    }
}

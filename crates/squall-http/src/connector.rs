//! State that all users of a run share: checked settings, trusted authorities, DNS cache. It opens
//! no connection by itself.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use url::Url;

use crate::config::HttpConfig;
use crate::dial::DnsCache;
use crate::error::ConnectorError;
use crate::request::{basic_auth, percent_decode};
use crate::tls;

/// Checked settings, cheap to clone and to share between threads.
#[derive(Debug, Clone)]
pub struct Connector {
    shared: Arc<ConnectorState>,
}

#[derive(Debug)]
struct ConnectorState {
    config: HttpConfig,
    proxy: Option<ProxySettings>,
    server_name: Option<ServerName<'static>>,
    tls: OnceLock<Arc<ClientConfig>>,
    dns_cache: DnsCache,
}

/// A proxy with its parsed address.
#[derive(Debug)]
pub(crate) struct ProxySettings {
    pub(crate) kind: ProxyKind,
    pub(crate) host: url::Host<String>,
    pub(crate) port: u16,
    pub(crate) credentials: Option<(String, String)>,
    /// The value of Proxy-Authorization.
    pub(crate) authorization: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Http,
    Socks5,
}

impl Connector {
    /// Checks the settings and reads the certificate files that they name.
    pub fn new(config: HttpConfig) -> Result<Connector, ConnectorError> {
        for (what, zero) in [
            ("the timeout", config.timeout.is_zero()),
            ("the connect timeout", config.connect_timeout.is_zero()),
            ("max_head_bytes", config.max_head_bytes == 0),
        ] {
            if zero {
                return Err(ConnectorError::ZeroLimit { what });
            }
        }
        let options = &config.tls;
        let tls = OnceLock::new();
        // Loading the system's authorities takes tens of milliseconds, so it waits for the first
        // TLS handshake. The user's own files are read now, so that an error appears before the
        // run.
        if options.ca.is_some() || options.client_cert.is_some() || options.client_key.is_some() {
            let _ = tls.set(tls::client_config(options, config.version)?);
        }
        Ok(Connector {
            shared: Arc::new(ConnectorState {
                proxy: config.proxy.as_ref().map(ProxySettings::new).transpose()?,
                server_name: options.server_name.as_deref().map(tls::server_name).transpose()?,
                tls,
                dns_cache: DnsCache::default(),
                config,
            }),
        })
    }

    /// The settings.
    pub fn config(&self) -> &HttpConfig {
        &self.shared.config
    }

    pub(crate) fn proxy(&self) -> Option<&ProxySettings> {
        self.shared.proxy.as_ref()
    }

    pub(crate) fn dns_cache(&self) -> &DnsCache {
        &self.shared.dns_cache
    }

    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.shared.server_name.as_ref()
    }

    /// The settings of every handshake. The first call is slow, so preparing a request calls this too.
    pub(crate) fn tls(&self) -> &Arc<ClientConfig> {
        let config = self.config();
        self.shared.tls.get_or_init(|| {
            tls::client_config(&config.tls, config.version).expect("settings with files were read by `new`")
        })
    }
}

impl ProxySettings {
    fn new(url: &Url) -> Result<ProxySettings, ConnectorError> {
        // The URL may hold a password: messages name only its scheme and host.
        let shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or(""));
        let kind = match url.scheme() {
            "http" => ProxyKind::Http,
            "socks5" | "socks5h" => ProxyKind::Socks5,
            _ => {
                let reason = "only http:// and socks5:// proxies are supported";
                return Err(ConnectorError::BadProxy { url: shown, reason });
            }
        };
        let Some(host) = url.host().map(|host| host.to_owned()) else {
            return Err(ConnectorError::BadProxy { url: shown, reason: "it names no host" });
        };
        let port = url.port_or_known_default().unwrap_or(1080);
        let (user, password) = (url.username(), url.password());
        let credentials = (!user.is_empty() || password.is_some())
            .then(|| (percent_decode(user), password.map(percent_decode).unwrap_or_default()));
        let authorization = credentials.as_ref().map(|(user, password)| basic_auth(user, password));
        Ok(ProxySettings { kind, host, port, credentials, authorization })
    }
}

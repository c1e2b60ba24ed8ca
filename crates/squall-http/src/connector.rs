//! What all users of a run share: checked settings, trust, name cache. Built once; opens nothing by itself.

use std::sync::Arc;

use crate::config::HttpConfig;
use crate::error::ConnectorError;
use crate::request::basic_auth;

/// Checked settings, cheap to clone and to share between threads.
#[derive(Debug, Clone)]
pub struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: HttpConfig,
    proxy_auth: Option<String>,
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
                return Err(ConnectorError::Zero { what });
            }
        }
        let proxy_auth = match &config.proxy {
            Some(proxy) => check_proxy(proxy)?,
            None => None,
        };
        Ok(Connector {
            shared: Arc::new(Shared { config, proxy_auth }),
        })
    }

    /// The settings.
    pub fn config(&self) -> &HttpConfig {
        &self.shared.config
    }

    /// The value of Proxy-Authorization.
    pub(crate) fn proxy_auth(&self) -> Option<&str> {
        self.shared.proxy_auth.as_deref()
    }
}

fn check_proxy(proxy: &url::Url) -> Result<Option<String>, ConnectorError> {
    let refuse = |reason| ConnectorError::BadProxy {
        url: format!("{}://…", proxy.scheme()),
        reason,
    };
    if !matches!(proxy.scheme(), "http" | "socks5" | "socks5h") {
        return Err(refuse("only http:// and socks5:// proxies are supported"));
    }
    if proxy.host().is_none() {
        return Err(refuse("it names no host"));
    }
    let (user, password) = (proxy.username(), proxy.password());
    let decode = crate::request::percent_decode;
    Ok((!user.is_empty() || password.is_some())
        .then(|| basic_auth(&decode(user), &password.map(decode).unwrap_or_default())))
}

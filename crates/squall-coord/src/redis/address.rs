//! Parses the address of a server, a Sentinel group or a cluster.
//! It rejects unknown options, because a mistyped option would otherwise show only when it is
//! needed. It never shows a password. [`super::RedisClient::open`] calls it.

use std::{fmt, path::PathBuf};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    TlsCertificates,
    cluster::ClusterClientBuilder,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use url::Url;

/// A parsed address.
#[derive(Clone)]
pub(super) enum RedisAddress {
    Server {
        url: Url,
        tls: RedisTlsOptions,
    },
    Sentinel {
        nodes: Vec<NodeAddress>,
        master: String,
        login: Credentials,
        db: i64,
        tls: RedisTlsOptions,
        sentinel: Credentials,
    },
    Cluster {
        nodes: Vec<NodeAddress>,
        login: Credentials,
        tls: RedisTlsOptions,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeAddress {
    host: String,
    port: u16,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    user: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RedisTlsOptions {
    enabled: bool,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    insecure: bool,
}

fn invalid_address(what: &'static str, detail: impl Into<String>) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, what, detail.into()))
}

impl RedisAddress {
    pub(super) fn parse(text: &str) -> Result<Self, RedisError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid_address("no scheme such as redis://", ""))?;
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => {
                Self::parse_server(text)
            }
            "redis+sentinel" | "redis-sentinel" => Self::parse_sentinel(rest, false),
            "rediss+sentinel" | "rediss-sentinel" => Self::parse_sentinel(rest, true),
            "redis-cluster" | "redis+cluster" => Self::parse_cluster(rest, false),
            "rediss-cluster" | "rediss+cluster" => Self::parse_cluster(rest, true),
            _ => Err(invalid_address("unknown scheme", scheme)),
        }
    }

    fn parse_server(text: &str) -> Result<Self, RedisError> {
        let mut url = Url::parse(text).map_err(|error| invalid_address("not a URL", error.to_string()))?;
        let mut tls =
            RedisTlsOptions { enabled: matches!(url.scheme(), "rediss" | "valkeys"), ..RedisTlsOptions::default() };
        let unix = url.scheme().ends_with("unix");
        let mut redis_options = Vec::new();
        for (name, value) in url.query_pairs() {
            let known_to_redis = name == "protocol" || unix && matches!(&*name, "db" | "user" | "pass");
            if known_to_redis {
                redis_options.push((name.into_owned(), value.into_owned()));
            } else if !tls.set_option(&name, &value)? {
                return Err(invalid_address("unknown option", name));
            }
        }
        url.set_query(None);
        if !redis_options.is_empty() {
            url.query_pairs_mut().extend_pairs(redis_options);
        }
        tls.insecure |= url.fragment() == Some("insecure");
        tls.validate()?;
        if tls.insecure {
            url.set_fragment(Some("insecure"));
        }
        // Parsed now, so that an invalid address is reported as such.
        url.clone().into_connection_info()?;
        Ok(Self::Server { url, tls })
    }

    fn parse_sentinel(rest: &str, secure: bool) -> Result<Self, RedisError> {
        let parts = MultiHostAddress::parse(rest, 26379)?;
        let mut path = parts.path.splitn(2, '/');
        let master = percent_decode(path.next().unwrap_or_default())?;
        if master.is_empty() {
            return Err(invalid_address("no master's name: write redis+sentinel://host:port,host:port/master/db", ""));
        }
        let db = match path.next() {
            None | Some("") => 0,
            Some(db) => db.parse().map_err(|_| invalid_address("the database is not a number", db))?,
        };
        let (mut tls, mut sentinel) =
            (RedisTlsOptions { enabled: secure, ..RedisTlsOptions::default() }, Credentials::default());
        for (name, value) in parts.options {
            match name.as_str() {
                "sentinel_user" => sentinel.user = Some(value),
                "sentinel_password" => sentinel.password = Some(value),
                _ if tls.set_option(&name, &value)? => {}
                _ => return Err(invalid_address("unknown option", name)),
            }
        }
        tls.validate()?;
        Ok(Self::Sentinel { nodes: parts.nodes, master, login: parts.login, db, tls, sentinel })
    }

    fn parse_cluster(rest: &str, secure: bool) -> Result<Self, RedisError> {
        let parts = MultiHostAddress::parse(rest, 6379)?;
        if !matches!(parts.path.as_str(), "" | "0") {
            return Err(invalid_address("a cluster has only database 0", parts.path));
        }
        let mut tls = RedisTlsOptions { enabled: secure, ..RedisTlsOptions::default() };
        for (name, value) in parts.options {
            if !tls.set_option(&name, &value)? {
                return Err(invalid_address("unknown option", name));
            }
        }
        tls.validate()?;
        Ok(Self::Cluster { nodes: parts.nodes, login: parts.login, tls })
    }

    pub(super) fn tls(&self) -> &RedisTlsOptions {
        match self {
            Self::Server { tls, .. } | Self::Sentinel { tls, .. } | Self::Cluster { tls, .. } => tls,
        }
    }
}

/// The part after the scheme of an address with several hosts, which is not a valid URL.
struct MultiHostAddress {
    login: Credentials,
    nodes: Vec<NodeAddress>,
    path: String,
    options: Vec<(String, String)>,
}

impl MultiHostAddress {
    fn parse(rest: &str, port: u16) -> Result<Self, RedisError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let login = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => Credentials::default(),
            Some((user, password)) => {
                Credentials { user: non_empty(percent_decode(user)?), password: non_empty(percent_decode(password)?) }
            }
        };
        let nodes = hosts.split(',').map(|host| NodeAddress::parse(host, port)).collect::<Result<_, _>>()?;
        let options = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { login, nodes, path: path.trim_end_matches('/').to_owned(), options })
    }
}

impl NodeAddress {
    fn parse(text: &str, port: u16) -> Result<Self, RedisError> {
        // The url crate parses ports and IPv6.
        let url =
            Url::parse(&format!("redis://{text}")).map_err(|error| invalid_address("not a host", error.to_string()))?;
        let host =
            url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid_address("a host is missing", ""))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: url.port().unwrap_or(port) })
    }

    fn connection_addr(&self, tls: &RedisTlsOptions) -> ConnectionAddr {
        let (host, port) = (self.host.clone(), self.port);
        match tls.enabled {
            false => ConnectionAddr::Tcp(host, port),
            true => ConnectionAddr::TcpTls { host, port, insecure: tls.insecure, tls_params: None },
        }
    }
}

fn percent_decode(text: &str) -> Result<String, RedisError> {
    // Query encoding except for `+`, which may be part of a password.
    let text = text.replace('+', "%2B");
    let mut pairs = url::form_urlencoded::parse(text.as_bytes());
    match (pairs.next(), pairs.next()) {
        (None, _) => Ok(String::new()),
        (Some((name, value)), None) if value.is_empty() => Ok(name.into_owned()),
        _ => Err(invalid_address("write `=` and `&` as %3D and %26", "")),
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl RedisTlsOptions {
    /// Sets a TLS option; returns whether `name` is one.
    fn set_option(&mut self, name: &str, value: &str) -> Result<bool, RedisError> {
        match name {
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "insecure" => {
                self.insecure = match value {
                    "" | "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(invalid_address("insecure is true or false", "")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn validate(&self) -> Result<(), RedisError> {
        let used = self.ca.is_some() || self.cert.is_some() || self.key.is_some() || self.insecure;
        if used && !self.enabled {
            return Err(invalid_address("options of TLS without TLS: write rediss instead of redis", ""));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(invalid_address("cert and key belong together", ""));
        }
        Ok(())
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Reads the files at every connect, so that renewed certificates are used.
    fn certificates(&self) -> Result<TlsCertificates, RedisError> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| invalid_address("cannot read a file", format!("{}: {error}", path.display())))
        };
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => None,
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.as_ref().map(read).transpose()? })
    }
}

pub(super) fn server_client(url: &Url, tls: &RedisTlsOptions) -> Result<Client, RedisError> {
    let info: ConnectionInfo = url.clone().into_connection_info()?;
    if tls.enabled { Client::build_with_tls(info, tls.certificates()?) } else { Client::open(info) }
}

/// A client of one cluster node.
pub(super) fn node_client(
    node: &NodeAddress,
    login: &Credentials,
    tls: &RedisTlsOptions,
) -> Result<Client, RedisError> {
    let mut redis = RedisConnectionInfo::default();
    if let Some(user) = &login.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &login.password {
        redis = redis.set_password(password);
    }
    let info = node.connection_addr(tls).into_connection_info()?.set_redis_settings(redis);
    if tls.enabled { Client::build_with_tls(info, tls.certificates()?) } else { Client::open(info) }
}

pub(super) fn sentinel_client(address: &RedisAddress) -> Result<redis::sentinel::SentinelClient, RedisError> {
    let RedisAddress::Sentinel { nodes, master, login, db, tls, sentinel } = address else {
        return Err(invalid_address("not a Sentinel address", ""));
    };
    let nodes = nodes.iter().map(|node| node.connection_addr(tls));
    let mut builder =
        SentinelClientBuilder::new(nodes, master, SentinelServerType::Master)?.set_client_to_redis_db(*db);
    if let Some(user) = &login.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &login.password {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &sentinel.user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &sentinel.password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if tls.enabled {
        let mode = || if tls.insecure { redis::TlsMode::Insecure } else { redis::TlsMode::Secure };
        builder = builder.set_client_to_redis_tls_mode(mode()).set_client_to_sentinel_tls_mode(mode());
        builder = builder.set_client_to_redis_certificates(tls.certificates()?);
        builder = builder.set_client_to_sentinel_certificates(tls.certificates()?);
    }
    builder.build()
}

pub(super) fn cluster_client_builder(
    nodes: &[NodeAddress],
    login: &Credentials,
    tls: &RedisTlsOptions,
) -> Result<ClusterClientBuilder, RedisError> {
    let mut builder = ClusterClientBuilder::new(nodes.iter().map(|node| node.connection_addr(tls)).collect::<Vec<_>>());
    if let Some(user) = &login.user {
        builder = builder.username(user);
    }
    if let Some(password) = &login.password {
        builder = builder.password(password);
    }
    if tls.enabled {
        builder = builder.certs(tls.certificates()?);
    }
    Ok(builder)
}

/// The address without user, password and options, for messages.
pub(super) fn redact_address(text: &str) -> String {
    let full = text;
    let text = text.split(['?', '#']).next().unwrap_or_default();
    if let Some((scheme, authority)) = text.split_once("://")
        && authority.contains(':')
        && full[text.len()..].contains('@')
        && !text.contains('@')
    {
        // This may be a password with an unescaped `?` or `#`; the two cases look the same.
        return format!("{scheme}://…");
    }
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}{}", &text[..scheme + 3], &text[at + 1..]),
        (None, Some(at)) => text[at + 1..].to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_address_has_no_password() {
        assert_eq!(redact_address("redis://me:s3cret@host:1/0"), "redis://host:1/0");
        assert_eq!(redact_address("redis://host:1/0"), "redis://host:1/0");
        assert_eq!(redact_address("nonsense"), "nonsense");
        assert_eq!(redact_address("me:s3cret@host"), "host");
        assert_eq!(redact_address("unix:///run/r.sock?user=me&pass=s3cret"), "unix:///run/r.sock");
        assert_eq!(redact_address("unix:///run/r.sock?pass=s3@cret"), "unix:///run/r.sock");
        for broken in ["redis+sentinel://u:s3c?ret@h/m", "redis://:s3c#ret@h", "redis://h:1/0?x=a@b"] {
            assert!(
                !redact_address(broken).contains("s3c") && redact_address(broken).ends_with("://…"),
                "{broken}: {}",
                redact_address(broken)
            );
        }
        assert_eq!(
            redact_address("redis+sentinel://u:p@ss@h:1,g:2/m?sentinel_password=x"),
            "redis+sentinel://h:1,g:2/m"
        );
    }

    #[test]
    fn sentinel_and_cluster_addresses_are_parsed() {
        let Ok(RedisAddress::Sentinel { nodes, master, login, db, tls, sentinel }) =
            RedisAddress::parse("rediss+sentinel://me:p%40ss+1@a,b:1,[::1]:2/main/3?sentinel_password=s&ca=/ca.pem")
        else {
            panic!("not read");
        };
        let node = |host: &str, port| NodeAddress { host: host.into(), port };
        assert_eq!(nodes, [node("a", 26379), node("b", 1), node("::1", 2)]);
        assert_eq!((master.as_str(), db), ("main", 3));
        assert!(login == Credentials { user: Some("me".into()), password: Some("p@ss+1".into()) });
        assert!(sentinel == Credentials { user: None, password: Some("s".into()) });
        assert_eq!(tls, RedisTlsOptions { enabled: true, ca: Some("/ca.pem".into()), ..RedisTlsOptions::default() });
        let Ok(RedisAddress::Cluster { nodes, login, .. }) = RedisAddress::parse("redis-cluster://:secret@a:1,b")
        else {
            panic!("not read");
        };
        assert_eq!(nodes, [node("a", 1), node("b", 6379)]);
        assert!(login == Credentials { user: None, password: Some("secret".into()) });
    }

    #[track_caller]
    fn assert_rejected(address: &str, reason: &str) {
        let error = RedisAddress::parse(address).err().unwrap_or_else(|| panic!("{address} was accepted"));
        assert!(error.to_string().contains(reason), "{address}: {error}");
    }

    #[test]
    fn invalid_addresses_are_rejected_with_the_reason() {
        assert_rejected("localhost:6379", "no scheme");
        assert_rejected("http://host", "unknown scheme");
        assert_rejected("redis://host?timeout=3", "unknown option - InvalidClientConfig: timeout");
        assert_rejected("redis://host?ca=/x", "write rediss");
        assert_rejected("rediss://host?cert=/x", "belong together");
        assert_rejected("rediss://host?insecure=maybe", "true or false");
        assert_rejected("redis+sentinel://host:1", "no master's name");
        assert_rejected("redis+sentinel://host:1/m/x", "not a number");
        assert_rejected("redis+sentinel://host:1/m?what=1", "unknown option");
        assert_rejected("redis-cluster://a:1,,b:2", "a host is missing");
        assert_rejected("redis-cluster://a:1/5", "only database 0");
        assert_rejected("redis://host/abc", "");
    }
}

//! Reads the address of a server, of a Sentinel group or of a cluster. Refuses what it does not understand instead of
//! ignoring it: a mistyped option of an address is otherwise found only when it is needed. Never shows a password.

use std::{fmt, path::PathBuf};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    TlsCertificates,
    cluster::ClusterClientBuilder,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use url::Url;

/// Where and how to connect.
#[derive(Clone)]
pub(super) enum Address {
    Server { url: Url, tls: Tls },
    Sentinel { nodes: Vec<Node>, master: String, login: Login, db: i64, tls: Tls, sentinel: Login },
    Cluster { nodes: Vec<Node>, login: Login, tls: Tls },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    host: String,
    port: u16,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    on: bool,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    insecure: bool,
}

fn wrong(what: &'static str, detail: impl Into<String>) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, what, detail.into()))
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, RedisError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme such as redis://", ""))?;
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => Self::server(text),
            "redis+sentinel" | "redis-sentinel" => Self::sentinel(rest, false),
            "rediss+sentinel" | "rediss-sentinel" => Self::sentinel(rest, true),
            "redis-cluster" | "redis+cluster" => Self::cluster(rest, false),
            "rediss-cluster" | "rediss+cluster" => Self::cluster(rest, true),
            _ => Err(wrong("unknown scheme", scheme)),
        }
    }

    fn server(text: &str) -> Result<Self, RedisError> {
        let mut url = Url::parse(text).map_err(|error| wrong("not a URL", error.to_string()))?;
        let mut tls = Tls { on: matches!(url.scheme(), "rediss" | "valkeys"), ..Tls::default() };
        let unix = url.scheme().ends_with("unix");
        let mut kept = Vec::new();
        for (name, value) in url.query_pairs() {
            let passed_on = name == "protocol" || unix && matches!(&*name, "db" | "user" | "pass");
            if passed_on {
                kept.push((name.into_owned(), value.into_owned()));
            } else if !tls.set(&name, &value)? {
                return Err(wrong("unknown option", name));
            }
        }
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        tls.insecure |= url.fragment() == Some("insecure");
        tls.check()?;
        if tls.insecure {
            url.set_fragment(Some("insecure"));
        }
        // Now, so that a wrong address is told as such.
        url.clone().into_connection_info()?;
        Ok(Self::Server { url, tls })
    }

    fn sentinel(rest: &str, secure: bool) -> Result<Self, RedisError> {
        let parts = Parts::read(rest, 26379)?;
        let mut path = parts.path.splitn(2, '/');
        let master = decode(path.next().unwrap_or_default())?;
        if master.is_empty() {
            return Err(wrong("no master's name: write redis+sentinel://host:port,host:port/master/db", ""));
        }
        let db = match path.next() {
            None | Some("") => 0,
            Some(db) => db.parse().map_err(|_| wrong("the database is not a number", db))?,
        };
        let (mut tls, mut sentinel) = (Tls { on: secure, ..Tls::default() }, Login::default());
        for (name, value) in parts.options {
            match name.as_str() {
                "sentinel_user" => sentinel.user = Some(value),
                "sentinel_password" => sentinel.password = Some(value),
                _ if tls.set(&name, &value)? => {}
                _ => return Err(wrong("unknown option", name)),
            }
        }
        tls.check()?;
        Ok(Self::Sentinel { nodes: parts.nodes, master, login: parts.login, db, tls, sentinel })
    }

    fn cluster(rest: &str, secure: bool) -> Result<Self, RedisError> {
        let parts = Parts::read(rest, 6379)?;
        if !matches!(parts.path.as_str(), "" | "0") {
            return Err(wrong("a cluster has only database 0", parts.path));
        }
        let mut tls = Tls { on: secure, ..Tls::default() };
        for (name, value) in parts.options {
            if !tls.set(&name, &value)? {
                return Err(wrong("unknown option", name));
            }
        }
        tls.check()?;
        Ok(Self::Cluster { nodes: parts.nodes, login: parts.login, tls })
    }

    pub(super) fn tls(&self) -> &Tls {
        match self {
            Self::Server { tls, .. } | Self::Sentinel { tls, .. } | Self::Cluster { tls, .. } => tls,
        }
    }
}

/// What stands after the scheme of an address with several hosts, which is no URL.
struct Parts {
    login: Login,
    nodes: Vec<Node>,
    path: String,
    options: Vec<(String, String)>,
}

impl Parts {
    fn read(rest: &str, port: u16) -> Result<Self, RedisError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let login = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => Login::default(),
            Some((user, password)) => Login { user: some(decode(user)?), password: some(decode(password)?) },
        };
        let nodes = hosts.split(',').map(|host| Node::read(host, port)).collect::<Result<_, _>>()?;
        let options = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { login, nodes, path: path.trim_end_matches('/').to_owned(), options })
    }
}

impl Node {
    fn read(text: &str, port: u16) -> Result<Self, RedisError> {
        // The url crate knows about ports and IPv6.
        let url = Url::parse(&format!("redis://{text}")).map_err(|error| wrong("not a host", error.to_string()))?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("a host is missing", ""))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: url.port().unwrap_or(port) })
    }

    fn address(&self, tls: &Tls) -> ConnectionAddr {
        let (host, port) = (self.host.clone(), self.port);
        match tls.on {
            false => ConnectionAddr::Tcp(host, port),
            true => ConnectionAddr::TcpTls { host, port, insecure: tls.insecure, tls_params: None },
        }
    }
}

fn decode(text: &str) -> Result<String, RedisError> {
    // A query's rules but for `+`, which a password may have.
    let text = text.replace('+', "%2B");
    let mut pairs = url::form_urlencoded::parse(text.as_bytes());
    match (pairs.next(), pairs.next()) {
        (None, _) => Ok(String::new()),
        (Some((name, value)), None) if value.is_empty() => Ok(name.into_owned()),
        _ => Err(wrong("write `=` and `&` as %3D and %26", "")),
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl Tls {
    /// Whether it was an option of TLS.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, RedisError> {
        match name {
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "insecure" => {
                self.insecure = match value {
                    "" | "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(wrong("insecure is true or false", "")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn check(&self) -> Result<(), RedisError> {
        let used = self.ca.is_some() || self.cert.is_some() || self.key.is_some() || self.insecure;
        if used && !self.on {
            return Err(wrong("options of TLS without TLS: write rediss instead of redis", ""));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(wrong("cert and key belong together", ""));
        }
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Read at every connect, so that renewed files are taken up.
    fn certificates(&self) -> Result<TlsCertificates, RedisError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| wrong("cannot read a file", format!("{}: {error}", path.display())))
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

pub(super) fn client(url: &Url, tls: &Tls) -> Result<Client, RedisError> {
    let info: ConnectionInfo = url.clone().into_connection_info()?;
    if tls.on { Client::build_with_tls(info, tls.certificates()?) } else { Client::open(info) }
}

/// One node of a cluster by itself.
pub(super) fn node_client(node: &Node, login: &Login, tls: &Tls) -> Result<Client, RedisError> {
    let mut redis = RedisConnectionInfo::default();
    if let Some(user) = &login.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &login.password {
        redis = redis.set_password(password);
    }
    let info = node.address(tls).into_connection_info()?.set_redis_settings(redis);
    if tls.on { Client::build_with_tls(info, tls.certificates()?) } else { Client::open(info) }
}

pub(super) fn sentinel(address: &Address) -> Result<redis::sentinel::SentinelClient, RedisError> {
    let Address::Sentinel { nodes, master, login, db, tls, sentinel } = address else {
        return Err(wrong("not a Sentinel address", ""));
    };
    let nodes = nodes.iter().map(|node| node.address(tls));
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
    if tls.on {
        let mode = || if tls.insecure { redis::TlsMode::Insecure } else { redis::TlsMode::Secure };
        builder = builder.set_client_to_redis_tls_mode(mode()).set_client_to_sentinel_tls_mode(mode());
        builder = builder.set_client_to_redis_certificates(tls.certificates()?);
        builder = builder.set_client_to_sentinel_certificates(tls.certificates()?);
    }
    builder.build()
}

pub(super) fn cluster(nodes: &[Node], login: &Login, tls: &Tls) -> Result<ClusterClientBuilder, RedisError> {
    let mut builder = ClusterClientBuilder::new(nodes.iter().map(|node| node.address(tls)).collect::<Vec<_>>());
    if let Some(user) = &login.user {
        builder = builder.username(user);
    }
    if let Some(password) = &login.password {
        builder = builder.password(password);
    }
    if tls.on {
        builder = builder.certs(tls.certificates()?);
    }
    Ok(builder)
}

/// The address without user, password and options, for messages.
pub(super) fn shown(text: &str) -> String {
    let whole = text;
    let text = text.split(['?', '#']).next().unwrap_or_default();
    if let Some((scheme, authority)) = text.split_once("://")
        && authority.contains(':')
        && whole[text.len()..].contains('@')
        && !text.contains('@')
    {
        // A password with an unescaped `?` or `#` in it looks like this, too; nobody can tell them apart.
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
    fn passwords_are_not_shown() {
        assert_eq!(shown("redis://me:s3cret@host:1/0"), "redis://host:1/0");
        assert_eq!(shown("redis://host:1/0"), "redis://host:1/0");
        assert_eq!(shown("nonsense"), "nonsense");
        assert_eq!(shown("me:s3cret@host"), "host");
        assert_eq!(shown("unix:///run/r.sock?user=me&pass=s3cret"), "unix:///run/r.sock");
        assert_eq!(shown("unix:///run/r.sock?pass=s3@cret"), "unix:///run/r.sock");
        for broken in ["redis+sentinel://u:s3c?ret@h/m", "redis://:s3c#ret@h", "redis://h:1/0?x=a@b"] {
            assert!(!shown(broken).contains("s3c") && shown(broken).ends_with("://…"), "{broken}: {}", shown(broken));
        }
        assert_eq!(shown("redis+sentinel://u:p@ss@h:1,g:2/m?sentinel_password=x"), "redis+sentinel://h:1,g:2/m");
    }

    #[test]
    fn groups_are_read() {
        let Ok(Address::Sentinel { nodes, master, login, db, tls, sentinel }) =
            Address::parse("rediss+sentinel://me:p%40ss+1@a,b:1,[::1]:2/main/3?sentinel_password=s&ca=/ca.pem")
        else {
            panic!("not read");
        };
        let node = |host: &str, port| Node { host: host.into(), port };
        assert_eq!(nodes, [node("a", 26379), node("b", 1), node("::1", 2)]);
        assert_eq!((master.as_str(), db), ("main", 3));
        assert!(login == Login { user: Some("me".into()), password: Some("p@ss+1".into()) });
        assert!(sentinel == Login { user: None, password: Some("s".into()) });
        assert_eq!(tls, Tls { on: true, ca: Some("/ca.pem".into()), ..Tls::default() });
        let Ok(Address::Cluster { nodes, login, .. }) = Address::parse("redis-cluster://:secret@a:1,b") else {
            panic!("not read");
        };
        assert_eq!(nodes, [node("a", 1), node("b", 6379)]);
        assert!(login == Login { user: None, password: Some("secret".into()) });
    }

    #[track_caller]
    fn refused(address: &str, why: &str) {
        let error = Address::parse(address).err().unwrap_or_else(|| panic!("{address} was accepted"));
        assert!(error.to_string().contains(why), "{address}: {error}");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        refused("localhost:6379", "no scheme");
        refused("http://host", "unknown scheme");
        refused("redis://host?timeout=3", "unknown option - InvalidClientConfig: timeout");
        refused("redis://host?ca=/x", "write rediss");
        refused("rediss://host?cert=/x", "belong together");
        refused("rediss://host?insecure=maybe", "true or false");
        refused("redis+sentinel://host:1", "no master's name");
        refused("redis+sentinel://host:1/m/x", "not a number");
        refused("redis+sentinel://host:1/m?what=1", "unknown option");
        refused("redis-cluster://a:1,,b:2", "a host is missing");
        refused("redis-cluster://a:1/5", "only database 0");
        refused("redis://host/abc", "");
    }
}

//! `-mode`, `-node`, `-port`, `-transport`: how to reach the database. It resolves no names and
//! opens no stores.

use crate::command_line::{CommandGroups, CommandLineProblem, GroupValues, OptionReader, one_of, whole_number};
use std::{path::PathBuf, time::Duration};

#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionMode {
    pub user: Option<String>,
    pub password: Option<String>,
    /// A file with `cql.username` and `cql.password`.
    pub credentials_file: Option<PathBuf>,
    pub compression: FrameCompression,
    /// Connections to each node; 1 to 1,024.
    pub connections_per_host: u32,
    /// Requests in flight on one connection; `None`: the driver's limit.
    pub max_pending: Option<u32>,
    /// Sends every statement as text.
    pub unprepared: bool,
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
}

/// Without the password.
impl std::fmt::Debug for ConnectionMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionMode").field("user", &self.user).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameCompression {
    None,
    Lz4,
    Snappy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    pub nodes: NodeList,
    /// The port of nodes without one of their own.
    pub port: u16,
    /// Connects to no other nodes than the listed ones.
    pub whitelist: bool,
    pub datacenter: Option<String>,
    pub rack: Option<String>,
    /// Uses nodes of other data centres when those of `datacenter` are down.
    pub remote_datacenter: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeList {
    Listed(Vec<NodeAddress>),
    /// One host per line; see [`parse_node_file`].
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    pub host: String,
    pub port: Option<u16>,
}

/// What `-transport` says; a trust store switches TLS on.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub truststore: PathBuf,
    pub truststore_password: Option<String>,
    pub keystore: Option<PathBuf>,
    pub keystore_password: Option<String>,
    /// `TLS`, `TLSv1.2` or `TLSv1.3`.
    pub protocol: &'static str,
    /// Names as in Java; none: all.
    pub ciphers: Vec<String>,
    pub verify_hostname: bool,
}

/// Without the passwords.
impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("TlsSettings");
        shown.field("truststore", &self.truststore).field("keystore", &self.keystore).finish_non_exhaustive()
    }
}

impl FrameCompression {
    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            FrameCompression::None => "NONE",
            FrameCompression::Lz4 => "LZ4",
            FrameCompression::Snappy => "SNAPPY",
        }
    }
}

impl ConnectionMode {
    /// The most time from the first packet until every node is connected, and for preparing all statements.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout * 2
    }

    pub(super) fn read(groups: &CommandGroups, problems: &mut Vec<CommandLineProblem>) -> ConnectionMode {
        let values = groups.group("-mode");
        let mut reader = OptionReader::new(&values, problems);
        let compressions =
            [("none", FrameCompression::None), ("lz4", FrameCompression::Lz4), ("snappy", FrameCompression::Snappy)];
        let millis = |text: &str| whole_number(text, 1, 86_400_000).map(Duration::from_millis);
        let versions = |text: &str| {
            let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
            match text.eq_ignore_ascii_case("NEWEST_SUPPORTED") || text == "4" {
                true => Ok(()),
                false => Err("only version 4 is spoken: use 4, or remove it"),
            }
        };
        reader.optional("protocolVersion=", versions);
        // The class may be typed with its package.
        let providers = |text: &str| match text.rsplit('.').next() {
            Some("PlainTextAuthProvider") => Ok(()),
            _ => Err("only PlainTextAuthProvider is possible: use it, or remove it"),
        };
        reader.optional("auth-provider=", providers);
        reader.exclude("username=", &["user="]);
        reader.exclude("unprepared", &["prepared"]);
        let user = reader.text("user=").or_else(|| reader.text("username="));
        let password = reader.text("password=");
        if password.is_some() && user.is_none() {
            reader.problem("password=", "it needs user= beside it".to_owned());
        }
        ConnectionMode {
            user,
            password,
            credentials_file: groups.group("-credentials-file").value("").map(PathBuf::from),
            compression: reader.value("compression=", FrameCompression::None, |text| one_of(text, &compressions)),
            connections_per_host: reader.value("connectionsPerHost=", 8, |text| whole_number(text, 1, 1024)),
            max_pending: reader.optional("maxPending=", |text| whole_number(text, 1, 32_768)),
            unprepared: reader.flag("unprepared"),
            request_timeout: reader.value("requestTimeout=", Duration::from_secs(12), millis),
            connect_timeout: reader.value("connectTimeout=", Duration::from_secs(5), millis),
        }
    }
}

impl NodeSettings {
    pub(super) fn read(groups: &CommandGroups, problems: &mut Vec<CommandLineProblem>) -> NodeSettings {
        let port = |text: &str| whole_number(text, 1, u16::MAX);
        let mode = groups.group("-mode");
        let own_port = OptionReader::new(&mode, problems).optional("port=", port);
        let ports = groups.group("-port");
        let mut reader = OptionReader::new(&ports, problems);
        let native = reader.value("native=", 9042, port);
        if reader.flag("native=") && own_port.is_some() {
            reader.problem("native=", "-mode port= is the same: remove one of them".to_owned());
        }
        let values = groups.group("-node");
        let mut reader = OptionReader::new(&values, problems);
        let nodes = match reader.text("file=") {
            Some(_) if reader.flag("") => {
                reader.problem("file=", "it cannot be combined with a list of nodes: remove one of them".to_owned());
                NodeList::Listed(Vec::new())
            }
            Some(file) => NodeList::File(PathBuf::from(file)),
            None => NodeList::Listed(reader.value("", Vec::new(), |text| parse_nodes(text.split(',')))),
        };
        for option in ["rack=", "remote-dc="] {
            if reader.flag(option) && !reader.flag("datacenter=") {
                reader.problem(option, "it needs datacenter= beside it".to_owned());
            }
        }
        NodeSettings {
            nodes,
            port: own_port.unwrap_or(native),
            whitelist: reader.flag("whitelist"),
            datacenter: reader.text("datacenter="),
            rack: reader.text("rack="),
            remote_datacenter: reader.text("remote-dc="),
        }
    }
}

/// The nodes of a file with one host per line; empty lines and lines after `#` do not count.
pub fn parse_node_file(text: &str) -> Result<Vec<NodeAddress>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let nodes = parse_nodes(lines)?;
    if nodes.is_empty() { Err("the file names no node: write one host per line".to_owned()) } else { Ok(nodes) }
}

pub(crate) fn parse_nodes<'t>(hosts: impl Iterator<Item = &'t str>) -> Result<Vec<NodeAddress>, String> {
    hosts.map(parse_node).collect()
}

/// `host`, `host:port`, `::1` or `[::1]:port`.
fn parse_node(text: &str) -> Result<NodeAddress, String> {
    let wrong = || format!("{text:?} is not a node: write host or host:port");
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)).transpose()? {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        None if text.matches(':').count() == 1 => {
            text.split_once(':').map(|(host, port)| (host, Some(port))).ok_or_else(wrong)?
        }
        None => (text, None),
    };
    let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
    if host.is_empty() { Err(wrong()) } else { Ok(NodeAddress { host: host.to_owned(), port }) }
}

impl TlsSettings {
    /// TLS of any version, without a client certificate and without verified host names.
    pub fn new(truststore: PathBuf) -> TlsSettings {
        TlsSettings {
            truststore,
            truststore_password: None,
            keystore: None,
            keystore_password: None,
            protocol: "TLS",
            ciphers: Vec::new(),
            verify_hostname: false,
        }
    }

    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> Option<TlsSettings> {
        let mut reader = OptionReader::new(values, problems);
        let protocols = ["TLS", "TLSv1.2", "TLSv1.3"].map(|name| (name, name));
        let protocol = reader.value("ssl-protocol=", "TLS", |text| one_of(text, &protocols));
        let verify_hostname =
            reader.value("hostname-verification=", false, |text| one_of(text, &[("true", true), ("false", false)]));
        let Some(truststore) = reader.text("truststore=") else {
            let about_tls =
                ["truststore-password=", "keystore=", "keystore-password=", "ssl-protocol=", "ssl-ciphers="];
            let verification = verify_hostname.then_some("hostname-verification=");
            if let Some(option) = about_tls.into_iter().find(|option| reader.flag(option)).or(verification) {
                reader.problem(option, "it needs truststore= beside it, which switches TLS on".to_owned());
            }
            return None;
        };
        Some(TlsSettings {
            truststore: PathBuf::from(truststore),
            truststore_password: reader.text("truststore-password="),
            keystore: reader.text("keystore=").map(PathBuf::from),
            keystore_password: reader.text("keystore-password="),
            protocol,
            ciphers: reader.text("ssl-ciphers=").iter().flat_map(|text| text.split(',')).map(str::to_owned).collect(),
            verify_hostname,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_file_has_one_host_per_line() {
        let nodes = parse_node_file("# nodes\n10.0.0.1\n\n  db:9043 \n::1\n").unwrap();
        let nodes: Vec<_> = nodes.iter().map(|node| (node.host.as_str(), node.port)).collect();
        assert_eq!(nodes, [("10.0.0.1", None), ("db", Some(9043)), ("::1", None)]);
        assert_eq!(parse_node_file("\n").unwrap_err(), "the file names no node: write one host per line");
        for text in ["a:b", ":9042", "[::1", "a:99999"] {
            assert!(parse_node_file(text).unwrap_err().contains("is not a node"), "{text}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        let tls = TlsSettings {
            truststore: PathBuf::from("t.p12"),
            truststore_password: Some("secret".to_owned()),
            keystore: None,
            keystore_password: Some("secret".to_owned()),
            protocol: "TLS",
            ciphers: Vec::new(),
            verify_hostname: false,
        };
        assert!(!format!("{tls:?}").contains("secret"));
    }
}

//! How a scenario reaches its database: what `[cql]` says, validated. It opens nothing.

use crate::{
    ConnectionMode, Consistency, DatabaseTarget, FrameCompression, TlsSettings,
    settings::{parse_consistency, parse_nodes},
};
use std::{num::NonZeroUsize, time::Duration};

/// The settings of a scenario's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementConnection {
    /// `host` or `host:port`; never empty.
    pub nodes: Vec<String>,
    /// The port of nodes without one of their own.
    pub port: u16,
    pub login: Option<Login>,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsSettings>,
    /// The keyspace of tables that a statement names without one.
    pub keyspace: Option<String>,
    pub consistency: Consistency,
    /// Sends only to nodes of this data centre.
    pub datacenter: Option<String>,
    /// Connections of each engine thread to each node.
    pub connections: NonZeroUsize,
    pub request_timeout: Duration,
    pub compression: FrameCompression,
}

/// A user with a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

/// The limit for opening one connection. Twice this time is the limit for all nodes together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Default for StatementConnection {
    fn default() -> StatementConnection {
        StatementConnection {
            nodes: vec!["127.0.0.1".to_owned()],
            port: 9042,
            login: None,
            tls: None,
            keyspace: None,
            consistency: Consistency::LocalOne,
            datacenter: None,
            connections: NonZeroUsize::MIN,
            request_timeout: Duration::from_secs(12),
            compression: FrameCompression::None,
        }
    }
}

impl StatementConnection {
    /// Checks `host`, `host:port`, `::1` or `[::1]:port`.
    pub fn check_node(text: &str) -> Result<(), String> {
        parse_nodes([text].into_iter()).map(drop)
    }

    /// `QUORUM`, `local_one`, …
    pub fn parse_consistency(text: &str) -> Result<Consistency, String> {
        parse_consistency(text)
    }

    /// `none`, `lz4` or `snappy`.
    pub fn parse_compression(text: &str) -> Option<FrameCompression> {
        match text {
            "none" => Some(FrameCompression::None),
            "lz4" => Some(FrameCompression::Lz4),
            "snappy" => Some(FrameCompression::Snappy),
            _ => None,
        }
    }

    /// The addresses as people read them.
    pub fn addresses(&self) -> String {
        self.target().addresses()
    }

    pub(super) fn prepare_limit(&self) -> Duration {
        (2 * CONNECT_TIMEOUT).min(self.request_timeout)
    }

    pub(super) fn target(&self) -> DatabaseTarget {
        let nodes = parse_nodes(self.nodes.iter().map(String::as_str)).unwrap_or_default();
        let mode = ConnectionMode {
            user: self.login.as_ref().map(|login| login.user.clone()),
            password: self.login.as_ref().map(|login| login.password.clone()),
            credentials_file: None,
            compression: self.compression,
            connections_per_host: 1,
            max_pending: None,
            unprepared: false,
            request_timeout: self.request_timeout,
            connect_timeout: CONNECT_TIMEOUT,
        };
        DatabaseTarget::of_scenario(&nodes, mode, self)
    }
}

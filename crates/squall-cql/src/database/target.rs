//! Which database to connect to, and how: from the settings to a session of the driver that is not built yet. It opens
//! no connection; `connect` does.

use super::{
    AttemptTimes, DatabaseConnectError,
    tried_node::{NotedNodes, TriedNode},
};
use crate::{
    ConnectionMode, Consistency, NodeAddress, SerialConsistency, StatementConnection, StressSettings, TlsSettings,
    tls::{NodeAddresses, TlsTunnel, client_config},
};
use scylla::{
    client::{PoolSize, execution_profile::ExecutionProfile, session_builder::SessionBuilder},
    cluster::{Node, metadata::Peer},
    policies::{
        host_filter::HostFilter,
        load_balancing::{DefaultPolicy, LoadBalancingPolicy},
        retry::FallthroughRetryPolicy,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

/// The limit of one step of the preparation on nodes that are alive. TRUNCATE may take them a minute.
const LONGEST_STEP: Duration = Duration::from_secs(120);

/// Which database to connect to, and how; cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseTarget {
    /// Host and port.
    nodes: Arc<[(String, u16)]>,
    /// The port of nodes that are not listed.
    pub(super) port: u16,
    pub(super) mode: ConnectionMode,
    pub(super) tls: Option<TlsSettings>,
    only_listed_nodes: bool,
    pub(super) datacenter: Option<String>,
    rack: Option<String>,
    remote_datacenters: bool,
    pub(super) consistency: Consistency,
    serial_consistency: SerialConsistency,
    attempts: Option<Arc<AttemptTimes>>,
}

/// What a session is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum SessionUse {
    /// Creating tables and preparing statements. Nodes that work are waited for, silent ones are not: the driver
    /// asks them for a sign of life all the time.
    Preparation,
    /// Operations, on this many connections to each node.
    Load(NonZeroUsize),
}

/// Lets the driver use listed nodes only.
struct ListedNodes(BTreeSet<IpAddr>);

impl DatabaseTarget {
    /// `nodes` are those of the settings, read from their file if they name one.
    pub fn new(settings: &StressSettings, nodes: &[NodeAddress]) -> DatabaseTarget {
        let port = settings.nodes.port;
        DatabaseTarget {
            nodes: nodes.iter().map(|node| (node.host.clone(), node.port.unwrap_or(port))).collect(),
            port,
            mode: settings.mode.clone(),
            tls: settings.tls.clone(),
            only_listed_nodes: settings.nodes.whitelist,
            datacenter: settings.nodes.datacenter.clone(),
            rack: settings.nodes.rack.clone(),
            remote_datacenters: settings.nodes.remote_datacenter.is_some(),
            consistency: settings.command.consistency,
            serial_consistency: settings.command.serial_consistency,
            attempts: None,
        }
    }

    /// The database of a scenario. `nodes` and `mode` are those of `connection`.
    pub(crate) fn of_scenario(
        nodes: &[NodeAddress],
        mode: ConnectionMode,
        connection: &StatementConnection,
    ) -> DatabaseTarget {
        DatabaseTarget {
            nodes: nodes.iter().map(|node| (node.host.clone(), node.port.unwrap_or(connection.port))).collect(),
            port: connection.port,
            mode,
            tls: connection.tls.clone(),
            only_listed_nodes: false,
            datacenter: connection.datacenter.clone(),
            rack: None,
            remote_datacenters: false,
            consistency: connection.consistency,
            serial_consistency: SerialConsistency::Serial,
            attempts: None,
        }
    }

    /// The addresses as people read them.
    pub fn addresses(&self) -> String {
        self.nodes.iter().map(|(host, port)| address(host, *port)).collect::<Vec<_>>().join(", ")
    }

    /// The number of listed nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether operations may be sent to a node.
    pub(super) fn uses(&self, node: &Node) -> bool {
        let near = self.remote_datacenters || self.datacenter.is_none() || node.datacenter == self.datacenter;
        node.is_enabled() && near
    }

    /// Adds up the driver's own times of answered requests from now on.
    pub fn measure_attempts(&mut self) -> Arc<AttemptTimes> {
        self.attempts.get_or_insert_default().clone()
    }

    fn noted_nodes(&self, tried: &Arc<TriedNode>) -> NotedNodes {
        NotedNodes::new(self.load_balancing(), tried.clone(), self.attempts.clone())
    }

    fn load_balancing(&self) -> Arc<dyn LoadBalancingPolicy> {
        let policy = DefaultPolicy::builder().permit_dc_failover(self.remote_datacenters);
        match (self.datacenter.clone(), self.rack.clone()) {
            (Some(datacenter), Some(rack)) => policy.prefer_datacenter_and_rack(datacenter, rack).build(),
            (Some(datacenter), None) => policy.prefer_datacenter(datacenter).build(),
            (None, _) => policy.build(),
        }
    }

    /// The addresses of the listed nodes.
    async fn resolve(&self) -> Result<NodeAddresses, DatabaseConnectError> {
        let mut listed = BTreeMap::new();
        for (host, port) in self.nodes.iter() {
            let unknown = |_| DatabaseConnectError::UnknownHost { hosts: address(host, *port) };
            for found in tokio::net::lookup_host((host.as_str(), *port)).await.map_err(unknown)? {
                listed.insert(found.ip(), (host.clone(), *port));
            }
        }
        Ok(NodeAddresses { listed, port: self.port })
    }

    /// The tunnel of a session, if `-transport` asks for TLS.
    pub(super) async fn tunnel(&self) -> Result<Option<Arc<TlsTunnel>>, DatabaseConnectError> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let config = client_config(tls)?;
        Ok(Some(Arc::new(TlsTunnel::new(self.resolve().await?, config, self.mode.connect_timeout))))
    }

    pub(super) async fn session_builder(
        &self,
        usage: SessionUse,
        tried: &Arc<TriedNode>,
        tunnel: Option<&Arc<TlsTunnel>>,
    ) -> Result<SessionBuilder, DatabaseConnectError> {
        let request_timeout = match usage {
            SessionUse::Preparation => LONGEST_STEP.max(self.mode.request_timeout),
            SessionUse::Load(_) => self.mode.request_timeout,
        };
        let profile = ExecutionProfile::builder()
            .consistency(self.consistency.into())
            .serial_consistency(Some(self.serial_consistency.into()))
            .request_timeout(Some(request_timeout))
            // `-errors retries=` counts tries itself.
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .load_balancing_policy(Arc::new(self.noted_nodes(tried)))
            .build();
        let mut builder = SessionBuilder::new()
            .connection_timeout(self.mode.connect_timeout)
            .compression(self.mode.compression.of_driver())
            .pool_size(PoolSize::PerHost(usage.connections()))
            .default_execution_profile_handle(profile.into_handle());
        if let SessionUse::Preparation = usage {
            let silence = self.mode.connect_timeout;
            builder = builder.keepalive_interval(silence / 2).keepalive_timeout(silence);
            // The driver would try again for a minute on a silent node.
            builder = builder.auto_await_schema_agreement(false);
        }
        if let Some(user) = &self.mode.user {
            builder = builder.user(user, self.mode.password.clone().unwrap_or_default());
        }
        if self.only_listed_nodes {
            let listed = self.resolve().await?.listed.into_keys().collect();
            builder = builder.host_filter(Arc::new(ListedNodes(listed)));
        }
        builder = match tunnel {
            Some(tunnel) => {
                let loopback = tunnel.listed().map_err(|error| self.refused(error.to_string()))?;
                // The driver would dial the ports of a node's shards without TLS.
                let builder = builder.known_nodes_addr(loopback).disallow_shard_aware_port(true);
                builder.address_translator(tunnel.clone())
            }
            None => builder.known_nodes(self.nodes.iter().map(|(host, port)| address(host, *port))),
        };
        Ok(builder)
    }
}

impl SessionUse {
    pub(super) fn connections(self) -> NonZeroUsize {
        match self {
            SessionUse::Preparation => NonZeroUsize::MIN,
            SessionUse::Load(connections) => connections,
        }
    }
}

impl HostFilter for ListedNodes {
    fn accept(&self, peer: &Peer) -> bool {
        self.0.contains(&peer.address.ip())
    }
}

/// A node as people read it.
pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

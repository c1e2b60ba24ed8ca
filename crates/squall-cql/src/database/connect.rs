//! Connects to every node of the database, within a time limit. It retries nothing: a node that
//! refuses, stays silent or wants another password is an error.

use super::{
    AttemptTimes, OperationError, innermost_message,
    tried_node::{NodeKey, NotedNodes, TriedNode, TriedRequest},
};
use crate::{
    ConnectionMode, Consistency, NodeAddress, SerialConsistency, StatementConnection, StressSettings, TlsSettings,
    TlsStoreError,
    tls::{NodeAddresses, TlsTunnel, client_config},
};
use scylla::{
    client::{PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    cluster::{Node, metadata::Peer},
    errors::NewSessionError,
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
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often the state of the nodes is read while they connect.
const NODE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The limit of one step of the preparation on nodes that are alive. TRUNCATE may take them a minute.
const LONGEST_STEP: Duration = Duration::from_secs(120);

/// Which database to connect to, and how; cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseTarget {
    /// Host and port.
    nodes: Arc<[(String, u16)]>,
    /// The port of nodes that are not listed.
    port: u16,
    mode: ConnectionMode,
    tls: Option<TlsSettings>,
    only_listed_nodes: bool,
    datacenter: Option<String>,
    rack: Option<String>,
    remote_datacenters: bool,
    consistency: Consistency,
    serial_consistency: SerialConsistency,
    attempts: Option<Arc<AttemptTimes>>,
}

/// A connected database.
pub struct Database {
    pub(crate) session: Session,
    tried: Arc<TriedNode>,
    /// Of statements without a level of their own.
    consistency: Consistency,
    /// A node that has not answered for this long is silent.
    pub(super) silence: Duration,
}

/// What a session is for.
#[derive(Debug, Clone, Copy)]
enum SessionUse {
    /// Creating tables and preparing statements. Nodes that work are waited for, silent ones are not: the driver
    /// asks them for a sign of life all the time.
    Preparation,
    /// Operations, on this many connections to each node.
    Load(NonZeroUsize),
}

/// Lets the driver use listed nodes only.
struct ListedNodes(BTreeSet<IpAddr>);

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseHost {
    pub address: String,
    pub datacenter: String,
    pub rack: String,
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseConnectError {
    #[error("{nodes} did not answer within {} s: check -node and -port native=", limit.as_secs_f64())]
    Silent { nodes: String, limit: Duration },
    #[error("cannot connect to {nodes}: {reason}")]
    Refused { nodes: String, reason: String },
    #[error("{nodes} wants a password: add -mode native cql3 user=NAME password=WORD")]
    PasswordNeeded { nodes: String },
    #[error("cannot resolve {hosts}: check -node")]
    UnknownHost { hosts: String },
    #[error(
        "node {node} belongs to the cluster and cannot be connected: \
         start it, or use -node with whitelist to leave it out"
    )]
    NodeDown { node: String },
    #[error(
        "{open} of {wanted} connections stand after {} s: the nodes may limit their number, or need longer; \
         use a lower -mode connectionsPerHost= or a higher connectTimeout=", limit.as_secs_f64()
    )]
    MissingConnections { open: u64, wanted: u64, limit: Duration },
    #[error("no node of the cluster is in the data centre {datacenter}: it has {known}")]
    UnknownDatacenter { datacenter: String, known: String },
    #[error(transparent)]
    Tls(#[from] TlsStoreError),
}

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
    fn uses(&self, node: &Node) -> bool {
        let near = self.remote_datacenters || self.datacenter.is_none() || node.datacenter == self.datacenter;
        node.is_enabled() && near
    }

    /// The driver asks one node after the other for the list of all nodes, and waits for ever for one that is
    /// silent. It does not tell which one that is.
    fn silent(&self, limit: Duration) -> DatabaseConnectError {
        let one_of = if self.node_count() > 1 { "one of " } else { "" };
        DatabaseConnectError::Silent { nodes: format!("{one_of}{}", self.addresses()), limit }
    }

    /// The driver's text about a missing password names functions of its own.
    fn refused(&self, reason: String) -> DatabaseConnectError {
        let nodes = self.addresses();
        match reason.contains("Authentication is required") {
            true => DatabaseConnectError::PasswordNeeded { nodes },
            false => DatabaseConnectError::Refused { nodes, reason },
        }
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
    async fn tunnel(&self) -> Result<Option<Arc<TlsTunnel>>, DatabaseConnectError> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let config = client_config(tls)?;
        Ok(Some(Arc::new(TlsTunnel::new(self.resolve().await?, config, self.mode.connect_timeout))))
    }

    async fn session_builder(
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
    fn connections(self) -> NonZeroUsize {
        match self {
            SessionUse::Preparation => NonZeroUsize::MIN,
            SessionUse::Load(connections) => connections,
        }
    }
}

impl Database {
    /// Connects to every node with this many connections each. All of them stand when it returns.
    pub async fn connect(target: &DatabaseTarget, connections: NonZeroUsize) -> Result<Database, DatabaseConnectError> {
        Database::connect_for(target, SessionUse::Load(connections)).await
    }

    /// Connects to every node to create tables and to prepare statements.
    pub async fn connect_to_prepare(target: &DatabaseTarget) -> Result<Database, DatabaseConnectError> {
        Database::connect_for(target, SessionUse::Preparation).await
    }

    async fn connect_for(target: &DatabaseTarget, usage: SessionUse) -> Result<Database, DatabaseConnectError> {
        let (began, limit) = (Instant::now(), target.mode.connect_limit());
        let tried = Arc::default();
        // A resolver may be as silent as a node.
        let resolving = async {
            let tunnel = target.tunnel().await?;
            let builder = target.session_builder(usage, &tried, tunnel.as_ref()).await?;
            Ok::<_, DatabaseConnectError>((tunnel, builder))
        };
        let resolved = tokio::time::timeout(limit, resolving).await;
        let unresolved = |_| DatabaseConnectError::UnknownHost { hosts: target.addresses() };
        let (tunnel, builder) = resolved.map_err(unresolved)??;
        // The driver's own limit covers only TCP: a listener that never answers would block for ever.
        let built = tokio::time::timeout(limit, builder.build()).await;
        let session = built.map_err(|_| target.silent(limit))?.map_err(|error| {
            // The driver only knows that the connection to the tunnel ended.
            match (tunnel.and_then(|tunnel| tunnel.failure()), &error) {
                (Some(reason), _) => target.refused(reason),
                (None, NewSessionError::FailedToResolveAnyHostname(hosts)) => {
                    DatabaseConnectError::UnknownHost { hosts: hosts.join(", ") }
                }
                (None, _) => match innermost_message(&error) {
                    reason if reason.contains("keepalive") => target.silent(target.mode.connect_timeout),
                    reason => target.refused(reason),
                },
            }
        })?;
        let (consistency, silence) = (target.consistency, target.mode.connect_timeout);
        let database = Database { session, tried, consistency, silence };
        database.check_datacenter(target)?;
        while let Some(missing) = database.missing(target, usage.connections(), limit) {
            if began.elapsed() >= limit {
                return Err(missing);
            }
            tokio::time::sleep(NODE_CHECK_INTERVAL).await;
        }
        Ok(database)
    }

    /// What is not connected yet.
    fn missing(
        &self,
        target: &DatabaseTarget,
        connections: NonZeroUsize,
        limit: Duration,
    ) -> Option<DatabaseConnectError> {
        if let Some(node) = self.unconnected_node(target) {
            return Some(DatabaseConnectError::NodeDown { node });
        }
        // The driver also counts the connections to nodes that no operation is sent to.
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().filter(|node| node.is_enabled() && node.is_connected()).count();
        let (open, wanted) = (self.session.get_metrics().get_total_connections(), (nodes * connections.get()) as u64);
        (open < wanted).then_some(DatabaseConnectError::MissingConnections { open, wanted, limit })
    }

    pub fn cluster_name(&self) -> String {
        self.session.get_cluster_state().cluster_name().to_owned()
    }

    /// The nodes of the cluster, by address.
    pub fn hosts(&self) -> Vec<DatabaseHost> {
        let state = self.session.get_cluster_state();
        let mut hosts: Vec<DatabaseHost> = state
            .get_nodes_info()
            .iter()
            .map(|node| DatabaseHost {
                address: node.address.ip().to_string(),
                datacenter: node.datacenter.clone().unwrap_or_default(),
                rack: node.rack.clone().unwrap_or_default(),
            })
            .collect();
        hosts.sort_by(|a, b| a.address.cmp(&b.address));
        hosts
    }

    /// Waits for the answer to a request. The message of its error names the node that the driver tried last, its
    /// data centre, and the consistency level: that of the database, unless the statement has its own.
    pub(crate) async fn with_node<T>(
        &self,
        consistency: Option<Consistency>,
        request: Pin<&mut impl Future<Output = Result<T, OperationError>>>,
    ) -> (Result<T, OperationError>, TriedRequest) {
        let (answer, sent) = self.tried.follow(request).await;
        let answer = answer.map_err(|error| match sent.node.and_then(|node| self.node_place(node)) {
            Some((address, datacenter)) => {
                let level = consistency.unwrap_or(self.consistency);
                let place = format!("(node {address}, data centre {datacenter}, consistency {level})");
                OperationError { message: format!("{} {place}", error.message), ..error }
            }
            None => error,
        });
        (answer, sent)
    }

    /// The address and the data centre of a node.
    pub(crate) fn node_place(&self, key: NodeKey) -> Option<(IpAddr, String)> {
        let state = self.session.get_cluster_state();
        let node = state.get_nodes_info().iter().find(|node| NodeKey::of(node) == key)?;
        Some((node.address.ip(), node.datacenter.as_deref().unwrap_or("unknown").to_owned()))
    }

    /// How many nodes operations are sent to.
    pub(crate) fn used_nodes(&self, target: &DatabaseTarget) -> usize {
        let state = self.session.get_cluster_state();
        state.get_nodes_info().iter().filter(|node| target.uses(node)).count()
    }

    /// The tokens of all nodes.
    pub(crate) fn ring_tokens(&self) -> Vec<i64> {
        self.session.get_cluster_state().replica_locator().ring().iter().map(|(token, _)| token.value()).collect()
    }

    /// A node that operations may need and that is not connected.
    fn unconnected_node(&self, target: &DatabaseTarget) -> Option<String> {
        let state = self.session.get_cluster_state();
        let mut nodes = state.get_nodes_info().iter().filter(|node| target.uses(node));
        // With TLS the driver knows the port of the tunnel instead of the node's.
        let port = |node: &Node| if target.tls.is_some() { target.port } else { node.address.port() };
        nodes.find(|node| !node.is_connected()).map(|node| address(&node.address.ip().to_string(), port(node)))
    }

    fn check_datacenter(&self, target: &DatabaseTarget) -> Result<(), DatabaseConnectError> {
        let Some(datacenter) = &target.datacenter else { return Ok(()) };
        let mut known: Vec<String> = self.hosts().into_iter().map(|host| host.datacenter).collect();
        known.sort();
        known.dedup();
        if known.contains(datacenter) {
            return Ok(());
        }
        Err(DatabaseConnectError::UnknownDatacenter { datacenter: datacenter.clone(), known: known.join(", ") })
    }
}

impl HostFilter for ListedNodes {
    fn accept(&self, peer: &Peer) -> bool {
        self.0.contains(&peer.address.ip())
    }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqlCommand, parse_command_line};
    use std::net::TcpListener;

    fn target(mode: &str, ports: &[u16]) -> DatabaseTarget {
        let line = format!("write n=1 -mode native cql3 {mode}");
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(&[line]) else { panic!("{mode}") };
        let node = |port: &u16| NodeAddress { host: "127.0.0.1".to_owned(), port: Some(*port) };
        DatabaseTarget::new(&settings, &ports.iter().map(node).collect::<Vec<_>>())
    }

    #[test]
    fn all_nodes_together_have_twice_the_connect_timeout() {
        assert_eq!(target("", &[9042]).mode.connect_limit(), Duration::from_secs(10));
        assert_eq!(target("connectTimeout=30000", &[9042]).mode.connect_limit(), Duration::from_secs(60));
    }

    #[tokio::test]
    async fn one_of_several_nodes_is_silent() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [first, second] = [0, 1].map(|i: usize| listeners[i].local_addr().expect("bound").port());
        let target = target("connectTimeout=100", &[first, second]);
        let connected = Database::connect_to_prepare(&target).await;
        let error = connected.err().expect("nothing answers").to_string();
        let nodes = format!("127.0.0.1:{first}, 127.0.0.1:{second}");
        assert_eq!(error, format!("one of {nodes} did not answer within 0.2 s: check -node and -port native="));
    }
}

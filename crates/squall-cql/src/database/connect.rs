//! Connects to every node of the database, within a time limit. It retries nothing: a node that
//! refuses, stays silent or wants another password is an error.

use super::{
    DatabaseTarget, OperationError, innermost_message,
    target::{SessionUse, address},
    tried_node::{NodeKey, TriedNode, TriedRequest},
};
use crate::{Consistency, TlsStoreError};
use scylla::{client::session::Session, cluster::Node, errors::NewSessionError};
use std::{
    net::IpAddr,
    num::NonZeroUsize,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often the state of the nodes is read while they connect.
const NODE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A connected database.
pub struct Database {
    pub(crate) session: Session,
    tried: Arc<TriedNode>,
    /// Of statements without a level of their own.
    consistency: Consistency,
    /// A node that has not answered for this long is silent.
    pub(super) silence: Duration,
}

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
    /// The driver asks one node after the other for the list of all nodes, and waits for ever for one that is
    /// silent. It does not tell which one that is.
    fn silent(&self, limit: Duration) -> DatabaseConnectError {
        let one_of = if self.node_count() > 1 { "one of " } else { "" };
        DatabaseConnectError::Silent { nodes: format!("{one_of}{}", self.addresses()), limit }
    }

    /// The driver's text about a missing password names functions of its own.
    pub(super) fn refused(&self, reason: String) -> DatabaseConnectError {
        let nodes = self.addresses();
        match reason.contains("Authentication is required") {
            true => DatabaseConnectError::PasswordNeeded { nodes },
            false => DatabaseConnectError::Refused { nodes, reason },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqlCommand, NodeAddress, parse_command_line};
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

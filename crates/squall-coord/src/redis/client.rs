//! Connections to Redis or Valkey: commands share one, blocking reads have their own. One server, Sentinel or a cluster.
//! Refuses to show logins; [`super::connection_addr`] reads addresses, [`super::connection`] keeps the shared connection.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection,
    cluster_async::ClusterConnection,
};

use super::{
    address::{self, RedisAddress, redact_address},
    shared_connection::{ServerLocator, SharedConnection},
};

/// How long an ordinary command may take before it counts as unanswered.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that a blocking read on a cluster may take: its timeout is of the connection, not of the command.
const MAX_BLOCKING_READ: Duration = Duration::from_secs(60);
/// How often a cluster command follows a redirection or tries another connection.
const CLUSTER_RETRIES: u32 = 5;

/// The server's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RedisConnectError {
    /// Not an address.
    #[error(
        "`{url}` is not a Redis address; write it as redis://host:port/db, rediss://…?ca=FILE, unix:///path, \
         redis+sentinel://host:port,host:port/master/db or redis-cluster://host:port,host:port"
    )]
    InvalidAddress {
        /// What was given, without its password.
        url: String,
        /// What is wrong with it.
        #[source]
        source: RedisError,
    },
    /// Nobody there, or not let in.
    #[error("cannot connect to Redis at {url}; is the server running, and are user and password right?")]
    Connect {
        /// The address, without its password.
        url: String,
        /// What happened.
        #[source]
        source: RedisError,
    },
}

/// A server to talk to. Clones share the command connection, which reconnects by itself.
#[derive(Clone)]
pub struct RedisClient {
    address: Arc<RedisAddress>,
    connection: SharedConnection,
    url: Arc<str>,
}

impl RedisClient {
    /// Connects, or says why not.
    ///
    /// | address | to |
    /// |---|---|
    /// | `redis://user:password@host:port/db` | one server; user, password, port and db may be left out |
    /// | `rediss://…?ca=FILE&cert=FILE&key=FILE` | the same by TLS; `ca` instead of the system's authorities, `cert` and `key` to be known by; `insecure=true` trusts anybody |
    /// | `unix:///path?db=1&user=…&pass=…` | one server by its socket |
    /// | `redis+sentinel://user:password@host:port,…/master/db?sentinel_user=…&sentinel_password=…` | whichever server these Sentinels call `master`; `rediss+sentinel` by TLS, options as above |
    /// | `redis-cluster://user:password@host:port,…` | a cluster that these nodes know; `rediss-cluster` by TLS, options as above |
    pub async fn open(url: &str) -> Result<Self, RedisConnectError> {
        let address = RedisAddress::parse(url)
            .map_err(|source| RedisConnectError::InvalidAddress { url: redact_address(url), source })?;
        if address.tls().is_enabled() {
            // Whoever was first has decided; there is only one provider in this program.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let connect_error = |source| RedisConnectError::Connect { url: redact_address(url), source };
        let mut connection = connect(&address).await.map_err(connect_error)?;
        // A server that wants a login lets anybody connect; other errors may pass (it is still loading, say).
        if let Err(error) = redis::cmd("PING").query_async::<redis::Value>(&mut connection).await
            && error.code() == Some("NOAUTH")
        {
            return Err(connect_error(error));
        }
        Ok(Self { address: Arc::new(address), connection, url: redact_address(url).into() })
    }

    /// The shared connection, for commands that answer at once.
    pub fn connection(&self) -> SharedConnection {
        self.connection.clone()
    }

    /// The address without its password, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether keys of one command must share a hash slot.
    pub fn is_cluster(&self) -> bool {
        matches!(*self.address, RedisAddress::Cluster { .. })
    }

    /// A connection of its own for subscriptions, opened now. On a cluster it is one to any node, and every node hears what
    /// is published on any other. It ends with its server; whoever listens opens another and reads what it has missed.
    pub async fn open_pubsub(&self) -> Result<redis::aio::PubSub, RedisError> {
        match &*self.address {
            RedisAddress::Server { url, tls } => address::server_client(url, tls)?.get_async_pubsub().await,
            RedisAddress::Sentinel { .. } => {
                address::sentinel_client(&self.address)?.async_get_client().await?.get_async_pubsub().await
            }
            RedisAddress::Cluster { nodes, login, tls } => {
                let mut pubsub = Err(RedisError::from((redis::ErrorKind::Client, "the cluster has no nodes")));
                for node in nodes {
                    pubsub = address::node_client(node, login, tls)?.get_async_pubsub().await;
                    if pubsub.is_ok() {
                        break;
                    }
                }
                pubsub
            }
        }
    }

    /// A connection of its own for commands that wait; opened at first use and again after an error.
    pub fn blocking_connection(&self) -> BlockingConnection {
        BlockingConnection { address: self.address.clone(), connection: None }
    }
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisClient({})", self.url)
    }
}

async fn connect(address: &RedisAddress) -> Result<SharedConnection, RedisError> {
    match address {
        RedisAddress::Server { url, tls } => {
            SharedConnection::server(ServerLocator::Address(address::server_client(url, tls)?)).await
        }
        RedisAddress::Sentinel { .. } => {
            SharedConnection::server(ServerLocator::Sentinels(address::sentinel_client(address)?)).await
        }
        RedisAddress::Cluster { .. } => {
            Ok(SharedConnection::cluster(connect_cluster(address, RESPONSE_TIMEOUT).await?))
        }
    }
}

async fn connect_cluster(address: &RedisAddress, response_timeout: Duration) -> Result<ClusterConnection, RedisError> {
    let RedisAddress::Cluster { nodes, login, tls } = address else { unreachable!("only called for clusters") };
    address::cluster_client_builder(nodes, login, tls)?
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(response_timeout)
        .overall_response_timeout(None)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(20)
        .max_retry_wait(500)
        .build()?
        .get_async_connection()
        .await
}

/// A connection on which one command at a time may wait at the server.
pub struct BlockingConnection {
    address: Arc<RedisAddress>,
    connection: Option<BlockingConnectionKind>,
}

enum BlockingConnectionKind {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl BlockingConnection {
    /// Sends a command that waits for up to `within` at the server.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd, within: Duration) -> Result<T, RedisError> {
        // Out of its place meanwhile: whoever gives up waiting leaves a connection behind that is still blocked.
        let mut connection = self.take_or_connect().await?;
        let reading = async {
            match &mut connection {
                BlockingConnectionKind::Server(connection) => command.query_async(connection).await,
                BlockingConnectionKind::Cluster(connection) => command.query_async(connection).await,
            }
        };
        // Twice the wait and some: only a server that is gone takes so long.
        let reply = tokio::time::timeout(within * 2 + RESPONSE_TIMEOUT, reading).await;
        let reply = reply.unwrap_or_else(|_| Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))));
        if reply.is_ok() {
            self.connection = Some(connection);
        }
        reply
    }

    /// The server's number for this connection, to unblock it from another. A cluster has no such numbers.
    pub async fn client_id(&mut self) -> Result<i64, RedisError> {
        let mut connection = self.take_or_connect().await?;
        let BlockingConnectionKind::Server(server) = &mut connection else {
            self.connection = Some(connection);
            return Err(RedisError::from((redis::ErrorKind::Client, "connections to a cluster have no number")));
        };
        let id = redis::cmd("CLIENT").arg("ID").query_async(server).await?;
        self.connection = Some(connection);
        Ok(id)
    }

    async fn take_or_connect(&mut self) -> Result<BlockingConnectionKind, RedisError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(CONNECT_TIMEOUT));
        Ok(match &*self.address {
            RedisAddress::Server { url, tls } => {
                let client = address::server_client(url, tls)?;
                BlockingConnectionKind::Server(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            RedisAddress::Sentinel { .. } => {
                let mut sentinels = address::sentinel_client(&self.address)?;
                BlockingConnectionKind::Server(sentinels.get_async_connection_with_config(&config).await?)
            }
            RedisAddress::Cluster { .. } => {
                BlockingConnectionKind::Cluster(connect_cluster(&self.address, MAX_BLOCKING_READ).await?)
            }
        })
    }
}

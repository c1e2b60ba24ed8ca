//! Connections to Redis or Valkey: one server, Sentinel or a cluster. Commands share one
//! connection; each blocking read has its own.
//! It never shows credentials. The `address` module parses addresses, and [`SharedConnection`]
//! keeps the shared connection alive.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection,
    cluster_async::ClusterConnection,
};

use super::{
    address::{self, RedisAddress, redact_address},
    shared_connection::{ServerLocator, SharedConnection},
};

/// How long an ordinary command may take.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest blocking read on a cluster, where the timeout belongs to the connection and not to
/// the command.
const MAX_BLOCKING_READ: Duration = Duration::from_secs(60);
/// How often a cluster command follows a redirection or tries another connection.
const CLUSTER_RETRIES: u32 = 5;

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
pub enum RedisConnectError {
    /// The address is invalid.
    #[error(
        "`{url}` is not a Redis address; write it as redis://host:port/db, rediss://…?ca=FILE, unix:///path, \
         redis+sentinel://host:port,host:port/master/db or redis-cluster://host:port,host:port"
    )]
    InvalidAddress {
        /// The address, without credentials.
        url: String,
        /// The reason.
        #[source]
        source: RedisError,
    },
    /// The server is unreachable, or rejects the credentials.
    #[error("cannot connect to Redis at {url}; is the server running, and are user and password right?")]
    Connect {
        /// The address, without its password.
        url: String,
        /// The cause.
        #[source]
        source: RedisError,
    },
}

/// A client of a Redis server. Clones share the command connection, which reconnects by itself.
#[derive(Clone)]
pub struct RedisClient {
    address: Arc<RedisAddress>,
    connection: SharedConnection,
    url: Arc<str>,
}

impl RedisClient {
    /// Connects to the server at `url`.
    ///
    /// | address | connects to |
    /// |---|---|
    /// | `redis://user:password@host:port/db` | one server; all but the host is optional |
    /// | `rediss://…?ca=FILE&cert=FILE&key=FILE` | the same with TLS |
    /// | `unix:///path?db=1&user=…&pass=…` | one server through its socket |
    /// | `redis+sentinel://user:password@host:port,…/master/db` | the server that these Sentinels call `master` |
    /// | `redis-cluster://user:password@host:port,…` | the cluster of these nodes |
    ///
    /// `ca` replaces the system's certificate authorities, `cert` and `key` are the client's
    /// certificate, and `insecure=true` accepts any server certificate. `rediss+sentinel` and
    /// `rediss-cluster` use TLS with the same options. `sentinel_user` and `sentinel_password` are
    /// the credentials of the Sentinels.
    pub async fn open(url: &str) -> Result<Self, RedisConnectError> {
        let address = RedisAddress::parse(url)
            .map_err(|source| RedisConnectError::InvalidAddress { url: redact_address(url), source })?;
        if address.tls().is_enabled() {
            // Fails if a provider is installed already, which is fine: this program has only one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let connect_error = |source| RedisConnectError::Connect { url: redact_address(url), source };
        let mut connection = connect(&address).await.map_err(connect_error)?;
        // A server with a password accepts connections without one. Other errors may pass, for
        // example while the server loads its data.
        if let Err(error) = redis::cmd("PING").query_async::<redis::Value>(&mut connection).await
            && error.code() == Some("NOAUTH")
        {
            return Err(connect_error(error));
        }
        Ok(Self { address: Arc::new(address), connection, url: redact_address(url).into() })
    }

    /// The shared connection, for commands that return at once.
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

    /// Opens a connection for subscriptions. On a cluster it leads to any node, because nodes
    /// forward published messages to each other. It ends with its server; the subscriber then opens
    /// another one and catches up.
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

    /// A connection for blocking commands, opened at first use and again after an error.
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

/// A connection on which one command at a time may block at the server.
pub struct BlockingConnection {
    address: Arc<RedisAddress>,
    connection: Option<BlockingConnectionKind>,
}

enum BlockingConnectionKind {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl BlockingConnection {
    /// Sends a command that blocks for up to `within` at the server.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd, within: Duration) -> Result<T, RedisError> {
        // Taken out meanwhile: if the caller drops this future, the connection is still blocked and
        // must not be reused.
        let mut connection = self.take_or_connect().await?;
        let reading = async {
            match &mut connection {
                BlockingConnectionKind::Server(connection) => command.query_async(connection).await,
                BlockingConnectionKind::Cluster(connection) => command.query_async(connection).await,
            }
        };
        // More than twice the wait: only a dead server takes longer.
        let reply = tokio::time::timeout(within * 2 + RESPONSE_TIMEOUT, reading).await;
        let reply = reply.unwrap_or_else(|_| Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))));
        if reply.is_ok() {
            self.connection = Some(connection);
        }
        reply
    }

    /// The server's id of this connection, with which another connection can unblock it. A cluster
    /// has no such ids.
    pub async fn client_id(&mut self) -> Result<i64, RedisError> {
        let mut connection = self.take_or_connect().await?;
        let BlockingConnectionKind::Server(server) = &mut connection else {
            self.connection = Some(connection);
            return Err(RedisError::from((redis::ErrorKind::Client, "connections to a cluster have no id")));
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

//! Connections to Redis or Valkey: commands share one, blocking reads have their own. One server, Sentinel or a cluster.
//! Refuses to show logins; [`super::address`] reads addresses, [`super::commands`] keeps the shared connection.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection,
    cluster_async::ClusterConnection,
};

use super::{
    address::{self, Address, shown},
    commands::{Commands, Source},
};

/// How long an ordinary command may take before it counts as unanswered.
pub(super) const ANSWER: Duration = Duration::from_secs(3);
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// The longest that a blocking read on a cluster may take: its timeout is of the connection, not of the command.
const LONGEST_READ: Duration = Duration::from_secs(60);
/// How often a cluster command follows a redirection or tries another connection.
const REDIRECTIONS: u32 = 5;

/// The server's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Not an address.
    #[error(
        "`{url}` is not a Redis address; write it as redis://host:port/db, rediss://…?ca=FILE, unix:///path, \
         redis+sentinel://host:port,host:port/master/db or redis-cluster://host:port,host:port"
    )]
    Address {
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
pub struct Link {
    address: Arc<Address>,
    commands: Commands,
    url: Arc<str>,
}

impl Link {
    /// Connects, or says why not.
    ///
    /// | address | to |
    /// |---|---|
    /// | `redis://user:password@host:port/db` | one server; user, password, port and db may be left out |
    /// | `rediss://…?ca=FILE&cert=FILE&key=FILE` | the same by TLS; `ca` instead of the system's authorities, `cert` and `key` to be known by; `insecure=true` trusts anybody |
    /// | `unix:///path?db=1&user=…&pass=…` | one server by its socket |
    /// | `redis+sentinel://user:password@host:port,…/master/db?sentinel_user=…&sentinel_password=…` | whichever server these Sentinels call `master`; `rediss+sentinel` by TLS, options as above |
    /// | `redis-cluster://user:password@host:port,…` | a cluster that these nodes know; `rediss-cluster` by TLS, options as above |
    pub async fn open(url: &str) -> Result<Self, LinkError> {
        let address = Address::parse(url).map_err(|source| LinkError::Address { url: shown(url), source })?;
        if address.tls().is_on() {
            // Whoever was first has decided; there is only one provider in this program.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let refused = |source| LinkError::Connect { url: shown(url), source };
        let mut commands = connect(&address).await.map_err(refused)?;
        // A server that wants a login lets anybody connect; other errors may pass (it is still loading, say).
        if let Err(error) = redis::cmd("PING").query_async::<redis::Value>(&mut commands).await
            && error.code() == Some("NOAUTH")
        {
            return Err(refused(error));
        }
        Ok(Self { address: Arc::new(address), commands, url: shown(url).into() })
    }

    /// The shared connection, for commands that answer at once.
    pub fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// The address without its password, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether keys of one command must share a hash slot.
    pub fn is_cluster(&self) -> bool {
        matches!(*self.address, Address::Cluster { .. })
    }

    /// A connection of its own for subscriptions, opened now. On a cluster it is one to any node, and every node hears what
    /// is published on any other. It ends with its server; whoever listens opens another and reads what it has missed.
    pub async fn subscriptions(&self) -> Result<redis::aio::PubSub, RedisError> {
        match &*self.address {
            Address::Server { url, tls } => address::client(url, tls)?.get_async_pubsub().await,
            Address::Sentinel { .. } => {
                address::sentinel(&self.address)?.async_get_client().await?.get_async_pubsub().await
            }
            Address::Cluster { nodes, login, tls } => {
                let mut outcome = Err(RedisError::from((redis::ErrorKind::Client, "the cluster has no nodes")));
                for node in nodes {
                    outcome = address::node_client(node, login, tls)?.get_async_pubsub().await;
                    if outcome.is_ok() {
                        break;
                    }
                }
                outcome
            }
        }
    }

    /// A connection of its own for commands that wait; opened at first use and again after an error.
    pub fn blocking(&self) -> BlockingLink {
        BlockingLink { address: self.address.clone(), connection: None }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.url)
    }
}

async fn connect(address: &Address) -> Result<Commands, RedisError> {
    match address {
        Address::Server { url, tls } => Commands::server(Source::Address(address::client(url, tls)?)).await,
        Address::Sentinel { .. } => Commands::server(Source::Sentinels(address::sentinel(address)?)).await,
        Address::Cluster { .. } => Ok(Commands::cluster(cluster(address, ANSWER).await?)),
    }
}

async fn cluster(address: &Address, answer: Duration) -> Result<ClusterConnection, RedisError> {
    let Address::Cluster { nodes, login, tls } = address else { unreachable!("only called for clusters") };
    address::cluster(nodes, login, tls)?
        .connection_timeout(CONNECT)
        .response_timeout(answer)
        .overall_response_timeout(None)
        .retries(REDIRECTIONS)
        .min_retry_wait(20)
        .max_retry_wait(500)
        .build()?
        .get_async_connection()
        .await
}

/// A connection on which one command at a time may wait at the server.
pub struct BlockingLink {
    address: Arc<Address>,
    connection: Option<Waiting>,
}

enum Waiting {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl BlockingLink {
    /// Sends a command that waits for up to `within` at the server.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd, within: Duration) -> Result<T, RedisError> {
        // Out of its place meanwhile: whoever gives up waiting leaves a connection behind that is still blocked.
        let mut connection = self.connected().await?;
        let reading = async {
            match &mut connection {
                Waiting::Server(connection) => command.query_async(connection).await,
                Waiting::Cluster(connection) => command.query_async(connection).await,
            }
        };
        // Twice the wait and some: only a server that is gone takes so long.
        let answer = tokio::time::timeout(within * 2 + ANSWER, reading).await;
        let answer =
            answer.unwrap_or_else(|_| Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))));
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }

    /// The server's number for this connection, to unblock it from another. A cluster has no such numbers.
    pub async fn client_id(&mut self) -> Result<i64, RedisError> {
        let mut connection = self.connected().await?;
        let Waiting::Server(server) = &mut connection else {
            self.connection = Some(connection);
            return Err(RedisError::from((redis::ErrorKind::Client, "connections to a cluster have no number")));
        };
        let id = redis::cmd("CLIENT").arg("ID").query_async(server).await?;
        self.connection = Some(connection);
        Ok(id)
    }

    async fn connected(&mut self) -> Result<Waiting, RedisError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(CONNECT));
        Ok(match &*self.address {
            Address::Server { url, tls } => {
                let client = address::client(url, tls)?;
                Waiting::Server(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Address::Sentinel { .. } => {
                let mut sentinels = address::sentinel(&self.address)?;
                Waiting::Server(sentinels.get_async_connection_with_config(&config).await?)
            }
            Address::Cluster { .. } => Waiting::Cluster(cluster(&self.address, LONGEST_READ).await?),
        })
    }
}

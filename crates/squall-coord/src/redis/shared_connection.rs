//! The connection that all commands of a client share: to one server, to the current master of a
//! Sentinel group, or to a cluster. It reconnects by itself after a failure.
//! It does not repeat a command that may have been performed, because only the caller knows whether
//! a repetition is harmless. The cluster client does repeat commands after a redirection or a
//! broken connection; every script of this crate tolerates that.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    sentinel::SentinelClient,
};

use super::{
    client::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT},
    is_transient,
};

/// Pause before the next connection attempt; doubled each time, up to the maximum.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Connection attempts before a command fails.
const CONNECT_ATTEMPTS: u32 = 5;

/// The shared connection of a [`super::RedisClient`]. Clones share it.
#[derive(Clone)]
pub struct SharedConnection(SharedConnectionKind);

#[derive(Clone)]
enum SharedConnectionKind {
    Server(Arc<ServerConnection>),
    Cluster(ClusterConnection),
}

impl SharedConnection {
    /// Connects to the server that `locator` finds.
    pub(super) async fn server(locator: ServerLocator) -> Result<Self, RedisError> {
        let has_failover = matches!(locator, ServerLocator::Sentinels(_));
        let server =
            ServerConnection { has_failover, state: Mutex::default(), locator: tokio::sync::Mutex::new(locator) };
        server.connection().await?;
        Ok(Self(SharedConnectionKind::Server(Arc::new(server))))
    }

    pub(super) fn cluster(connection: ClusterConnection) -> Self {
        Self(SharedConnectionKind::Cluster(connection))
    }
}

impl ConnectionLike for SharedConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match &mut self.0 {
            SharedConnectionKind::Cluster(connection) => connection.req_packed_command(command),
            SharedConnectionKind::Server(server) => Box::pin(async move {
                let (mut connection, number) = server.connection().await?;
                server.discard_if_broken(connection.req_packed_command(command).await, number)
            }),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match &mut self.0 {
            SharedConnectionKind::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
            SharedConnectionKind::Server(server) => Box::pin(async move {
                let (mut connection, number) = server.connection().await?;
                server.discard_if_broken(connection.req_packed_commands(pipeline, offset, count).await, number)
            }),
        }
    }

    /// Unused: the database is part of the address.
    fn get_db(&self) -> i64 {
        0
    }
}

/// How to find the server.
pub(super) enum ServerLocator {
    Address(Client),
    /// The server that the Sentinels call the master.
    Sentinels(SentinelClient),
}

impl ServerLocator {
    /// Connects, with a few attempts.
    async fn connect_with_retry(&mut self) -> Result<MultiplexedConnection, RedisError> {
        let mut pause = RECONNECT_PAUSE;
        for _ in 1..CONNECT_ATTEMPTS {
            if let Ok(connection) = self.connect().await {
                return Ok(connection);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RECONNECT_PAUSE);
        }
        self.connect().await
    }

    async fn connect(&mut self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECT_TIMEOUT));
        match self {
            ServerLocator::Address(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            ServerLocator::Sentinels(sentinels) => sentinels.get_async_connection_with_config(&config).await,
        }
    }
}

/// One server and the connection to it. The Redis client's ConnectionManager does not fit: after a
/// failed login, or a login during LOADING, it never connects again.
struct ServerConnection {
    /// Whether another server may take over.
    has_failover: bool,
    state: Mutex<ConnectionState>,
    locator: tokio::sync::Mutex<ServerLocator>,
}

#[derive(Default)]
struct ConnectionState {
    connection: Option<MultiplexedConnection>,
    /// Number of connects. It also identifies the connection, so that a late failure of an old one
    /// does not end a new one.
    connect_count: u64,
    /// The error of the latest connect.
    last_error: Option<RedisError>,
}

impl ServerConnection {
    fn lock_state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection and its number. One caller connects; the others wait for its result,
    /// success or error.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let seen_count = {
            let state = self.lock_state();
            if let Some(connection) = &state.connection {
                return Ok((connection.clone(), state.connect_count));
            }
            state.connect_count
        };
        let mut locator = self.locator.lock().await;
        {
            let state = self.lock_state();
            match (&state.connection, &state.last_error) {
                (Some(connection), _) => return Ok((connection.clone(), state.connect_count)),
                (None, Some(error)) if state.connect_count > seen_count => return Err(error.clone()),
                (None, _) => {}
            }
        }
        let connected = locator.connect_with_retry().await;
        let mut state = self.lock_state();
        state.connect_count += 1;
        state.last_error = connected.as_ref().err().cloned();
        state.connection = connected.as_ref().ok().cloned();
        connected.map(|connection| (connection, state.connect_count))
    }

    /// Discards the connection if it is broken, or if its server rejects the login or is a replica
    /// now.
    fn discard_if_broken<T>(&self, reply: Result<T, RedisError>, number: u64) -> Result<T, RedisError> {
        let Err(error) = reply else { return reply };
        let demoted = error.code() == Some("READONLY");
        if is_transient(&error) || demoted || error.code() == Some("NOAUTH") {
            let mut state = self.lock_state();
            if state.connect_count == number {
                state.connection = None;
            }
        }
        if demoted && self.has_failover {
            // With Sentinel the next command finds the new master. Without Sentinel a replica is a
            // wrong address.
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, error).into());
        }
        Err(error)
    }
}

//! The connection that all commands of a process share, to one server, to whichever server Sentinel calls the master, or
//! to a cluster. It comes back by itself after a failure. Refuses to repeat a command that may have been done: whoever sent
//! it knows whether doing it twice is harmless. (Only the cluster client repeats, after a redirection or a broken
//! connection; every script here may be repeated.)

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

/// How soon the server is looked for again after a failure; doubled up to the longest.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How often, before a command is told that nobody is there.
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
    /// Connects, or says why not.
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

    /// Asked by nobody here: the database is part of the address.
    fn get_db(&self) -> i64 {
        0
    }
}

/// Where the server is.
pub(super) enum ServerLocator {
    Address(Client),
    /// Whichever server they call the master.
    Sentinels(SentinelClient),
}

impl ServerLocator {
    /// Connects, with some patience.
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

/// One server and the connection to it. The client's own manager would not do: after a login that failed, or one that was answered with
/// LOADING, it never connects again.
struct ServerConnection {
    /// Another server may take its place.
    has_failover: bool,
    state: Mutex<ConnectionState>,
    locator: tokio::sync::Mutex<ServerLocator>,
}

#[derive(Default)]
struct ConnectionState {
    connection: Option<MultiplexedConnection>,
    /// How often the server was looked for. Also says which connection it is, so that an old failure does not end a new one.
    connect_count: u64,
    /// Why the latest search found nothing.
    last_error: Option<RedisError>,
}

impl ServerConnection {
    fn lock_state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection and its number. One looks for the server, everybody else waits for the outcome, good or bad.
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

    /// Leaves a connection that is broken, or whose server does not know us or is not the master any more.
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
            // Elsewhere a replica is a wrong address; here the next command finds the new master.
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, error).into());
        }
        Err(error)
    }
}

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
    link::{ANSWER, CONNECT},
    passing,
};

/// How soon the server is looked for again after a failure; doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often, before a command is told that nobody is there.
const ATTEMPTS: u32 = 5;

/// The shared connection of a [`super::Link`]. Clones share it.
#[derive(Clone)]
pub struct Commands(Kind);

#[derive(Clone)]
enum Kind {
    Server(Arc<Server>),
    Cluster(ClusterConnection),
}

impl Commands {
    /// Connects, or says why not.
    pub(super) async fn server(source: Source) -> Result<Self, RedisError> {
        let moves = matches!(source, Source::Sentinels(_));
        let server = Server { moves, known: Mutex::default(), source: tokio::sync::Mutex::new(source) };
        server.connection().await?;
        Ok(Self(Kind::Server(Arc::new(server))))
    }

    pub(super) fn cluster(connection: ClusterConnection) -> Self {
        Self(Kind::Cluster(connection))
    }
}

impl ConnectionLike for Commands {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match &mut self.0 {
            Kind::Cluster(connection) => connection.req_packed_command(command),
            Kind::Server(server) => Box::pin(async move {
                let (mut connection, number) = server.connection().await?;
                server.check(connection.req_packed_command(command).await, number)
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
            Kind::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
            Kind::Server(server) => Box::pin(async move {
                let (mut connection, number) = server.connection().await?;
                server.check(connection.req_packed_commands(pipeline, offset, count).await, number)
            }),
        }
    }

    /// Asked by nobody here: the database is part of the address.
    fn get_db(&self) -> i64 {
        0
    }
}

/// Where the server is.
pub(super) enum Source {
    Address(Client),
    /// Whichever server they call the master.
    Sentinels(SentinelClient),
}

impl Source {
    /// Connects, with some patience.
    async fn find(&mut self) -> Result<MultiplexedConnection, RedisError> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            if let Ok(connection) = self.connect().await {
                return Ok(connection);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.connect().await
    }

    async fn connect(&mut self) -> Result<MultiplexedConnection, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER)).set_connection_timeout(Some(CONNECT));
        match self {
            Source::Address(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            Source::Sentinels(sentinels) => sentinels.get_async_connection_with_config(&config).await,
        }
    }
}

/// One server and the connection to it. The client's own manager would not do: after a login that failed, or one that was answered with
/// LOADING, it never connects again.
struct Server {
    /// Another server may take its place.
    moves: bool,
    known: Mutex<Known>,
    source: tokio::sync::Mutex<Source>,
}

#[derive(Default)]
struct Known {
    connection: Option<MultiplexedConnection>,
    /// How often the server was looked for. Also says which connection it is, so that an old failure does not end a new one.
    searches: u64,
    /// Why the latest search found nothing.
    error: Option<RedisError>,
}

impl Server {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection and its number. One looks for the server, everybody else waits for the outcome, good or bad.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let before = {
            let known = self.known();
            if let Some(connection) = &known.connection {
                return Ok((connection.clone(), known.searches));
            }
            known.searches
        };
        let mut source = self.source.lock().await;
        {
            let known = self.known();
            match (&known.connection, &known.error) {
                (Some(connection), _) => return Ok((connection.clone(), known.searches)),
                (None, Some(error)) if known.searches > before => return Err(error.clone()),
                (None, _) => {}
            }
        }
        let found = source.find().await;
        let mut known = self.known();
        known.searches += 1;
        known.error = found.as_ref().err().cloned();
        known.connection = found.as_ref().ok().cloned();
        found.map(|connection| (connection, known.searches))
    }

    /// Leaves a connection that is broken, or whose server does not know us or is not the master any more.
    fn check<T>(&self, answer: Result<T, RedisError>, number: u64) -> Result<T, RedisError> {
        let Err(error) = answer else { return answer };
        let demoted = error.code() == Some("READONLY");
        if passing(&error) || demoted || error.code() == Some("NOAUTH") {
            let mut known = self.known();
            if known.searches == number {
                known.connection = None;
            }
        }
        if demoted && self.moves {
            // Elsewhere a replica is a wrong address; here the next command finds the new master.
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, error).into());
        }
        Err(error)
    }
}

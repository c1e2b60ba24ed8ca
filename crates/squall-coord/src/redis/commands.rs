//! The connection that all commands of a process share, to one server, to whichever server Sentinel calls the master, or
//! to a cluster. It comes back by itself after a failure. Refuses to repeat a command that may have been done: whoever sent
//! it knows whether doing it twice is harmless. (Only the cluster client repeats, after a redirection or a broken
//! connection; every script here may be repeated.)

use std::{io, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
    sentinel::SentinelClient,
};
use tokio::sync::Mutex;

use super::{
    link::{ANSWER, CONNECT},
    passing,
};

/// How soon the master is looked for again after a failure; doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often, before a command is told that nobody is there.
const ATTEMPTS: u32 = 5;

/// The shared connection of a [`super::Link`]. Clones share it.
#[derive(Clone)]
pub struct Commands(Kind);

#[derive(Clone)]
enum Kind {
    Server(ConnectionManager),
    Sentinel(Arc<Master>),
    Cluster(ClusterConnection),
}

impl Commands {
    pub(super) fn server(manager: ConnectionManager) -> Self {
        Self(Kind::Server(manager))
    }

    /// Finds the master, or says why not.
    pub(super) async fn sentinel(sentinels: SentinelClient) -> Result<Self, RedisError> {
        let mut state = Found { sentinels, connection: None, number: 0 };
        state.find().await?;
        Ok(Self(Kind::Sentinel(Arc::new(Master(Mutex::new(state))))))
    }

    pub(super) fn cluster(connection: ClusterConnection) -> Self {
        Self(Kind::Cluster(connection))
    }
}

impl ConnectionLike for Commands {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match &mut self.0 {
            Kind::Server(manager) => manager.req_packed_command(command),
            Kind::Cluster(connection) => connection.req_packed_command(command),
            Kind::Sentinel(master) => Box::pin(async move {
                let (mut connection, number) = master.connection().await?;
                let answer = connection.req_packed_command(command).await;
                master.check(answer, number).await
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
            Kind::Server(manager) => manager.req_packed_commands(pipeline, offset, count),
            Kind::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
            Kind::Sentinel(master) => Box::pin(async move {
                let (mut connection, number) = master.connection().await?;
                let answer = connection.req_packed_commands(pipeline, offset, count).await;
                master.check(answer, number).await
            }),
        }
    }

    fn get_db(&self) -> i64 {
        match &self.0 {
            Kind::Server(manager) => manager.get_db(),
            Kind::Cluster(connection) => connection.get_db(),
            Kind::Sentinel(_) => 0,
        }
    }
}

/// Whoever is the master.
struct Master(Mutex<Found>);

struct Found {
    sentinels: SentinelClient,
    connection: Option<MultiplexedConnection>,
    /// Which connection it is, so that an old failure does not end a new one.
    number: u64,
}

impl Master {
    /// The connection and its number. One looks for the master, everybody else waits for the outcome.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let mut found = self.0.lock().await;
        let mut pause = PAUSE;
        for attempt in 1.. {
            match found.find().await {
                Ok(connection) => return Ok((connection, found.number)),
                Err(error) if attempt >= ATTEMPTS => return Err(error),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends by returning")
    }

    /// Leaves a connection that is broken, or whose server is not the master any more.
    async fn check<T>(&self, answer: Result<T, RedisError>, number: u64) -> Result<T, RedisError> {
        let Err(error) = answer else { return answer };
        if lost_master(&error) {
            let mut found = self.0.lock().await;
            if found.number == number {
                found.connection = None;
            }
        }
        // Elsewhere a replica is a wrong address; here the next command finds the new master.
        if demoted(&error) { Err(io::Error::new(io::ErrorKind::ConnectionReset, error).into()) } else { Err(error) }
    }
}

pub(super) fn lost_master(error: &RedisError) -> bool {
    passing(error) || demoted(error)
}

fn demoted(error: &RedisError) -> bool {
    error.code() == Some("READONLY")
}

impl Found {
    async fn find(&mut self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER)).set_connection_timeout(Some(CONNECT));
        let connection = self.sentinels.get_async_connection_with_config(&config).await?;
        self.number += 1;
        self.connection = Some(connection.clone());
        Ok(connection)
    }
}

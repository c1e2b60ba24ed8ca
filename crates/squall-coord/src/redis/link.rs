//! Connections to one Redis or Valkey server: commands share one, blocking reads have their own.
//! Refuses to retry a command: whoever sent it knows whether doing it twice is harmless.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, RedisError,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
};

/// How long an ordinary command may take before it counts as unanswered.
const ANSWER: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);

/// The server's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Not an address.
    #[error("`{url}` is not a Redis address; write it as redis://host:port/db")]
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
    client: Client,
    commands: ConnectionManager,
    url: Arc<str>,
}

impl Link {
    /// Connects, or says why not.
    pub async fn open(url: &str) -> Result<Self, LinkError> {
        let shown = without_password(url);
        let client = Client::open(url).map_err(|source| LinkError::Address { url: shown.clone(), source })?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER))
            .set_connection_timeout(Some(CONNECT))
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(500))
            .set_number_of_retries(4);
        let commands = ConnectionManager::new_with_config(client.clone(), config)
            .await
            .map_err(|source| LinkError::Connect { url: shown.clone(), source })?;
        Ok(Self { client, commands, url: shown.into() })
    }

    /// The shared connection, for commands that answer at once.
    pub fn commands(&self) -> ConnectionManager {
        self.commands.clone()
    }

    /// The address without its password, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection of its own for commands that wait; opened at first use and again after an error.
    pub fn blocking(&self) -> BlockingLink {
        BlockingLink { client: self.client.clone(), connection: None }
    }
}

/// A connection on which one command at a time may wait at the server.
pub struct BlockingLink {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl BlockingLink {
    /// Sends a command that waits for up to `within` at the server.
    pub async fn query<T: redis::FromRedisValue>(&mut self, command: &Cmd, within: Duration) -> Result<T, RedisError> {
        self.connected().await?;
        // Out of its place meanwhile: whoever gives up waiting leaves a connection behind that is still blocked.
        let mut connection = self.connection.take().expect("connected just above");
        // Twice the wait and some: only a server that is gone takes so long.
        let answer = tokio::time::timeout(within * 2 + ANSWER, command.query_async(&mut connection)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))));
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }

    /// The server's number for this connection, to unblock it from another.
    pub async fn client_id(&mut self) -> Result<i64, RedisError> {
        redis::cmd("CLIENT").arg("ID").query_async(self.connected().await?).await
    }

    async fn connected(&mut self) -> Result<&mut MultiplexedConnection, RedisError> {
        if self.connection.is_none() {
            let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(CONNECT));
            self.connection = Some(self.client.get_multiplexed_async_connection_with_config(&config).await?);
        }
        Ok(self.connection.as_mut().expect("connected just above"))
    }
}

fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}{}", &url[..scheme + 3], &url[at + 1..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("redis://me:s3cret@host:1/0"), "redis://host:1/0");
        assert_eq!(without_password("redis://host:1/0"), "redis://host:1/0");
        assert_eq!(without_password("nonsense"), "nonsense");
    }
}

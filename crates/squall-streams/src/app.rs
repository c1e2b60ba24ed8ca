//! The app: a name, a server and a namespace, from which streams and workers are made. Refuses to hold global state.

use serde::{Serialize, de::DeserializeOwned};
use squall_coord::{RedisClient, RedisConnectError};

use crate::{
    names::{NameError, Namespace, StreamName, check_app_name},
    stream::StreamBuilder,
    worker::AppWorker,
};

/// An app that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No server.
    #[error(transparent)]
    Redis(#[from] RedisConnectError),
    /// Plain key names on a cluster.
    #[error(
        "a cluster needs a namespace: without one, the keys of a partition lie on different nodes. Leave out the empty namespace, \
         or use a single server"
    )]
    ClusterNeedsNamespace,
}

/// Refuses the empty namespace, whose keys have no hash tags, on a cluster.
pub(crate) fn check_namespace(client: &RedisClient, namespace: &Namespace) -> Result<(), ConnectError> {
    if client.is_cluster() && *namespace == Namespace::empty() {
        Err(ConnectError::ClusterNeedsNamespace)
    } else {
        Ok(())
    }
}

/// An app on a server. Clones share the connection.
#[derive(Clone)]
pub struct StreamApp {
    name: String,
    client: RedisClient,
    namespace: Namespace,
}

impl StreamApp {
    /// Connects in the default namespace.
    pub async fn connect(name: &str, url: &str) -> Result<Self, ConnectError> {
        Self::connect_in(name, url, Namespace::default()).await
    }

    /// Connects in a namespace of your choice.
    pub async fn connect_in(name: &str, url: &str, namespace: Namespace) -> Result<Self, ConnectError> {
        check_app_name(name)?;
        let client = RedisClient::open(url).await?;
        check_namespace(&client, &namespace)?;
        Ok(Self { name: name.to_owned(), client, namespace })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins the definition of a stream; [`StreamBuilder::open`] ends it.
    pub fn stream<R: Serialize + DeserializeOwned + Send + Sync + 'static>(&self, name: &str) -> StreamBuilder<R> {
        StreamBuilder::new(self.client.clone(), self.namespace.clone(), StreamName::new(&self.name, name))
    }

    /// A worker of this app, with nothing to do yet.
    pub fn worker(&self) -> AppWorker {
        AppWorker::new(self.name.clone(), self.client.clone(), self.namespace.clone())
    }

    /// The connection.
    pub fn client(&self) -> &RedisClient {
        &self.client
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

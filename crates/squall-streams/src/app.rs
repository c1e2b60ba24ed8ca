//! An app: a name, a server and a namespace. Makes the streams and workers of the app. Holds no
//! global state.

use serde::{Serialize, de::DeserializeOwned};
use squall_coord::{RedisClient, RedisConnectError};

use crate::{
    names::{NameError, Namespace, StreamName, check_app_name},
    stream::StreamBuilder,
    worker::AppWorker,
};

/// An app that cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name of the app is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The server cannot be reached, or the URL is invalid.
    #[error(transparent)]
    Redis(#[from] RedisConnectError),
    /// The namespace is empty, and the server is a cluster.
    #[error(
        "a cluster needs a namespace: without one, the keys of a partition lie on different nodes. Use a namespace that is \
         not empty, or use a single server"
    )]
    ClusterNeedsNamespace,
}

/// Rejects the empty namespace on a cluster, because its keys have no hash tags.
pub(crate) fn check_namespace(client: &RedisClient, namespace: &Namespace) -> Result<(), ConnectError> {
    if client.is_cluster() && *namespace == Namespace::empty() {
        Err(ConnectError::ClusterNeedsNamespace)
    } else {
        Ok(())
    }
}

/// An app that is connected to a server. Clones share the connection.
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

    /// Connects in the given namespace.
    pub async fn connect_in(name: &str, url: &str, namespace: Namespace) -> Result<Self, ConnectError> {
        check_app_name(name)?;
        let client = RedisClient::open(url).await?;
        check_namespace(&client, &namespace)?;
        Ok(Self { name: name.to_owned(), client, namespace })
    }

    /// The name of the app.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the definition of a stream. [`StreamBuilder::open`] completes it.
    pub fn stream<R: Serialize + DeserializeOwned + Send + Sync + 'static>(&self, name: &str) -> StreamBuilder<R> {
        StreamBuilder::new(self.client.clone(), self.namespace.clone(), StreamName::new(&self.name, name))
    }

    /// A new worker of this app, without processors and tasks.
    pub fn worker(&self) -> AppWorker {
        AppWorker::new(self.name.clone(), self.client.clone(), self.namespace.clone())
    }

    /// The client of the server.
    pub fn client(&self) -> &RedisClient {
        &self.client
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

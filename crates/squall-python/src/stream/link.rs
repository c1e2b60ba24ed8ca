//! A connected app and its opened streams, for Python: connect, open, send. Everything that talks to the server happens on the
//! engine's thread and is answered by post; the number that a method returns is the number of its answer.

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::Value;
use squall_model::error_chain;
use squall_streams::{
    App, Body, Compression, ConnectError, Hasher, NameError, Namespace, OpenError, RawRecord, SendError, WhenFull,
};
use std::{error::Error, time::Duration};

use super::{
    post::{Message, StreamPost, Trouble, ticket},
    runtime::engine,
};

/// An app on a server.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamLink {
    pub(super) app: App,
}

/// A stream whose definition has been agreed upon.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct Stream {
    pub(super) stream: squall_streams::Stream<Value>,
    namespace: Namespace,
}

/// Connects an app.
#[pyfunction]
pub(crate) fn connect(post: &StreamPost, app: String, url: String, namespace: &str) -> PyResult<u64> {
    let namespace = Namespace::new(namespace).map_err(unusable)?;
    let (id, post) = (ticket(), post.post.clone());
    engine()?.spawn(async move {
        let connected = App::connect_in(&app, &url, namespace).await;
        let outcome = connected.map(|app| StreamLink { app }).map_err(|error| match &error {
            ConnectError::Name(_) | ConnectError::Scattered => trouble("misconfigured", &error),
            ConnectError::Link(_) => trouble("unreachable", &error),
        });
        post.leave(id, Message::Connected(outcome));
    });
    Ok(id)
}

/// How a stream is opened.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Definition {
    name: String,
    partitions: u32,
    size: usize,
    hasher: String,
    compression: String,
    /// Seconds; none to fail at once.
    wait: Option<f64>,
    drop_unread: bool,
}

#[pymethods]
impl StreamLink {
    /// Agrees on a stream's definition.
    fn open(&self, post: &StreamPost, definition: Definition) -> PyResult<u64> {
        let mut stream = self
            .app
            .stream::<Value>(&definition.name)
            // Keys are taken in Python and come as their `repr`.
            .partition_by_key(|_| Value::Null)
            .partitions(definition.partitions)
            .partition_size(definition.size)
            .hasher(hasher(&definition.hasher)?)
            .compression(compression(&definition.compression)?)
            .when_full(match definition.wait {
                Some(wait) => WhenFull::Wait(seconds("wait", wait)?),
                None => WhenFull::Fail,
            });
        if definition.drop_unread {
            stream = stream.drop_unread();
        }
        let (id, post, namespace) = (ticket(), post.post.clone(), self.app.namespace().clone());
        engine()?.spawn(async move {
            let opened = stream.open().await.map(|stream| Stream { stream, namespace });
            post.leave(id, Message::Opened(opened.map_err(|error| trouble(kind_of(&error), &error))));
        });
        Ok(id)
    }
}

fn kind_of(error: &OpenError) -> &'static str {
    if matches!(error, OpenError::Redis { .. }) { "unreachable" } else { "misconfigured" }
}

/// One record on its way: the `repr` of its key, and either its data or its fields.
type Encoded = (Option<String>, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

#[pymethods]
impl Stream {
    /// The partition of a key, given by its `repr`.
    fn route(&self, repr: &str) -> u32 {
        self.stream.route_repr(repr)
    }

    /// The Redis key of a partition.
    fn key(&self, partition: u32) -> String {
        self.namespace.events(self.stream.name(), partition)
    }

    /// Appends records in order. `data` that is `packed` is stored as it is; other data is compressed as the stream says.
    fn send(&self, post: &StreamPost, records: Vec<Encoded>, packed: bool) -> PyResult<u64> {
        let raw = |(key, data, fields): Encoded| -> Result<RawRecord, SendError> {
            let body = match data {
                Some(data) if packed => Body::Data(data),
                Some(data) => Body::Data(self.stream.pack(data)?),
                None => Body::Fields(fields),
            };
            Ok(RawRecord { key, body })
        };
        let records: Vec<RawRecord> = records.into_iter().map(raw).collect::<Result<_, _>>().map_err(unusable)?;
        let (id, post, stream) = (ticket(), post.post.clone(), self.stream.clone());
        engine()?.spawn(async move {
            let sent = stream.send_raw(records).await;
            let outcome = sent.map_err(|error| match &error {
                SendError::Full { .. } => trouble("full", &error),
                _ => trouble("not_sent", &error),
            });
            post.leave(id, Message::Sent(outcome));
        });
        Ok(id)
    }
}

pub(super) fn hasher(name: &str) -> PyResult<Hasher> {
    match name {
        "xxh64" => Ok(Hasher::Xxh64),
        "md5" => Ok(Hasher::Md5),
        other => Err(PyValueError::new_err(format!("`{other}` is not a hasher; there are xxh64 and md5"))),
    }
}

fn compression(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => {
            Err(PyValueError::new_err(format!("`{other}` is not a compression; there are none, gzip, lz4 and zstd")))
        }
    }
}

/// A duration that Python gives as seconds.
pub(super) fn seconds(what: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("`{what}` is {seconds}, which is no duration in seconds")))
}

/// What Python cannot have meant.
fn unusable(error: impl Error) -> PyErr {
    PyValueError::new_err(error_chain(&error))
}

pub(super) fn trouble(kind: &'static str, error: &(dyn Error + 'static)) -> Trouble {
    Trouble { kind, text: error_chain(error) }
}

impl From<NameError> for Trouble {
    fn from(error: NameError) -> Trouble {
        trouble("misconfigured", &error)
    }
}

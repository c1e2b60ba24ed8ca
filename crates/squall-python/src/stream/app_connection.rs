//! A connected streams app and its open streams, for Python: connect, open, send. The engine thread
//! talks to Redis and puts the result into the mailbox of the asyncio loop. Each method returns an
//! id, and the message with its result has the same id. `squall.streams` calls it.

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::Value;
use squall_model::error_chain;
use squall_streams::{
    Compression, ConnectError, EntryBody, NameError, Namespace, PartitionHasher, RawRecord, SendError, StreamApp,
    StreamOpenError, WhenFull,
};
use std::{error::Error, time::Duration};

use super::{
    engine_thread::engine_handle,
    mailbox::{LoopMessage, StreamBridgeError, StreamMailbox, next_id},
};

/// A streams app that is connected to Redis.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamAppConnection {
    pub(super) app: StreamApp,
}

/// A stream whose definition matches the one in Redis.
#[pyclass(name = "Stream", frozen, module = "squall._squall")]
pub(crate) struct OpenedStream {
    pub(super) stream: squall_streams::RecordStream<Value>,
    namespace: Namespace,
}

/// Connects an app. The result arrives in `mailbox`.
#[pyfunction]
pub(crate) fn connect(mailbox: &StreamMailbox, app: String, url: String, namespace: &str) -> PyResult<u64> {
    let namespace = Namespace::new(namespace).map_err(value_error)?;
    let (id, mailbox) = (next_id(), mailbox.mailbox.clone());
    engine_handle()?.spawn(async move {
        let connected = StreamApp::connect_in(&app, &url, namespace).await;
        let outcome = connected.map(|app| StreamAppConnection { app }).map_err(|error| match &error {
            ConnectError::Name(_) | ConnectError::ClusterNeedsNamespace => bridge_error("misconfigured", &error),
            ConnectError::Redis(_) => bridge_error("unreachable", &error),
        });
        mailbox.push(id, LoopMessage::Connected(outcome));
    });
    Ok(id)
}

/// How a stream is opened.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct StreamOpenOptions {
    name: String,
    partitions: u32,
    size: usize,
    hasher: String,
    compression: String,
    /// Seconds to wait while a partition is full; `None` fails at once.
    wait: Option<f64>,
    drop_unread: bool,
}

#[pymethods]
impl StreamAppConnection {
    /// Opens a stream: stores its definition, or compares it with the stored one.
    fn open(&self, mailbox: &StreamMailbox, definition: StreamOpenOptions) -> PyResult<u64> {
        let mut stream = self
            .app
            .stream::<Value>(&definition.name)
            // Python takes the key of each record and passes its `repr`.
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
        let (id, mailbox, namespace) = (next_id(), mailbox.mailbox.clone(), self.app.namespace().clone());
        engine_handle()?.spawn(async move {
            let opened = stream.open().await.map(|stream| OpenedStream { stream, namespace });
            mailbox
                .push(id, LoopMessage::Opened(opened.map_err(|error| bridge_error(open_error_kind(&error), &error))));
        });
        Ok(id)
    }
}

fn open_error_kind(error: &StreamOpenError) -> &'static str {
    if matches!(error, StreamOpenError::Redis { .. }) { "unreachable" } else { "misconfigured" }
}

/// A record to send: the `repr` of its key, and either its data or its fields.
type EncodedStreamRecord = (Option<String>, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

#[pymethods]
impl OpenedStream {
    /// The partition of a key, given by its `repr`.
    fn route(&self, repr: &str) -> u32 {
        self.stream.partition_of_repr(repr)
    }

    /// The Redis key of a partition.
    fn key(&self, partition: u32) -> String {
        self.namespace.events_key(self.stream.name(), partition)
    }

    /// Appends records in order. With `packed`, `data` is stored as it is; otherwise it is
    /// compressed with the stream's compression.
    fn send(&self, mailbox: &StreamMailbox, records: Vec<EncodedStreamRecord>, packed: bool) -> PyResult<u64> {
        let raw = |(key, data, fields): EncodedStreamRecord| -> Result<RawRecord, SendError> {
            let body = match data {
                Some(data) if packed => EntryBody::Data(data),
                Some(data) => EntryBody::Data(self.stream.compress(data)?),
                None => EntryBody::Fields(fields),
            };
            Ok(RawRecord { key, body })
        };
        let records: Vec<RawRecord> = records.into_iter().map(raw).collect::<Result<_, _>>().map_err(value_error)?;
        let (id, mailbox, stream) = (next_id(), mailbox.mailbox.clone(), self.stream.clone());
        engine_handle()?.spawn(async move {
            let sent = stream.send_raw(records).await;
            let outcome = sent.map_err(|error| match &error {
                SendError::Full { .. } => bridge_error("full", &error),
                _ => bridge_error("not_sent", &error),
            });
            mailbox.push(id, LoopMessage::Sent(outcome));
        });
        Ok(id)
    }
}

pub(super) fn hasher(name: &str) -> PyResult<PartitionHasher> {
    match name {
        "xxh64" => Ok(PartitionHasher::Xxh64),
        "md5" => Ok(PartitionHasher::Md5),
        other => Err(PyValueError::new_err(format!("`{other}` is not a hasher; use xxh64 or md5"))),
    }
}

fn compression(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => Err(PyValueError::new_err(format!("`{other}` is not a compression; use none, gzip, lz4 or zstd"))),
    }
}

/// Converts the option `what` from seconds.
pub(super) fn seconds(what: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("`{what}` is {seconds}, which is not a duration in seconds; give 0 or more"))
    })
}

/// The ValueError of an invalid argument.
fn value_error(error: impl Error) -> PyErr {
    PyValueError::new_err(error_chain(&error))
}

pub(super) fn bridge_error(kind: &'static str, error: &(dyn Error + 'static)) -> StreamBridgeError {
    StreamBridgeError { kind, text: error_chain(error) }
}

impl From<NameError> for StreamBridgeError {
    fn from(error: NameError) -> StreamBridgeError {
        bridge_error("misconfigured", &error)
    }
}

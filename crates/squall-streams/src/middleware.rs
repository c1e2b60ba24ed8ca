//! Middleware between a stream and a processor: the trait for user code, and the dead-letter queue.
//! Middleware handles one event at a time and cannot change the order: it passes, changes or skips
//! the event.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::{
    app::StreamApp,
    entry::{Entry, EntryBody},
    names::ProcessorName,
    stream::{RecordStream, StreamOpenError},
};

/// An error of user code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A failure of a processor, after all retries.
pub struct ProcessingFailure<'a> {
    /// The processor.
    pub processor: &'a ProcessorName,
    /// The partition.
    pub partition: u32,
    /// The failed events, in order.
    pub events: &'a [Entry],
    /// The error of the processor, with its causes.
    pub error: &'a str,
}

/// A hook before an event is decoded, and a hook after processing failed. Both do nothing by
/// default.
pub trait Middleware: Send + Sync + 'static {
    /// Handles an event before the processor does. `None` skips the event, which then counts as
    /// processed.
    fn before_event(&self, event: Entry) -> BoxFuture<'_, Result<Option<Entry>, BoxError>> {
        Box::pin(async { Ok(Some(event)) })
    }

    /// Handles a failure after all retries. With `true` the events count as processed, and the
    /// failure policy does not act.
    fn on_failure<'a>(&'a self, _failure: &'a ProcessingFailure<'a>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async { Ok(false) })
    }
}

/// An event that could not be processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// When the processor gave up, in RFC 3339.
    pub failed_at: String,
    /// The partition of the event.
    pub partition: u32,
    /// The id of the event.
    pub xid: String,
    /// The field `data`, or all fields as JSON. Bytes that are not UTF-8 become replacement
    /// characters.
    pub data: String,
    /// The error of the processor.
    pub error: String,
}

/// Sends failed events to the stream `dead.<name>`, which has one partition. The processor then
/// continues.
pub struct DeadLetterQueue {
    sink: RecordStream<DeadLetter>,
}

impl DeadLetterQueue {
    /// Opens the dead-letter stream of `source`.
    pub async fn for_stream<R>(app: &StreamApp, source: &RecordStream<R>) -> Result<Arc<Self>, StreamOpenError> {
        let name = format!("dead.{}", source.name().stream());
        Ok(Arc::new(Self { sink: app.stream(&name).partitions(1).drop_unread().open().await? }))
    }

    /// The dead-letter stream.
    pub fn sink(&self) -> &RecordStream<DeadLetter> {
        &self.sink
    }
}

impl Middleware for DeadLetterQueue {
    fn on_failure<'a>(&'a self, failure: &'a ProcessingFailure<'a>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            let now = Timestamp::now().to_string();
            let letters: Vec<DeadLetter> = failure
                .events
                .iter()
                .map(|event| DeadLetter {
                    failed_at: now.clone(),
                    partition: failure.partition,
                    xid: event.id.to_string(),
                    data: body_text(&event.body),
                    error: failure.error.to_owned(),
                })
                .collect();
            self.sink.send_many(&letters).await?;
            warn!(processor = %failure.processor, partition = failure.partition, events = letters.len(), error = failure.error, "dead letters");
            Ok(!letters.is_empty())
        })
    }
}

fn body_text(body: &EntryBody) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match body {
        EntryBody::Data(data) => lossy(data),
        EntryBody::Fields(fields) => {
            let map: serde_json::Map<String, serde_json::Value> =
                fields.iter().map(|(name, value)| (lossy(name), lossy(value).into())).collect();
            serde_json::Value::Object(map).to_string()
        }
        EntryBody::Deleted => String::new(),
    }
}

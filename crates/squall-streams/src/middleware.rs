//! What stands between the stream and a processor: user-written steps, and dead letters as one of them.
//! Refuses to reorder: an event passes, is changed, or is skipped, one at a time.

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

/// Any error of user code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Events that could not be processed.
pub struct ProcessingFailure<'a> {
    /// Where.
    pub processor: &'a ProcessorName,
    /// In which partition.
    pub partition: u32,
    /// Which events, in order.
    pub events: &'a [Entry],
    /// Why.
    pub error: &'a str,
}

/// A step before decoding and after failing. Both do nothing by default.
pub trait Middleware: Send + Sync + 'static {
    /// Sees an event before the processor does. `None` skips it: it counts as processed.
    fn before_event(&self, event: Entry) -> BoxFuture<'_, Result<Option<Entry>, BoxError>> {
        Box::pin(async { Ok(Some(event)) })
    }

    /// Sees a failure when retries are used up. `true` takes it over: the events count as processed and the policy does not act.
    fn on_failure<'a>(&'a self, _failure: &'a ProcessingFailure<'a>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async { Ok(false) })
    }
}

/// An event that could not be processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// When it was given up on, RFC 3339.
    pub failed_at: String,
    /// Where it was.
    pub partition: u32,
    /// Its id there.
    pub xid: String,
    /// Its `data`, or its fields as JSON; text that is not UTF-8 is shown with replacement characters.
    pub data: String,
    /// Why it failed.
    pub error: String,
}

/// Sends failed events to the stream `dead.<name>`, which has one partition, and goes on.
pub struct DeadLetterQueue {
    sink: RecordStream<DeadLetter>,
}

impl DeadLetterQueue {
    /// Dead letters of a stream.
    pub async fn for_stream<R>(app: &StreamApp, source: &RecordStream<R>) -> Result<Arc<Self>, StreamOpenError> {
        let name = format!("dead.{}", source.name().stream());
        Ok(Arc::new(Self { sink: app.stream(&name).partitions(1).drop_unread().open().await? }))
    }

    /// The stream they go to.
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

//! What stands between the stream and a processor: user-written steps, and dead letters as one of them.
//! Refuses to reorder: an event passes, is changed, or is skipped, one at a time.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::{
    app::App,
    entry::{Body, Entry},
    names::ProcessorName,
    stream::{OpenError, Stream},
};

/// Any error of user code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Events that could not be processed.
pub struct Failure<'a> {
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
    fn before(&self, event: Entry) -> BoxFuture<'_, Result<Option<Entry>, BoxError>> {
        Box::pin(async { Ok(Some(event)) })
    }

    /// Sees a failure when retries are used up. `true` takes it over: the events count as processed and the policy does not act.
    fn failed<'a>(&'a self, _failure: &'a Failure<'a>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async { Ok(false) })
    }
}

/// An event that could not be processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dead {
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
pub struct DeadLetters {
    sink: Stream<Dead>,
}

impl DeadLetters {
    /// Dead letters of a stream.
    pub async fn of<R>(app: &App, source: &Stream<R>) -> Result<Arc<Self>, OpenError> {
        let name = format!("dead.{}", source.name().stream());
        Ok(Arc::new(Self { sink: app.stream(&name).partitions(1).drop_unread().open().await? }))
    }

    /// The stream they go to.
    pub fn sink(&self) -> &Stream<Dead> {
        &self.sink
    }
}

impl Middleware for DeadLetters {
    fn failed<'a>(&'a self, failure: &'a Failure<'a>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            let now = Timestamp::now().to_string();
            let letters: Vec<Dead> = failure
                .events
                .iter()
                .map(|event| Dead {
                    failed_at: now.clone(),
                    partition: failure.partition,
                    xid: event.id.to_string(),
                    data: text(&event.body),
                    error: failure.error.to_owned(),
                })
                .collect();
            self.sink.send_many(&letters).await?;
            warn!(processor = %failure.processor, partition = failure.partition, events = letters.len(), error = failure.error, "dead letters");
            Ok(!letters.is_empty())
        })
    }
}

fn text(body: &Body) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match body {
        Body::Data(data) => lossy(data),
        Body::Fields(fields) => {
            let map: serde_json::Map<String, serde_json::Value> =
                fields.iter().map(|(name, value)| (lossy(name), lossy(value).into())).collect();
            serde_json::Value::Object(map).to_string()
        }
        Body::Deleted => String::new(),
    }
}

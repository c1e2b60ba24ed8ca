//! Receives turn notifications on one connection for all waiting requests of this process: one
//! waiter reads the stream for all of them.
//! Delivery is not guaranteed. A missed notification costs only time, because waiters poll as well.
//! [`super::RedisPoolStore`] and [`crate::RedisSlotStore`] use it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{RedisError, Value};
use tokio::sync::Notify;

use super::{BlockingConnection, millis};

/// How many notifications are kept for requests that register just after theirs was read.
const MAX_RECENT_TURNS: usize = 1024;

pub(crate) struct TurnListener {
    stream_key: String,
    connection: tokio::sync::Mutex<BlockingConnection>,
    received: Mutex<ReceivedTurns>,
}

#[derive(Default)]
struct ReceivedTurns {
    /// The last notification that was read.
    position: u64,
    recent: VecDeque<(u64, String)>,
    waiters: HashMap<String, Arc<Notify>>,
}

impl TurnListener {
    pub(crate) fn new(connection: BlockingConnection, stream_key: String) -> Self {
        Self { stream_key, connection: tokio::sync::Mutex::new(connection), received: Mutex::default() }
    }

    /// Waits until `request_id` is notified after `seen`, or for `within` at most.
    pub(crate) async fn wait_for_turn(&self, request_id: &str, seen: u64, within: Duration) -> Result<(), RedisError> {
        let Some(waiter) = TurnWaiter::register(self, request_id, seen) else { return Ok(()) };
        let reading = async {
            let mut connection = self.connection.lock().await;
            loop {
                self.read_turns(&mut connection, seen, within).await?;
            }
        };
        tokio::select! {
            biased;
            () = waiter.wakeup.notified() => Ok(()),
            outcome = tokio::time::timeout(within, reading) => outcome.unwrap_or(Ok(())),
        }
    }

    /// Reads the next notifications and wakes the waiters that they name.
    async fn read_turns(
        &self,
        connection: &mut BlockingConnection,
        seen: u64,
        within: Duration,
    ) -> Result<(), RedisError> {
        let position = self.lock().position;
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(100).arg("BLOCK").arg(millis(within).max(1));
        // After all entries of that number: Squall's ids end in `-0`, foreign ones may not.
        command.arg("STREAMS").arg(&self.stream_key).arg(format!("{position}-{}", u64::MAX));
        let reply: Value = connection.query(&command, within).await?;
        let mut received = self.lock();
        if reply == Value::Nil {
            // No entries: none were added, or the server has lost its data and counts from one
            // again.
            received.position = seen;
            return Ok(());
        }
        for (number, request_ids) in redis::from_redis_value(reply).map(parse_entries)? {
            // Advance past every entry, also foreign ones; otherwise the next read returns it again
            // at once.
            received.position = number;
            for request_id in request_ids.split(' ').filter(|request_id| !request_id.is_empty()) {
                if let Some(wakeup) = received.waiters.get(request_id) {
                    wakeup.notify_one();
                }
                received.recent.push_back((number, request_id.to_owned()));
            }
        }
        let excess = received.recent.len().saturating_sub(MAX_RECENT_TURNS);
        received.recent.drain(..excess);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ReceivedTurns> {
        self.received.lock().expect("no code panics while it holds the lock")
    }
}

/// A waiting request, registered until it is dropped.
struct TurnWaiter<'a> {
    listener: &'a TurnListener,
    request_id: &'a str,
    wakeup: Arc<Notify>,
}

impl<'a> TurnWaiter<'a> {
    /// Registers a request; `None` if it has been notified already.
    fn register(listener: &'a TurnListener, request_id: &'a str, seen: u64) -> Option<Self> {
        let mut received = listener.lock();
        if received.recent.iter().any(|(number, notified_id)| *number > seen && notified_id == request_id) {
            return None;
        }
        let wakeup = Arc::new(Notify::new());
        received.waiters.insert(request_id.to_owned(), wakeup.clone());
        Some(Self { listener, request_id, wakeup })
    }
}

impl Drop for TurnWaiter<'_> {
    fn drop(&mut self) {
        self.listener.lock().waiters.remove(self.request_id);
    }
}

/// `[[key, [[id, [field, value, …]], …]]]`. Foreign fields and values may not be text.
type StreamReply = Vec<(Vec<u8>, Vec<(String, Vec<Vec<u8>>)>)>;

/// Notification numbers with their request ids, which are empty for foreign entries.
fn parse_entries(streams: StreamReply) -> Vec<(u64, String)> {
    let entries = streams.into_iter().flat_map(|(_, entries)| entries);
    entries
        .filter_map(|(id, fields)| {
            let number = id.split_once('-')?.0.parse().ok()?;
            let request_ids = fields.chunks_exact(2).find(|pair| pair[0] == b"tickets");
            let request_ids = request_ids.and_then(|pair| String::from_utf8(pair[1].clone()).ok());
            Some((number, request_ids.unwrap_or_default()))
        })
        .collect()
}

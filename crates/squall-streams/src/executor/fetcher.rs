//! Keeps the lanes of one executor filled: several reads at once, none for a lane that has enough.
//! Refuses to block at the server inside a read; a separate connection waits for new events without taking them.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redis::{RedisError, Value};
use squall_coord::{BlockingConnection, RedisClient};
use tracing::debug;

use crate::{
    entry::EntryId,
    executor_context::ExecutorContext,
    leased_partition::FenceOutcome,
    partition_buffer::{FetchRequest, PartitionBuffer},
};

/// How long the watcher waits at the server before it asks again.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Fetches for ever.
pub(super) async fn run_fetcher(hub: Arc<ExecutorContext>) {
    let mut fetching: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        for lane in hub.buffers() {
            if fetching.len() >= hub.settings.max_fetches {
                break;
            }
            if let Some(fetch) = lane.next_fetch() {
                fetching.push(fetch_one(hub.clone(), lane, fetch).boxed());
            }
        }
        tokio::select! {
            Some(()) = fetching.next() => {}
            () = hub.fetch_wanted.notified() => {}
        }
    }
}

async fn fetch_one(hub: Arc<ExecutorContext>, lane: Arc<PartitionBuffer>, fetch: FetchRequest) {
    match lane.partition.fetch(fetch.count, fetch.pending).await {
        Ok(FenceOutcome::Done(fetched)) => {
            let idle = fetched.caught_up_at.is_some();
            lane.store_fetched(fetch, fetched.entries, fetched.caught_up_at);
            if idle {
                hub.idle_changed.notify_one();
            }
        }
        Ok(FenceOutcome::FencedOff) => lane.abort_fenced(),
        Err(error) if error.is_group_missing() => lane.abort_fenced(),
        Err(error) => {
            hub.log_retry("fetching", lane.partition.number, &error);
            tokio::time::sleep(RETRY_DELAY).await;
            lane.rewind_fetch(fetch);
        }
    }
}

/// Watches idle lanes for ever; wakes those that have new events.
pub(super) async fn watch_idle(hub: Arc<ExecutorContext>, link: RedisClient) {
    let mut waiting = link.blocking_connection();
    loop {
        let idle: Vec<(Arc<PartitionBuffer>, EntryId)> =
            hub.buffers().into_iter().filter_map(|lane| lane.idle_position().map(|from| (lane, from))).collect();
        if idle.is_empty() {
            hub.idle_changed.notified().await;
            continue;
        }
        match wait_for_events(&hub, &link, &mut waiting, &idle).await {
            Ok(ready) => {
                for (lane, _) in &idle {
                    if ready.iter().any(|key| *key == lane.partition.events_key) {
                        lane.wake_idle();
                    }
                }
                if !ready.is_empty() {
                    hub.fetch_wanted.notify_one();
                }
            }
            Err(error) => {
                // On a cluster node one command cannot watch several partitions: then they are looked at ten times a second.
                debug!(processor = %hub.processor, %error, "watching for new events failed");
                tokio::time::sleep(RETRY_DELAY).await;
                // Otherwise the server may have lost its data; a fenced read finds out.
                idle.iter().for_each(|(lane, _)| lane.wake_idle());
                hub.fetch_wanted.notify_one();
            }
        }
    }
}

/// Waits for events after the ids of idle lanes, or until the set of idle lanes changes. Answers the keys that have some.
async fn wait_for_events(
    hub: &ExecutorContext,
    link: &RedisClient,
    waiting: &mut BlockingConnection,
    idle: &[(Arc<PartitionBuffer>, EntryId)],
) -> Result<Vec<String>, RedisError> {
    let client = waiting.client_id().await?;
    let mut command = redis::cmd("XREAD");
    command
        .arg("COUNT")
        .arg(1)
        .arg("BLOCK")
        .arg(u64::try_from(BLOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX))
        .arg("STREAMS");
    for (lane, _) in idle {
        command.arg(&lane.partition.events_key);
    }
    for (_, from) in idle {
        command.arg(from.to_string());
    }
    let mut reading = Box::pin(waiting.query::<Value>(&command, BLOCK_TIMEOUT));
    tokio::select! {
        answer = &mut reading => return answer.map(parse_keys),
        () = hub.idle_changed.notified() => {}
    }
    // The set has changed: free the connection. It may not be blocked yet, or not any more.
    loop {
        tokio::select! {
            answer = &mut reading => return answer.map(parse_keys),
            () = unblock(link, client) => {}
        }
    }
}

async fn unblock(link: &RedisClient, client: i64) {
    let outcome: Result<i64, RedisError> =
        redis::cmd("CLIENT").arg("UNBLOCK").arg(client).query_async(&mut link.connection()).await;
    if !matches!(outcome, Ok(1)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn parse_keys(answer: Value) -> Vec<String> {
    let name = |value: Value| match value {
        Value::BulkString(name) => String::from_utf8(name).ok(),
        _ => None,
    };
    match answer {
        Value::Array(streams) => streams
            .into_iter()
            .filter_map(|stream| match stream {
                Value::Array(pair) => pair.into_iter().next().and_then(name),
                _ => None,
            })
            .collect(),
        Value::Map(streams) => streams.into_iter().filter_map(|(key, _)| name(key)).collect(),
        _ => Vec::new(),
    }
}

//! Keeps the partition buffers of one executor filled, with several concurrent reads. A read never
//! blocks on the server; a separate connection waits for new events without taking them.

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

/// How long one blocking XREAD waits on the server.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Fetches events until the task is aborted.
pub(super) async fn run_fetcher(context: Arc<ExecutorContext>) {
    let mut fetching: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        for buffer in context.buffers() {
            if fetching.len() >= context.settings.max_fetches {
                break;
            }
            if let Some(fetch) = buffer.next_fetch() {
                fetching.push(fetch_one(context.clone(), buffer, fetch).boxed());
            }
        }
        tokio::select! {
            Some(()) = fetching.next() => {}
            () = context.fetch_wanted.notified() => {}
        }
    }
}

async fn fetch_one(context: Arc<ExecutorContext>, buffer: Arc<PartitionBuffer>, fetch: FetchRequest) {
    match buffer.partition.fetch(fetch.count, fetch.pending).await {
        Ok(FenceOutcome::Done(fetched)) => {
            let idle = fetched.caught_up_at.is_some();
            buffer.store_fetched(fetch, fetched.entries, fetched.caught_up_at);
            if idle {
                context.idle_changed.notify_one();
            }
        }
        Ok(FenceOutcome::FencedOff) => buffer.abort_fenced(),
        Err(error) if error.is_group_missing() => buffer.abort_fenced(),
        Err(error) => {
            context.log_retry("fetching", buffer.partition.number, &error);
            tokio::time::sleep(RETRY_DELAY).await;
            buffer.rewind_fetch(fetch);
        }
    }
}

/// Watches idle buffers until the task is aborted, and wakes those that have new events.
pub(super) async fn watch_idle(context: Arc<ExecutorContext>, client: RedisClient) {
    let mut blocking = client.blocking_connection();
    loop {
        let idle: Vec<(Arc<PartitionBuffer>, EntryId)> = context
            .buffers()
            .into_iter()
            .filter_map(|buffer| buffer.idle_position().map(|from| (buffer, from)))
            .collect();
        if idle.is_empty() {
            context.idle_changed.notified().await;
            continue;
        }
        match wait_for_events(&context, &client, &mut blocking, &idle).await {
            Ok(ready_keys) => {
                for (buffer, _) in &idle {
                    if ready_keys.iter().any(|key| *key == buffer.partition.events_key) {
                        buffer.wake_idle();
                    }
                }
                if !ready_keys.is_empty() {
                    context.fetch_wanted.notify_one();
                }
            }
            Err(error) => {
                // On a cluster one command cannot watch several partitions, so this branch polls
                // them ten times a second.
                debug!(processor = %context.processor, %error, "watching for new events failed");
                tokio::time::sleep(RETRY_DELAY).await;
                // On a single server, the server may have lost its data; the next fenced read
                // detects it.
                idle.iter().for_each(|(buffer, _)| buffer.wake_idle());
                context.fetch_wanted.notify_one();
            }
        }
    }
}

/// Waits for events after the ids of idle buffers, or until the set of idle buffers changes.
/// Returns the keys that have new events.
async fn wait_for_events(
    context: &ExecutorContext,
    client: &RedisClient,
    blocking: &mut BlockingConnection,
    idle: &[(Arc<PartitionBuffer>, EntryId)],
) -> Result<Vec<String>, RedisError> {
    let client_id = blocking.client_id().await?;
    let mut command = redis::cmd("XREAD");
    command
        .arg("COUNT")
        .arg(1)
        .arg("BLOCK")
        .arg(u64::try_from(BLOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX))
        .arg("STREAMS");
    for (buffer, _) in idle {
        command.arg(&buffer.partition.events_key);
    }
    for (_, from) in idle {
        command.arg(from.to_string());
    }
    let mut read = Box::pin(blocking.query::<Value>(&command, BLOCK_TIMEOUT));
    tokio::select! {
        response = &mut read => return response.map(parse_keys),
        () = context.idle_changed.notified() => {}
    }
    // The set has changed: unblock the connection. Repeat this, because the server may not have
    // blocked it yet.
    loop {
        tokio::select! {
            response = &mut read => return response.map(parse_keys),
            () = unblock(client, client_id) => {}
        }
    }
}

async fn unblock(client: &RedisClient, client_id: i64) {
    let outcome: Result<i64, RedisError> =
        redis::cmd("CLIENT").arg("UNBLOCK").arg(client_id).query_async(&mut client.connection()).await;
    if !matches!(outcome, Ok(1)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn parse_keys(response: Value) -> Vec<String> {
    let name = |value: Value| match value {
        Value::BulkString(name) => String::from_utf8(name).ok(),
        _ => None,
    };
    match response {
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

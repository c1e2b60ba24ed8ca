//! `/api/v1/live`: the feed of the web UI. A subscriber gets a snapshot, then what changes. It never
//! gets a backlog: a subscriber that reads too slowly gets a snapshot of the seconds that it lacks.

use axum::{
    extract::{
        Query, State,
        rejection::QueryRejection,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use squall_coord::FleetStores;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{sleep, timeout},
};

use super::ApiState;
use crate::{
    error::ApiError,
    live::{Published, PublishedSecond, alive_message, hello_message, snapshot_messages},
    query::parse_query,
    run_watcher::RunWatcher,
    session::session_rest,
};

/// Maximum number of concurrent subscribers.
const MAX_SUBSCRIBERS: usize = 256;
/// The server disconnects a subscriber that accepts no message for this long.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// A subscriber gets at least one message in this time, so that silence means a broken connection.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The query of the feed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveQuery {
    /// The run whose seconds the reader has.
    #[serde(default)]
    run: String,
    /// The latest of these seconds.
    #[serde(default)]
    since: u32,
}

pub(crate) async fn subscribe<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    headers: HeaderMap,
    query: Result<Query<LiveQuery>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let query = parse_query(query)?;
    let upgrade =
        upgrade.map_err(|error| ApiError::bad_request(format!("this path is a WebSocket: {}", error.body_text())))?;
    if app.watcher.live.subscriber_count() >= MAX_SUBSCRIBERS {
        let message = format!("the live feed already has {MAX_SUBSCRIBERS} subscribers");
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_readers", message));
    }
    // The server ignores incoming messages, so a long one would only use memory.
    let upgrade = upgrade.max_message_size(4 << 10).max_frame_size(4 << 10);
    let session = app.config.token.as_ref().and_then(|token| session_rest(&headers, token));
    Ok(upgrade.on_upgrade(async move |socket| {
        // A page whose session has ended asks for the token when it connects again.
        let ended = async { sleep_for(session).await };
        tokio::select! {
            () = send_messages(&app, socket, query) => {}
            () = ended => {}
        }
    }))
}

/// Waits for `length`, or forever.
async fn sleep_for(length: Option<Duration>) {
    match length {
        Some(length) => sleep(length).await,
        None => std::future::pending().await,
    }
}

/// Sends what a reader needs until the connection ends.
async fn send_messages<C: FleetStores>(app: &ApiState<C>, mut socket: WebSocket, query: LiveQuery) {
    let _viewer = app.config.viewers.enter();
    let mut reader = LiveReader::new(&app.watcher, query);
    let Some(mut texts) = greet(app, &mut socket, &mut reader).await else { return };
    loop {
        for text in texts.drain(..) {
            if !send_text(&mut socket, &text).await {
                return;
            }
        }
        tokio::select! {
            () = app.stop.cancelled() => break,
            published = reader.published.recv() => match reader.texts_for(published).await {
                Some(next) => texts = next,
                None => break,
            },
            received = socket.recv() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            () = sleep(ALIVE_INTERVAL) => texts = vec![alive_message(app.watcher.live.elapsed_s()).into()],
        }
    }
    let _ = timeout(ALIVE_INTERVAL, socket.send(Message::Close(None))).await;
}

/// Says hello at once, and that the server is alive while a long run is read. Returns the first messages about the
/// run, or `None` if the connection has ended.
async fn greet<C: FleetStores>(
    app: &ApiState<C>,
    socket: &mut WebSocket,
    reader: &mut LiveReader<'_, C>,
) -> Option<Vec<Arc<str>>> {
    let mut text = hello_message(app.watcher.live.version());
    let mut reading = pin!(reader.catch_up());
    loop {
        if !send_text(socket, &text).await {
            return None;
        }
        tokio::select! {
            texts = &mut reading => return Some(texts),
            () = sleep(ALIVE_INTERVAL) => text = alive_message(app.watcher.live.elapsed_s()),
        }
    }
}

/// Whether the reader took the text in time.
async fn send_text(socket: &mut WebSocket, text: &str) -> bool {
    matches!(timeout(SEND_TIMEOUT, socket.send(Message::Text(text.into()))).await, Ok(Ok(())))
}

/// What one reader of the feed has, and what it gets next.
struct LiveReader<'a, C: FleetStores> {
    watcher: &'a RunWatcher<C>,
    published: Receiver<Published>,
    run: String,
    last_second: u32,
}

impl<'a, C: FleetStores> LiveReader<'a, C> {
    fn new(watcher: &'a RunWatcher<C>, query: LiveQuery) -> LiveReader<'a, C> {
        // Subscribed before the snapshot is taken, so that no second falls between them.
        LiveReader { watcher, published: watcher.live.subscribe(), run: query.run, last_second: query.since }
    }

    /// The messages that follow from one published message; `None` if the feed has ended.
    async fn texts_for(&mut self, published: Result<Published, RecvError>) -> Option<Vec<Arc<str>>> {
        Some(match published {
            Ok(Published::Text(text)) => vec![text],
            Ok(Published::Second(second)) => self.second(second).into_iter().collect(),
            Ok(Published::Resync) => {
                self.run.clear();
                self.snapshot().await
            }
            Err(RecvError::Lagged(_)) => self.catch_up().await,
            Err(RecvError::Closed) => return None,
        })
    }

    /// The text of a second that the reader does not have yet.
    fn second(&mut self, PublishedSecond { run, t_s, text }: PublishedSecond) -> Option<Arc<str>> {
        let is_next = *run == *self.run && t_s > self.last_second;
        is_next.then(|| {
            self.last_second = t_s;
            text
        })
    }

    /// In place of all messages that the reader has missed.
    async fn catch_up(&mut self) -> Vec<Arc<str>> {
        let mut texts = self.watcher.live.latest_status();
        texts.extend(self.snapshot().await);
        texts
    }

    /// The seconds that the reader lacks, or the whole run if it has another one.
    async fn snapshot(&mut self) -> Vec<Arc<str>> {
        let watched = self.watcher.current_run().await;
        let watched = watched.as_ref();
        let run = watched.map_or("", |watched| watched.run_id());
        let seconds = watched.map_or(0, |watched| watched.view().timeline.len() as u32);
        // The result of a finished run may correct its last second.
        let open = watched.is_some_and(|watched| !watched.finished);
        let has_part = open && run == self.run && (1..=seconds).contains(&self.last_second);
        let texts: Vec<Arc<str>> = match has_part {
            true => snapshot_messages(watched, self.last_second).into_iter().map(Arc::from).collect(),
            false => self.watcher.live.whole_snapshot(watched),
        };
        run.clone_into(&mut self.run);
        self.last_second = seconds;
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::StoreContact;
    use squall_coord::MemoryFleetStores;
    use squall_orchestrator::FleetClient;

    fn kinds(texts: &[Arc<str>]) -> Vec<String> {
        let kind = |text: &Arc<str>| serde_json::from_str::<serde_json::Value>(text).unwrap()["type"].to_string();
        texts.iter().map(kind).collect()
    }

    #[tokio::test]
    async fn reader_that_is_behind_gets_the_state_and_a_snapshot_instead_of_a_backlog() {
        let watcher = RunWatcher::new(FleetClient::new(MemoryFleetStores::default()), "test");
        let mut reader = LiveReader::new(&watcher, LiveQuery::default());
        watcher.live.publish::<MemoryFleetStores>(StoreContact::Lost, None);
        for number in 0..100 {
            watcher.live.send(Published::Text(format!(r#"{{"type": "table", "number": {number}}}"#).into()));
        }
        let published = reader.published.recv().await;
        assert!(matches!(published, Err(RecvError::Lagged(_))), "{published:?}");
        let texts = reader.texts_for(published).await.unwrap();
        assert_eq!(kinds(&texts), [r#""state""#, r#""snapshot""#]);
        let newest = reader.published.recv().await;
        assert_eq!(kinds(&reader.texts_for(newest).await.unwrap()), [r#""table""#]);
    }

    #[tokio::test]
    async fn second_that_the_snapshot_contained_is_not_sent_again() {
        let watcher = RunWatcher::new(FleetClient::new(MemoryFleetStores::default()), "test");
        let mut reader = LiveReader::new(&watcher, LiveQuery { run: "r1".into(), since: 7 });
        let second = |run: &str, t_s| PublishedSecond { run: run.into(), t_s, text: "{}".into() };
        assert!(reader.second(second("r1", 7)).is_none());
        assert!(reader.second(second("r2", 8)).is_none());
        assert!(reader.second(second("r1", 8)).is_some());
        assert!(reader.second(second("r1", 8)).is_none());
    }
}

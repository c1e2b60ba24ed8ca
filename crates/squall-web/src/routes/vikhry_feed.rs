//! `/ws/metrics`: vikhry's feed. A subscriber gets a snapshot, then a message per second. A slow
//! subscriber misses the oldest messages.

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use http::StatusCode;
use squall_coord::FleetStores;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{sync::broadcast::error::RecvError, time::timeout};

use super::ApiState;
use crate::{
    error::ApiError,
    vikhry_json::{self, MetricsFilter},
};

/// Maximum number of concurrent subscribers.
const MAX_SUBSCRIBERS: usize = 256;
/// The server disconnects a subscriber that accepts no message for this long.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn subscribe<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade =
        upgrade.map_err(|error| ApiError::bad_request(format!("this path is a WebSocket: {}", error.body_text())))?;
    if app.watcher.vikhry_subscriber_count() >= MAX_SUBSCRIBERS {
        let message = format!("/ws/metrics already has {MAX_SUBSCRIBERS} subscribers");
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "bad_request", message));
    }
    // The server ignores incoming messages, so a long one would only use memory.
    let upgrade = upgrade.max_message_size(4 << 10).max_frame_size(4 << 10);
    Ok(upgrade.on_upgrade(async move |socket| send_messages(&app, socket).await))
}

/// Sends a snapshot, then a message per second, and counts the messages that a slow subscriber
/// misses.
async fn send_messages<C: FleetStores>(app: &ApiState<C>, mut socket: WebSocket) {
    let mut ticks = app.watcher.vikhry_subscribe();
    let wanted = MetricsFilter { metric_id: None, count: 100, include_events: true };
    let snapshot = vikhry_json::metrics_json(app.watcher.current_run().await.as_ref(), &wanted, &app.watcher.counters);
    let mut next = Some(vikhry_json::feed_message("metrics_snapshot", &snapshot));
    loop {
        if let Some(text) = next.take() {
            match timeout(SEND_TIMEOUT, socket.send(Message::Text(text.into()))).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        tokio::select! {
            () = app.stop.cancelled() => break,
            tick = ticks.recv() => match tick {
                Ok(text) => next = Some(text.as_ref().to_owned()),
                Err(RecvError::Lagged(missed)) => {
                    app.watcher.counters.dropped_messages.fetch_add(missed, Relaxed);
                }
                Err(RecvError::Closed) => break,
            },
            received = socket.recv() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = timeout(Duration::from_secs(1), socket.send(Message::Close(None))).await;
}

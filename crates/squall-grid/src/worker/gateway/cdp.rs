//! CDP sessions of a gateway: opens them, and gives a client that comes back the session that it left.
//! It forwards no message; [`CdpSession`] does. The gateway calls it for requests of servers.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{
    Gateway, LEAVE_TIME, RegisteredSession, overdue,
    session_request::{GatewayRefusal, KEEP_ALIVE_HEADER, SessionRequest},
};
use crate::{
    handshake::{self, RequestHead},
    relay::{RelaySide, frame::CloseFrame},
    worker::cdp_session::{CdpClient, CdpLife, CdpSession},
};

impl Gateway {
    /// Serves a session with a browser of its own, or passes the client to the session that it had.
    pub(super) async fn serve_cdp(&self, head: &RequestHead, side: RelaySide) -> Result<(), GatewayRefusal> {
        let websocket_key = head.headers.get("sec-websocket-key").unwrap_or_default().to_owned();
        let client = CdpClient { side, websocket_key };
        let Some(client) = self.pass_on(head, client).await else { return Ok(()) };
        let (session, stopped, launched) = match self.open_cdp(head).await {
            Ok(opened) => opened,
            Err((status, body)) => {
                let _ = handshake::refuse(&client.side.socket, status, &body, None).await;
                return Err((status, body));
            }
        };
        let keep_alive = head.headers.get(KEEP_ALIVE_HEADER).and_then(|text| text.parse().ok());
        let next = keep_alive.map(|keep_alive| {
            let (next, clients) = mpsc::channel(1);
            if let Some(open) = self.lock().get_mut(&session.id) {
                open.next_client = Some(next);
            }
            (Duration::from_millis(keep_alive), clients)
        });
        let overdue = (self.shared.config.max_cdp_time, overdue(&session.id));
        let life = CdpLife { stopped, next, overdue, lost: self.browser_lost(&session.id) };
        let on_leave = || {
            if let Some(open) = self.lock().get_mut(&session.id) {
                open.detached = true;
            }
            self.shared.client_left.notify_waiters();
        };
        let browser = launched.run(client, life, || session.count(), on_leave).await;
        tracing::debug!(session = %session.id, "a CDP session ended");
        // The slot is free now; the end of the browser's processes takes longer.
        drop(session);
        browser.end().await;
        Ok(())
    }

    async fn open_cdp(
        &self,
        head: &RequestHead,
    ) -> Result<(RegisteredSession, oneshot::Receiver<CloseFrame>, CdpSession), GatewayRefusal> {
        let config = &self.shared.config;
        let request = self.check_server(head)?;
        // The server takes a status of 5xx for a lost worker.
        let program =
            config.cdp.executable.as_deref().ok_or_else(|| {
                (400, format!("worker {} has no --executable, which CDP sessions need", config.worker))
            })?;
        let (session, stopped) = self.register(head, request).await?;
        let launched = config.cdp.launch(program);
        let (browser, input, output) = launched.map_err(|error| (502, format!("cannot launch a browser: {error}")))?;
        Ok((session, stopped, CdpSession::new(browser, input, output, config.probe_every)))
    }

    /// Gives the client to a session whose client left. Returns it if there is no such session.
    async fn pass_on(&self, head: &RequestHead, client: CdpClient) -> Option<CdpClient> {
        let Ok(SessionRequest { id, server, .. }) = self.check_server(head) else { return Some(client) };
        // The server may know that the client left a moment earlier.
        let waiting = async {
            loop {
                let mut left = std::pin::pin!(self.shared.client_left.notified());
                left.as_mut().enable();
                if self.lock().get(&id).is_none_or(|open| open.detached || open.next_client.is_none()) {
                    return;
                }
                left.await;
            }
        };
        let _ = tokio::time::timeout(LEAVE_TIME, waiting).await;
        let mut sessions = self.lock();
        let Some(open) = sessions.get_mut(&id).filter(|open| open.detached) else { return Some(client) };
        let Some(next) = &open.next_client else { return Some(client) };
        // Fails if the session is just ending.
        if let Err(failed) = next.try_send(client) {
            return Some(failed.into_inner());
        }
        (open.detached, open.request.server) = (false, server);
        None
    }
}

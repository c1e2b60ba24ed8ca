//! One connection to a browser: numbers commands, matches replies to them, and passes events to the page
//! of their session. It does not know what commands mean. Events are handled as they arrive and are
//! never queued, so a page that sends many of them does not grow the memory.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::{Rc, Weak},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{mpsc, oneshot},
    task::AbortHandle,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::message::CdpMessage;

/// The longest message. A screenshot of a long page has several MB.
pub(crate) const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// Why a command of the protocol has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CdpError {
    #[error("the browser ended")]
    Closed,
    /// The grid ended the session, with its reason.
    #[error("the grid ended the session: {0}")]
    SessionEnded(String),
    #[error("{method}: {message}")]
    Refused { method: &'static str, message: String },
}

/// Receives the events of one session.
pub(crate) trait EventListener {
    fn on_event(&self, method: &str, params: &Value);

    /// No further event will come, for this reason.
    fn on_closed(&self, reason: CdpError);
}

type ReplySender = oneshot::Sender<Result<Value, String>>;

/// A handle on the connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    state: Rc<ConnectionState>,
}

struct ConnectionState {
    next_id: Cell<u64>,
    /// `None` once the connection has ended.
    pending: RefCell<Option<HashMap<u64, ReplySender>>>,
    sessions: RefCell<HashMap<String, Weak<dyn EventListener>>>,
    /// Why the grid ended the session, in its own words.
    end_reason: RefCell<Option<String>>,
    /// Unbounded: a user has a few commands open at most.
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
}

/// The tasks that read and write. Dropping it ends them.
pub(crate) struct ConnectionTasks(Vec<AbortHandle>);

impl Drop for ConnectionTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Connection {
    fn new() -> (Connection, mpsc::UnboundedReceiver<Vec<u8>>) {
        let (outgoing, commands) = mpsc::unbounded_channel::<Vec<u8>>();
        let state = Rc::new(ConnectionState {
            next_id: Cell::new(1),
            pending: RefCell::new(Some(HashMap::new())),
            sessions: RefCell::default(),
            end_reason: RefCell::default(),
            outgoing,
        });
        (Connection { state }, commands)
    }

    /// A connection over a pipe, on which a NUL byte ends each message.
    pub(crate) fn over_pipe(
        reader: impl AsyncRead + Unpin + 'static,
        mut writer: impl AsyncWrite + Unpin + 'static,
    ) -> (Connection, ConnectionTasks) {
        let (connection, mut commands) = Connection::new();
        let write = tokio::task::spawn_local(async move {
            while let Some(mut message) = commands.recv().await {
                message.push(0);
                // The reader notices a browser that has ended.
                if writer.write_all(&message).await.is_err() {
                    return;
                }
            }
        });
        let reading = connection.state.clone();
        let read = tokio::task::spawn_local(async move {
            // Whether the browser closed the pipe or sent junk, the connection is over.
            let _ = read_messages(BufReader::with_capacity(64 << 10, reader), &reading).await;
            reading.close();
        });
        (connection, ConnectionTasks(vec![write.abort_handle(), read.abort_handle()]))
    }

    /// A connection over a WebSocket, which has one message in each frame.
    pub(crate) fn over_websocket(
        socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin + 'static>,
    ) -> (Connection, ConnectionTasks) {
        let (connection, mut commands) = Connection::new();
        let (mut sink, mut messages) = socket.split();
        let write = tokio::task::spawn_local(async move {
            while let Some(message) = commands.recv().await {
                let Ok(text) = String::from_utf8(message) else { return };
                // The reader notices a connection that has ended.
                if sink.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        });
        let reading = connection.state.clone();
        let read = tokio::task::spawn_local(async move {
            while let Some(Ok(message)) = messages.next().await {
                let decoded = match &message {
                    Message::Text(text) => CdpMessage::decode(text.as_bytes()),
                    Message::Binary(bytes) => CdpMessage::decode(bytes),
                    Message::Close(frame) => {
                        let reason = frame.as_ref().map(|frame| frame.reason.to_string());
                        *reading.end_reason.borrow_mut() = reason.filter(|reason| !reason.is_empty());
                        break;
                    }
                    // The library answers pings.
                    Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
                };
                let Some(decoded) = decoded else { break };
                reading.dispatch(decoded);
            }
            reading.close();
        });
        (connection, ConnectionTasks(vec![write.abort_handle(), read.abort_handle()]))
    }

    /// Sends a command. The browser runs the commands of a session in the order in which they are sent,
    /// whether or not their replies are awaited.
    pub(crate) fn send(&self, session: Option<&str>, method: &'static str, params: Value) -> CommandReply {
        let id = self.state.next_id.replace(self.state.next_id.get() + 1);
        let (sender, reply) = oneshot::channel();
        if let Some(pending) = self.state.pending.borrow_mut().as_mut() {
            pending.insert(id, sender);
        }
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        // Without a writer the reply's sender is dropped too.
        let _ = self.state.outgoing.send(message.to_string().into_bytes());
        CommandReply { method, reply, connection: self.state.clone() }
    }

    pub(crate) async fn call(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
    ) -> Result<Value, CdpError> {
        self.send(session, method, params).await
    }

    /// Passes the events of `session` to `listener` for as long as it exists.
    pub(crate) fn listen(&self, session: &str, listener: Weak<dyn EventListener>) {
        self.state.sessions.borrow_mut().insert(session.to_owned(), listener);
    }

    pub(crate) fn stop_listening(&self, session: &str) {
        self.state.sessions.borrow_mut().remove(session);
    }

    /// Ends the connection without waiting for the browser.
    pub(crate) fn give_up(&self) {
        self.state.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.pending.borrow().is_none()
    }
}

/// The reply to a command that has been sent.
pub(crate) struct CommandReply {
    method: &'static str,
    reply: oneshot::Receiver<Result<Value, String>>,
    connection: Rc<ConnectionState>,
}

impl IntoFuture for CommandReply {
    type Output = Result<Value, CdpError>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.reply.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(message)) => Err(CdpError::Refused { method: self.method, message }),
                Err(_) => Err(self.connection.end_error()),
            }
        })
    }
}

impl ConnectionState {
    fn dispatch(&self, message: CdpMessage) {
        match message {
            CdpMessage::Reply { id, result } => {
                let sender = self.pending.borrow_mut().as_mut().and_then(|pending| pending.remove(&id));
                if let Some(sender) = sender {
                    // A caller that gave up has dropped its receiver.
                    let _ = sender.send(result);
                }
            }
            CdpMessage::Event { session: Some(session), method, params } => {
                let listener = self.sessions.borrow().get(&session).and_then(Weak::upgrade);
                if let Some(listener) = listener {
                    listener.on_event(&method, &params);
                }
            }
            CdpMessage::Event { session: None, .. } => {}
        }
    }

    fn end_error(&self) -> CdpError {
        self.end_reason.borrow().clone().map_or(CdpError::Closed, CdpError::SessionEnded)
    }

    /// Fails all open commands.
    fn close(&self) {
        self.pending.borrow_mut().take();
        let listeners: Vec<_> = self.sessions.borrow().values().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener.on_closed(self.end_error()));
    }
}

async fn read_messages(
    mut reader: impl tokio::io::AsyncBufRead + Unpin,
    connection: &ConnectionState,
) -> io::Result<()> {
    let mut message = Vec::new();
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(());
        }
        let end = available.iter().position(|byte| *byte == 0);
        message.extend_from_slice(&available[..end.unwrap_or(available.len())]);
        let used = end.map_or(available.len(), |end| end + 1);
        reader.consume(used);
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if end.is_some() {
            let decoded = CdpMessage::decode(&message).ok_or(io::ErrorKind::InvalidData)?;
            connection.dispatch(decoded);
            message.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(tokio::task::LocalSet::new().run_until(test));
    }

    #[test]
    fn replies_reach_their_commands_in_any_order_and_across_reads() {
        run(async {
            let (ours, theirs) = tokio::io::duplex(64);
            let (reader, writer) = tokio::io::split(ours);
            let (connection, _tasks) = Connection::over_pipe(reader, writer);
            let first = connection.send(None, "A.a", json!({}));
            let second = connection.send(Some("S"), "B.b", json!({}));
            let (mut their_reader, mut their_writer) = tokio::io::split(theirs);
            let mut sent = vec![0; 1024];
            let mut length = 0;
            while sent[..length].iter().filter(|byte| **byte == 0).count() < 2 {
                length += their_reader.read(&mut sent[length..]).await.expect("commands");
            }
            let replies = b"{\"id\":2,\"result\":{\"b\":1}}\0{\"id\":1,\"error\":{\"message\":\"no\"}}\0";
            for piece in replies.chunks(7) {
                their_writer.write_all(piece).await.expect("the connection reads");
            }
            assert_eq!(second.await, Ok(json!({ "b": 1 })));
            assert_eq!(first.await, Err(CdpError::Refused { method: "A.a", message: "no".to_owned() }));
        });
    }

    #[test]
    fn commands_fail_when_the_browser_ends_or_sends_junk() {
        run(async {
            for junk in [&b""[..], b"hello\0"] {
                let (ours, mut theirs) = tokio::io::duplex(1024);
                let (reader, writer) = tokio::io::split(ours);
                let (connection, _tasks) = Connection::over_pipe(reader, writer);
                let reply = connection.send(None, "A.a", json!({}));
                theirs.write_all(junk).await.expect("the connection reads");
                drop(theirs);
                assert_eq!(reply.await, Err(CdpError::Closed));
                assert_eq!(connection.call(None, "A.a", json!({})).await, Err(CdpError::Closed));
            }
        });
    }
}

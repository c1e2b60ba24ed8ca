//! A session of the Chrome DevTools Protocol: connects WebSocket clients, one after another, to the
//! pipe of a browser of their own.
//! It does not choose the browser's settings and keeps no list of sessions; the gateway does.

use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{ChildStdin, ChildStdout},
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, Sleep},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        handshake::derive_accept_key,
        protocol::{
            Role, WebSocketConfig,
            frame::{
                CloseFrame as WebSocketClose, Frame,
                coding::{Data, OpCode},
            },
        },
    },
};

use super::{
    cdp_browser::CdpBrowser,
    cdp_messages::{MessageSplitter, Part, for_browser},
    stopped_process::StopCheck,
};
use crate::{
    handshake::{self, Headers},
    relay::{RelaySide, Socket, frame::CloseFrame},
};

/// How long the browser may take to answer the worker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of a client's message, such as a file to upload.
const MAX_MESSAGE: usize = 64 << 20;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Probes in a row that the browser may miss.
const MAX_MISSES: u32 = 2;

type ToClient = SplitSink<WebSocketStream<TcpStream>, Message>;
type FromClient = SplitStream<WebSocketStream<TcpStream>>;

/// A client that wants to connect, with its `Sec-WebSocket-Key`.
pub(crate) struct CdpClient {
    pub(crate) side: RelaySide,
    pub(crate) websocket_key: String,
}

/// A browser with its pipe.
pub(crate) struct CdpSession {
    browser: CdpBrowser,
    input: Mutex<ChildStdin>,
    output: ChildStdout,
    splitter: MessageSplitter,
    last_request: u64,
    probe_every: Duration,
}

/// When a session ends besides by its client.
pub(crate) struct CdpLife {
    pub(crate) stopped: oneshot::Receiver<CloseFrame>,
    /// How long the browser stays after a client left, and the clients that follow.
    pub(crate) next: Option<(Duration, mpsc::Receiver<CdpClient>)>,
    /// How long it may last, and what its client is told then.
    pub(crate) overdue: (Duration, CloseFrame),
    /// For a client whose browser ended.
    pub(crate) lost: CloseFrame,
}

#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    result: Option<AnswerResult>,
}

#[derive(Deserialize)]
struct AnswerResult {
    #[serde(rename = "sessionId")]
    session: Option<String>,
}

impl CdpSession {
    pub(crate) fn new(browser: CdpBrowser, input: ChildStdin, output: ChildStdout, probe_every: Duration) -> Self {
        let (input, splitter) = (Mutex::new(input), MessageSplitter::default());
        Self { browser, input, output, splitter, last_request: 0, probe_every }
    }

    /// Serves clients until the session is over. `on_answer` is called when the browser has answered, and
    /// `on_leave` when a client has left and another may come. Returns the browser, which the caller ends.
    pub(crate) async fn run(
        mut self,
        first: CdpClient,
        mut life: CdpLife,
        on_answer: impl Fn(),
        on_leave: impl Fn(),
    ) -> CdpBrowser {
        let mut client = first;
        let mut overdue = pin!(tokio::time::sleep(life.overdue.0));
        loop {
            let left = self.serve(client, &mut life, overdue.as_mut(), &on_answer).await;
            let (true, Some((keep_alive, clients))) = (left, &mut life.next) else { break };
            on_leave();
            let deadline = Instant::now() + *keep_alive;
            client = tokio::select! {
                Some(next) = clients.recv() => next,
                () = tokio::time::sleep_until(deadline) => break,
                () = overdue.as_mut() => break,
                _ = &mut life.stopped => break,
                () = self.discard_output() => break,
            };
        }
        self.browser
    }

    /// Serves one client. Returns whether it left and the browser can have another.
    async fn serve(
        &mut self,
        client: CdpClient,
        life: &mut CdpLife,
        overdue: Pin<&mut Sleep>,
        on_answer: impl Fn(),
    ) -> bool {
        let CdpClient { side: RelaySide { socket, received }, websocket_key } = client;
        let Some(session) = self.attach().await else {
            let _ = handshake::refuse(&socket, 502, "the browser does not answer", None).await;
            return false;
        };
        on_answer();
        let mut headers = Headers::default();
        headers.push("upgrade", "websocket");
        headers.push("connection", "Upgrade");
        headers.push("sec-websocket-accept", derive_accept_key(websocket_key.as_bytes()));
        if let Some((keep_alive, _)) = &life.next {
            headers.push(super::gateway::KEEP_ALIVE_HEADER, keep_alive.as_millis().to_string());
        }
        let accepted = handshake::accept_websocket(&socket, &headers).await.is_ok();
        let left = match (socket, accepted) {
            (Socket::Tcp(stream), true) => self.forward(stream, received, &session, life, overdue).await,
            _ => true,
        };
        left && self.detach(&session).await
    }

    /// A session of the browser target for a client.
    async fn attach(&mut self) -> Option<String> {
        self.last_request += 1;
        let request = json!({"id": self.last_request, "method": "Target.attachToBrowserTarget"});
        if !write_message(&self.input, &request.to_string()).await {
            return None;
        }
        let attached = tokio::time::timeout(ANSWER_TIMEOUT, self.read_session(self.last_request)).await.ok()??;
        self.splitter.begin_client(&attached);
        Some(attached)
    }

    async fn read_session(&mut self, request: u64) -> Option<String> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = self.output.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
            for part in self.splitter.split(&buffer[..read]) {
                if let Part::ForWorker(message) = part
                    && let Ok(answer) = serde_json::from_slice::<Answer>(&message)
                    && answer.id == Some(request)
                {
                    return answer.result?.session;
                }
            }
        }
    }

    /// Ends the session of a client, and with it all that the client attached to.
    async fn detach(&mut self, session: &str) -> bool {
        self.last_request += 1;
        let params = json!({"sessionId": session});
        let request = json!({"id": self.last_request, "method": "Target.detachFromTarget", "params": params});
        write_message(&self.input, &request.to_string()).await
    }

    /// Reads what the browser says to no client; returns when the browser ends.
    async fn discard_output(&mut self) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read) = self.output.read(&mut buffer).await
            && read > 0
        {
            self.splitter.split(&buffer[..read]);
        }
    }

    /// Forwards messages both ways until a side ends. Returns whether the client left and the browser can
    /// have another.
    async fn forward(
        &mut self,
        stream: TcpStream,
        received: Vec<u8>,
        session: &str,
        life: &mut CdpLife,
        overdue: Pin<&mut Sleep>,
    ) -> bool {
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let websocket = WebSocketStream::from_partially_read(stream, received, Role::Server, Some(config)).await;
        let (mut to_client, mut from_client) = websocket.split();
        let (writing, misses) = (AtomicBool::new(false), AtomicU32::new(0));
        let ended = tokio::select! {
            ended = forward_to_browser(&mut from_client, &self.input, session, &writing) => ended,
            ended = wait_until_stopped(self.browser.pid()) => ended,
            ended = forward_to_client(&mut self.output, &mut self.splitter, &mut to_client, &misses) => ended,
            ended = probe(&self.input, self.probe_every, &misses) => ended,
            close = &mut life.stopped => close.map_or(Ended::Browser, Ended::Stopped),
            () = overdue => Ended::Stopped(life.overdue.1.clone()),
        };
        let close = match ended {
            // A message that is half in the pipe cannot be followed by another.
            Ended::Client => return !writing.load(Relaxed),
            Ended::Browser => life.lost.clone(),
            Ended::Stopped(close) => close,
            Ended::TooLarge => CloseFrame::new(1009, "squall: a message is larger than 64 MiB; send less at once"),
            Ended::Violation => CloseFrame::new(1007, "squall: a message is not a JSON object"),
        };
        close_client(to_client, from_client, &close).await;
        false
    }
}

/// What ended the connection of a client.
enum Ended {
    Client,
    Browser,
    Stopped(CloseFrame),
    TooLarge,
    Violation,
}

/// `writing` is set while a message is half in the pipe.
async fn forward_to_browser(
    from_client: &mut FromClient,
    input: &Mutex<ChildStdin>,
    session: &str,
    writing: &AtomicBool,
) -> Ended {
    loop {
        let message = match from_client.next().await {
            Some(Ok(message)) => message,
            Some(Err(tungstenite::Error::Capacity(_))) => return Ended::TooLarge,
            Some(Err(_)) | None => return Ended::Client,
        };
        let text = match &message {
            Message::Text(text) => text.as_str(),
            Message::Binary(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            _ => continue,
        };
        let Some(bytes) = for_browser(text, session) else { return Ended::Violation };
        writing.store(true, Relaxed);
        if input.lock().await.write_all(&bytes).await.is_err() {
            return Ended::Browser;
        }
        writing.store(false, Relaxed);
    }
}

/// An answer to the worker's probe resets `misses`.
async fn forward_to_client(
    output: &mut ChildStdout,
    splitter: &mut MessageSplitter,
    to_client: &mut ToClient,
    misses: &AtomicU32,
) -> Ended {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Some(read) = output.read(&mut buffer).await.ok().filter(|read| *read > 0) else {
            return Ended::Browser;
        };
        for part in splitter.split(&buffer[..read]) {
            if let Part::ForWorker(_) = part {
                misses.store(0, Relaxed);
            } else if to_client.send(frame_of(part)).await.is_err() {
                return Ended::Client;
            }
        }
    }
}

/// Returns when the browser has missed too many probes.
async fn probe(input: &Mutex<ChildStdin>, every: Duration, misses: &AtomicU32) -> Ended {
    let probe = json!({"id": 0, "method": "Browser.getVersion"}).to_string();
    loop {
        tokio::time::sleep(every).await;
        if misses.fetch_add(1, Relaxed) >= MAX_MISSES || !write_message(input, &probe).await {
            return Ended::Browser;
        }
    }
}

/// Returns when the browser's process is stopped.
async fn wait_until_stopped(browser: Option<Pid>) -> Ended {
    let mut check = StopCheck::default();
    while !check.is_stopped(browser) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ended::Browser
}

async fn close_client(mut to_client: ToClient, mut from_client: FromClient, close: &CloseFrame) {
    let closing = async {
        to_client.send(close_message(close)).await.ok()?;
        // The client answers with its close frame, after which the stream ends.
        while from_client.next().await?.is_ok() {}
        Some(())
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
}

async fn write_message(input: &Mutex<ChildStdin>, text: &str) -> bool {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    let mut input = input.lock().await;
    matches!(tokio::time::timeout(ANSWER_TIMEOUT, input.write_all(&bytes)).await, Ok(Ok(())))
}

fn frame_of(part: Part) -> Message {
    let Part::ForClient { bytes, first, last } = part else { unreachable!("checked by the caller") };
    let kind = if first { Data::Text } else { Data::Continue };
    Message::Frame(Frame::message(Bytes::from(bytes), OpCode::Data(kind), last))
}

fn close_message(close: &CloseFrame) -> Message {
    let code = close.code.unwrap_or(1000).into();
    Message::Close(Some(WebSocketClose { code, reason: close.reason.clone().into() }))
}

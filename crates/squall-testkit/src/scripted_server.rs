//! HTTP servers that misbehave on purpose: every connection runs the same script of
//! [`ServerStep`]s. They use blocking threads on loopback, so that tests on any runtime and in any
//! process can use them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// One action of the server on a connection.
#[derive(Debug, Clone)]
pub enum ServerStep {
    /// Read one request: its head, and its body if the head has a Content-Length.
    Read,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send each piece with a write of its own.
    SendPieces(Vec<Vec<u8>>),
    /// Repeat these bytes until the client closes.
    SendForever(Vec<u8>),
    /// Send nothing and keep the connection open until the client closes.
    Hang,
    /// Close with a reset instead of an orderly end.
    Reset,
    /// Close, with a TLS close_notify where the stream is TLS.
    Close,
    /// Close without close_notify.
    CloseAbruptly,
    /// Start the script over on the same connection.
    Restart,
    /// Continue with this step of the script; the first is 0.
    Goto(usize),
}

impl ServerStep {
    /// Sends a text.
    pub fn send(text: &str) -> ServerStep {
        ServerStep::Send(text.as_bytes().to_vec())
    }

    /// Sends a complete response with this body.
    pub fn respond(body: &str) -> ServerStep {
        ServerStep::send(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A server that runs a script on every connection. It stops when dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct ServerState {
    stopping: AtomicBool,
    connections: AtomicUsize,
    requests: AtomicUsize,
    last_request: Mutex<Vec<u8>>,
    closed: Mutex<usize>,
    closing: Condvar,
}

impl ScriptedServer {
    /// Starts a server on a free port of 127.0.0.1.
    pub fn start(script: Vec<ServerStep>) -> ScriptedServer {
        ScriptedServer::start_with(script, |stream| Ok(Box::new(stream) as Box<dyn ScriptStream>))
    }

    /// The same, with each accepted socket wrapped first (TLS).
    pub fn start_with<W>(script: Vec<ServerStep>, wrap: W) -> ScriptedServer
    where
        W: Fn(TcpStream) -> io::Result<Box<dyn ScriptStream>> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(ServerState::default());
        let (script, wrap): (Arc<[ServerStep]>, _) = (script.into(), Arc::new(wrap));
        let accepting = shared.clone();
        let handle = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                let (script, wrap, shared) = (script.clone(), wrap.clone(), accepting.clone());
                std::thread::spawn(move || {
                    serve_connection(stream, &script, wrap.as_ref(), &shared);
                    *shared.closed.lock().expect("no holder panics") += 1;
                    shared.closing.notify_all();
                });
            }
        });
        ScriptedServer { address, shared, listener: Some(handle) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT` followed by `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Requests read so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Blocks until the server has closed this many connections.
    pub fn wait_until_closed(&self, count: usize) {
        let closed = self.shared.closed.lock().expect("no holder panics");
        let waited = self.shared.closing.wait_while(closed, |closed| *closed < count);
        drop(waited.expect("no holder panics"));
    }

    /// The bytes of the last request read.
    pub fn last_request(&self) -> String {
        let bytes = self.shared.last_request.lock().expect("no server thread panics while holding it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept call. If connecting fails, the listener has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(handle) = self.listener.take() {
            let _ = handle.join();
        }
    }
}

/// A port of 127.0.0.1 on which nothing listens.
pub fn refused_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    listener.local_addr().expect("a bound listener has an address")
}

/// The stream that a script runs on.
pub trait ScriptStream: Read + Write + Send {
    /// Makes the next close send a reset.
    fn reset(&mut self);

    /// Sends the protocol's closing message, if it has one.
    fn close(&mut self) {}
}

impl ScriptStream for TcpStream {
    fn reset(&mut self) {
        let _ = socket2::SockRef::from(&*self).set_linger(Some(std::time::Duration::ZERO));
    }
}

fn serve_connection(
    stream: TcpStream,
    script: &[ServerStep],
    wrap: &dyn Fn(TcpStream) -> io::Result<Box<dyn ScriptStream>>,
    shared: &ServerState,
) {
    let _ = stream.set_nodelay(true);
    // The client may close at any point of the script, so errors are ignored.
    if let Ok(mut stream) = wrap(stream) {
        let _ = run_script(stream.as_mut(), script, shared);
    }
}

fn run_script(stream: &mut dyn ScriptStream, script: &[ServerStep], shared: &ServerState) -> io::Result<()> {
    let mut at = 0;
    while let Some(step) = script.get(at) {
        at += 1;
        match step {
            ServerStep::Read => {
                let request = read_request(stream)?;
                *shared.last_request.lock().expect("no other holder panics") = request;
                shared.requests.fetch_add(1, Ordering::SeqCst);
            }
            ServerStep::Send(bytes) => send(stream, bytes)?,
            ServerStep::SendPieces(pieces) => {
                for piece in pieces {
                    send(stream, piece)?;
                }
            }
            ServerStep::SendForever(bytes) => loop {
                send(stream, bytes)?;
            },
            ServerStep::Hang => {
                io::copy(stream, &mut io::sink())?;
            }
            ServerStep::Reset => {
                stream.reset();
                return Ok(());
            }
            ServerStep::Close => {
                stream.close();
                return Ok(());
            }
            ServerStep::CloseAbruptly => return Ok(()),
            ServerStep::Restart => at = 0,
            ServerStep::Goto(step) => at = *step,
        }
    }
    Ok(())
}

fn send(stream: &mut dyn ScriptStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn read_request(stream: &mut dyn ScriptStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        read_more(stream, &mut request, 1)?;
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    read_more(stream, &mut request, length)?;
    Ok(request)
}

fn read_more(stream: &mut dyn ScriptStream, request: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let start = request.len();
    request.resize(start + count, 0);
    stream.read_exact(&mut request[start..])
}

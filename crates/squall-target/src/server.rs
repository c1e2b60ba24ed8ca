//! Serves the shop on its own threads. Each thread has a listener on the same port (`SO_REUSEPORT`)
//! and a runtime, so that cores share only the shop's counters. Dropping the server stops and joins
//! the threads.

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{net::TcpStream, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{TargetEndpoint, respond::respond, shop::Shop, stats::RequestStats};

/// Length of the accept queue.
const BACKLOG: i32 = 4096;
/// How long to wait after a failed accept (out of file descriptors) before the next.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// A running target. Dropping it stops it.
///
/// ```
/// let target = squall_target::TargetServer::start("127.0.0.1:0").unwrap();
/// assert_eq!(target.requests(), 0);
/// println!("try curl {}", target.url("/api/products"));
/// ```
#[derive(Debug)]
pub struct TargetServer {
    addr: SocketAddr,
    shared: Arc<TargetState>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

/// Why the target cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TargetStartError {
    #[error("`{listen}` is not an address to listen on: write HOST:PORT, for example 127.0.0.1:8089")]
    Address { listen: String, source: io::Error },
    #[error("cannot listen on {addr}")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error("cannot start a serving thread")]
    Thread { source: io::Error },
}

/// State that all serving threads share.
#[derive(Debug)]
pub(crate) struct TargetState {
    pub(crate) shop: Shop,
    pub(crate) stats: RequestStats,
    pub(crate) freeze: ResponseFreeze,
}

/// The time until which every response waits.
#[derive(Debug)]
pub(crate) struct ResponseFreeze {
    origin: Instant,
    /// Nanoseconds after `origin`; 0 is never.
    until_ns: AtomicU64,
}

impl ResponseFreeze {
    fn new() -> ResponseFreeze {
        ResponseFreeze { origin: Instant::now(), until_ns: AtomicU64::new(0) }
    }

    pub(crate) fn start(&self, until: Instant) {
        self.until_ns.fetch_max((until - self.origin).as_nanos() as u64, Relaxed);
    }

    /// The end of the current freeze, if there is one.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.until_ns.load(Relaxed) {
            0 => None,
            ns => Some(self.origin + Duration::from_nanos(ns)).filter(|until| *until > Instant::now()),
        }
    }
}

impl TargetServer {
    /// Serves on one thread; port 0 takes a free one.
    pub fn start(listen: &str) -> Result<TargetServer, TargetStartError> {
        TargetServer::start_on(listen, 1)
    }

    /// Serves on `threads` threads.
    pub fn start_on(listen: &str, threads: usize) -> Result<TargetServer, TargetStartError> {
        let addr = resolve(listen).map_err(|source| TargetStartError::Address { listen: listen.to_owned(), source })?;
        let bound = bind_all(addr, threads.max(1));
        let (addr, listeners) = bound.map_err(|source| TargetStartError::Bind { addr, source })?;
        let (shop, stats, freeze) = (Shop::new(), RequestStats::new(listeners.len()), ResponseFreeze::new());
        let (shared, stop) = (Arc::new(TargetState { shop, stats, freeze }), CancellationToken::new());
        let mut target = TargetServer { addr, shared, stop, threads: Vec::new() };
        for (thread, listener) in listeners.into_iter().enumerate() {
            let spawned = target.spawn(thread, listener).map_err(|source| TargetStartError::Thread { source })?;
            target.threads.push(spawned);
        }
        Ok(target)
    }

    fn spawn(&self, thread: usize, listener: TcpListener) -> io::Result<JoinHandle<()>> {
        let (shared, stop) = (self.shared.clone(), self.stop.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async { tokio::net::TcpListener::from_std(listener) })?;
        let name = format!("target-{thread}");
        std::thread::Builder::new().name(name).spawn(move || {
            runtime.block_on(stop.run_until_cancelled(accept_connections(listener, shared, thread)));
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://HOST:PORT` followed by `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Requests received so far, `/stats` and `/metrics` not counted.
    pub fn requests(&self) -> u64 {
        self.shared.stats.total()
    }

    /// Requests received so far at one endpoint.
    pub fn requests_of(&self, endpoint: TargetEndpoint) -> u64 {
        self.shared.stats.count_of(endpoint)
    }

    /// Holds every response back for `length` from now on, like a stop-the-world pause of the server.
    pub fn freeze(&self, length: Duration) {
        self.shared.freeze.start(Instant::now() + length);
    }
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        self.stop.cancel();
        // A panicking thread has printed its message to stderr.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn resolve(listen: &str) -> io::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let missing = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    listen.to_socket_addrs()?.next().ok_or_else(missing)
}

fn bind_all(addr: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if addr.port() != 0 {
        // A shared port would let a second target take half of the traffic unnoticed, so bind the
        // port exclusively first.
        bind(addr, false)?;
    }
    // No other process gets this port while the listener holds it.
    let first = bind(addr, true)?;
    let addr = first.local_addr()?;
    let others = (1..count).map(|_| bind(addr, true));
    let listeners = std::iter::once(Ok(first)).chain(others).collect::<io::Result<_>>()?;
    Ok((addr, listeners))
}

fn bind(addr: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

async fn accept_connections(listener: tokio::net::TcpListener, shared: Arc<TargetState>, thread: usize) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, shared.clone(), thread));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<TargetState>, thread: usize) {
    let service = service_fn(move |request| respond(shared.clone(), thread, request));
    // Without this, small responses would wait for the client's acknowledgement.
    let _ = stream.set_nodelay(true);
    // A client that disconnects or sends junk does not affect other connections.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

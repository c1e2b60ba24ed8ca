//! A small HTTP server on a thread of its own, for machines that ask: scrapes and probes. Whatever answers only copies what is known
//! already, so that asking cannot disturb the load. Has no login: it binds loopback unless told otherwise.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::exit::CliError;

/// Askers served at once; more wait.
const MAX_CONNECTIONS: usize = 32;

/// How long an answer that is under way may take to be read when the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// What is answered to a GET.
pub(crate) type RequestHandler = Arc<dyn Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync>;

/// A listening server; it ends when dropped.
pub(crate) struct HttpListener {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpListener {
    /// Listens where `flag` says.
    pub(crate) fn start(
        flag: &str,
        addr: SocketAddr,
        allow_remote: bool,
        answer: RequestHandler,
    ) -> Result<HttpListener, CliError> {
        if !addr.ip().is_loopback() && !allow_remote {
            return Err(CliError::new(format!(
                "{flag} {addr} can be reached from other machines and has no login; \
                 add --allow-remote if that is meant"
            )));
        }
        let refuse = |error: io::Error| CliError::new(format!("{flag}: cannot listen on {addr}: {error}"));
        let listener = TcpListener::bind(addr).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let addr = listener.local_addr().map_err(refuse)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refuse)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let (mut connections, (ending, _)) = (JoinSet::new(), watch::channel(()));
                tokio::select! {
                    _ = stopped => {}
                    // Only fails when the listener cannot be used at all, which binding has ruled out.
                    _ = accept(listener, answer, &mut connections, &ending) => {}
                }
                ending.send_replace(());
                let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.join_all()).await;
            });
        });
        Ok(HttpListener { addr, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for HttpListener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: TcpListener,
    answer: RequestHandler,
    connections: &mut JoinSet<()>,
    ending: &watch::Sender<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                if let Ok((stream, _)) = accepted {
                    let answer = answer.clone();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let get = matches!(*request.method(), Method::GET | Method::HEAD);
                        let response = match get {
                            true => answer(&request),
                            false => text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n"),
                        };
                        std::future::ready(Ok::<_, Infallible>(response))
                    });
                    let mut server = http1::Builder::new();
                    // With a timer, a client that never finishes its request is cut off.
                    server.timer(TokioTimer::new());
                    let mut ending = ending.subscribe();
                    connections.spawn(async move {
                        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
                        let ended = tokio::select! {
                            _ = connection.as_mut() => true,
                            _ = ending.changed() => false,
                        };
                        // Nobody gets half an answer because the run is over.
                        if !ended {
                            connection.as_mut().graceful_shutdown();
                            let _ = connection.await;
                        }
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A few words.
pub(crate) fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

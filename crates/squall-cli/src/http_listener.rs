//! A small HTTP server on a thread of its own, for scrapes and health checks. Handlers only copy
//! data that is ready, so a request cannot disturb the load. Without authentication: it listens on
//! loopback addresses only, unless `--allow-remote` is given. `prometheus` and `worker_health` call
//! it.

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

/// Connections served at once; more wait.
const MAX_CONNECTIONS: usize = 32;

/// How long clients have to read their responses when the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Makes the response to a GET.
pub(crate) type HttpHandler = Arc<dyn Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync>;

/// A listening server. Dropping it ends it.
pub(crate) struct HttpListener {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpListener {
    /// Listens on `addr`, the value of `flag`.
    pub(crate) fn start(
        flag: &str,
        addr: SocketAddr,
        allow_remote: bool,
        handler: HttpHandler,
    ) -> Result<HttpListener, CliError> {
        if !addr.ip().is_loopback() && !allow_remote {
            return Err(CliError::new(format!(
                "{flag} {addr} can be reached from other machines without authentication: \
                 listen on 127.0.0.1, or add --allow-remote"
            )));
        }
        let listen_error = |error: io::Error| CliError::new(format!("{flag}: cannot listen on {addr}: {error}"));
        let listener = TcpListener::bind(addr).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let addr = listener.local_addr().map_err(listen_error)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(listen_error)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let (mut connections, (ending, _)) = (JoinSet::new(), watch::channel(()));
                tokio::select! {
                    _ = stopped => {}
                    // Fails only if the listener cannot be used, which binding has ruled out.
                    _ = accept(listener, handler, &mut connections, &ending) => {}
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
    handler: HttpHandler,
    connections: &mut JoinSet<()>,
    ending: &watch::Sender<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                if let Ok((stream, _)) = accepted {
                    let handler = handler.clone();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
                        let response = match is_get {
                            true => handler(&request),
                            false => text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed here\n"),
                        };
                        std::future::ready(Ok::<_, Infallible>(response))
                    });
                    let mut server = http1::Builder::new();
                    // With a timer, hyper closes connections whose request never ends.
                    server.timer(TokioTimer::new());
                    let mut ending = ending.subscribe();
                    connections.spawn(async move {
                        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
                        let ended = tokio::select! {
                            _ = connection.as_mut() => true,
                            _ = ending.changed() => false,
                        };
                        // Lets the client read the whole response.
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

/// A plain-text response.
pub(crate) fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

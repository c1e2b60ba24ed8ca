//! `--prometheus`: answers scrapes while a run lasts. What is answered is rendered once a second by the report room; a scrape only
//! copies it, so that scraping cannot disturb the run.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use squall_metrics::RunView;
use squall_model::{Generator, Plan};
use squall_orchestrator::{Live, Observer};
use squall_report::prometheus::{Format, Scrape};
use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::exit::Refusal;

/// Scrapers served at once; more wait.
const MOST_CONNECTIONS: usize = 32;

/// The listening endpoint; it ends when dropped.
pub(crate) struct Endpoint {
    addr: SocketAddr,
    latest: Arc<Mutex<Latest>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The latest second in both formats.
#[derive(Debug, Default)]
struct Latest {
    text: Bytes,
    protobuf: Bytes,
}

impl Endpoint {
    pub(crate) fn start(addr: SocketAddr, allow_remote: bool) -> Result<Endpoint, Refusal> {
        if !addr.ip().is_loopback() && !allow_remote {
            return Err(Refusal::new(format!(
                "--prometheus {addr} can be reached from other machines and has no login; \
                 add --allow-remote if that is meant"
            )));
        }
        let refuse = |error: io::Error| Refusal::new(format!("--prometheus: cannot listen on {addr}: {error}"));
        let listener = TcpListener::bind(addr).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let addr = listener.local_addr().map_err(refuse)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refuse)?;
        let (stop, stopped) = oneshot::channel();
        let latest = Arc::new(Mutex::new(Latest::default()));
        let shared = latest.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    // Only fails when the listener cannot be used at all, which binding has ruled out.
                    _ = accept(listener, shared) => {}
                }
            });
        });
        Ok(Endpoint { addr, latest, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Observer for Endpoint {
    fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        let generator = Generator { cpu_s: live.cpu_s, max_rss_bytes: live.rss_bytes, ..Generator::default() };
        let (elapsed, version) = (live.elapsed, env!("SQUALL_VERSION"));
        let scrape = Scrape { view, plan, elapsed, generator: Some(&generator), version };
        let fresh =
            Latest { text: Format::Text.render(&scrape).into(), protobuf: Format::Protobuf.render(&scrape).into() };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

async fn accept(listener: TcpListener, latest: Arc<Mutex<Latest>>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                if let Ok((stream, _)) = accepted {
                    let latest = latest.clone();
                    let service = service_fn(move |request| std::future::ready(answer(&request, &latest)));
                    let mut server = http1::Builder::new();
                    // With a timer, a client that never finishes its request is cut off.
                    server.timer(TokioTimer::new());
                    connections.spawn(server.serve_connection(TokioIo::new(stream), service));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn answer(request: &Request<Incoming>, latest: &Mutex<Latest>) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n"));
    }
    if request.uri().path() != "/metrics" {
        return Ok(plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n"));
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    let body = if format == Format::Text { &latest.text } else { &latest.protobuf };
    let response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    Ok(response.body(Full::from(body.clone())).expect("a valid header"))
}

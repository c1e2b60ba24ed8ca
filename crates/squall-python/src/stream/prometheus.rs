//! Serves the metrics of a streams worker's processors to Prometheus. It renders them for each
//! request and keeps no history. `stream_worker` starts it.

use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Bytes, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use squall_streams::{ProcessorName, StreamMetrics};
use std::{convert::Infallible, net::TcpListener, sync::Arc};
use tokio::task::JoinSet;

/// How many connections the server handles at once; further ones wait.
const MAX_CONNECTIONS: usize = 32;

type ScrapedMetrics = Vec<(ProcessorName, Arc<StreamMetrics>)>;

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, counters: ScrapedMetrics) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let counters = Arc::new(counters);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                if let Ok((stream, _)) = accepted {
                    let counters = counters.clone();
                    let service = service_fn(move |request| std::future::ready(Ok::<_, Infallible>(respond(&request, &counters))));
                    let mut server = http1::Builder::new();
                    // The timer closes the connection of a client that never finishes its request.
                    server.timer(TokioTimer::new());
                    connections.spawn(server.serve_connection(TokioIo::new(stream), service));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn respond<B>(request: &Request<B>, counters: &ScrapedMetrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, StreamMetrics::render(counters.iter().map(|(name, metrics)| (name, &**metrics))))
        }
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n".to_owned()),
    };
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "text/plain; version=0.0.4");
    response.body(Full::from(text)).expect("a valid header")
}

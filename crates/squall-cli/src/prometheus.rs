//! `--prometheus`: answers scrapes while a run lasts. What is answered is rendered once a second by the report room; a scrape only
//! copies it, so that scraping cannot disturb the run.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use squall_metrics::RunView;
use squall_model::{Generator, Plan};
use squall_orchestrator::{Live, Observer};
use squall_report::prometheus::{Format, Scrape};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    exit::Refusal,
    listener::{Listener, plain},
};

/// The listening endpoint; it ends when dropped.
pub(crate) struct Endpoint {
    listener: Listener,
    latest: Arc<Mutex<Latest>>,
}

/// The latest second in both formats.
#[derive(Debug, Default)]
struct Latest {
    text: Bytes,
    protobuf: Bytes,
}

impl Endpoint {
    pub(crate) fn start(addr: SocketAddr, allow_remote: bool) -> Result<Endpoint, Refusal> {
        let latest: Arc<Mutex<Latest>> = Arc::default();
        let shared = latest.clone();
        let answer = Arc::new(move |request: &Request<Incoming>| answer(request, &shared));
        Ok(Endpoint { listener: Listener::start("--prometheus", addr, allow_remote, answer)?, latest })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
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

fn answer(request: &Request<Incoming>, latest: &Mutex<Latest>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    let body = if format == Format::Text { &latest.text } else { &latest.protobuf };
    let response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    response.body(Full::from(body.clone())).expect("a valid header")
}

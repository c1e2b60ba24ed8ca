//! `--prometheus`: answers scrapes while a run lasts, and once more when it is over. What is answered is rendered once a second by the
//! report room; a scrape only copies it, so that scraping cannot disturb the run.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use squall_metrics::RunView;
use squall_model::{GeneratorStats, Plan};
use squall_orchestrator::{Live, Observer};
use squall_report::{
    Run,
    prometheus::{Format, Scrape},
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    exit::Refusal,
    listener::{Listener, plain},
    stop::StopButton,
};

/// How long whoever scraped during a run is waited for at its end: as often as Prometheus is usually told to come.
pub(crate) const LINGER: Duration = Duration::from_secs(15);

/// How often the wait looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

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
    /// How often somebody came for what was shown during the run, and at its end.
    scrapes: u64,
    last_scrapes: u64,
    over: bool,
}

impl Latest {
    fn show(&mut self, scrape: &Scrape<'_>) {
        (self.text, self.protobuf) = (Format::Text.render(scrape).into(), Format::Protobuf.render(scrape).into());
    }
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

    /// Shows the numbers that the run has ended with.
    pub(crate) fn show_end(&self, run: &Run<'_>) {
        let Run { view, plan, facts, version, .. } = *run;
        let mut latest = self.latest();
        latest.show(&Scrape { view, plan, elapsed: facts.elapsed, generator: Some(&facts.generator), version });
        latest.over = true;
    }

    /// Whether somebody scraped the run and has not seen its end.
    pub(crate) fn is_awaited(&self) -> bool {
        let latest = self.latest();
        latest.scrapes > 0 && latest.last_scrapes == 0
    }

    /// Waits until the end has been seen, for [`LINGER`] at most, or until `button` is pressed.
    pub(crate) fn linger(&self, button: &StopButton) {
        let begin = Instant::now();
        while self.is_awaited() && begin.elapsed() < LINGER && button.presses() == 0 {
            std::thread::park_timeout(LOOK);
        }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Endpoint {
    fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        let generator = GeneratorStats { cpu_s: live.cpu_s, max_rss_bytes: live.rss_bytes, ..GeneratorStats::default() };
        let (elapsed, version) = (live.elapsed, env!("SQUALL_VERSION"));
        let scrape = Scrape { view, plan, elapsed, generator: Some(&generator), version };
        self.latest().show(&scrape);
    }
}

fn answer(request: &Request<Incoming>, latest: &Mutex<Latest>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    if latest.over {
        latest.last_scrapes += 1;
    } else {
        latest.scrapes += 1;
    }
    let body = if format == Format::Text { &latest.text } else { &latest.protobuf };
    let response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    response.body(Full::from(body.clone())).expect("a valid header")
}

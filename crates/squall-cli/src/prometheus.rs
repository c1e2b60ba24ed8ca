//! `--prometheus`: answers scrapes while a run lasts, and once more when it is over. What is answered is rendered once a second by the
//! report room; a scrape only copies it, so that scraping cannot disturb the run.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use squall_metrics::RunView;
use squall_model::{GeneratorStats, Plan};
use squall_orchestrator::{LiveStatus, RunObserver};
use squall_report::{
    ReportInput,
    prometheus::{ExpositionFormat, ScrapeInput},
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    exit::CliError,
    http_listener::{HttpListener, text_response},
    stop_button::StopButton,
};

/// How long whoever scraped during a run is waited for at its end: as often as Prometheus is usually told to come.
pub(crate) const FINAL_SCRAPE_TIMEOUT: Duration = Duration::from_secs(15);

/// How often the wait looks whether it is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The listening endpoint; it ends when dropped.
pub(crate) struct PrometheusEndpoint {
    listener: HttpListener,
    latest: Arc<Mutex<LatestMetrics>>,
}

/// The latest second in both formats.
#[derive(Debug, Default)]
struct LatestMetrics {
    text: Bytes,
    protobuf: Bytes,
    /// How often somebody came for what was shown during the run, and at its end.
    scrapes: u64,
    final_scrapes: u64,
    finished: bool,
}

impl LatestMetrics {
    fn render(&mut self, scrape: &ScrapeInput<'_>) {
        (self.text, self.protobuf) =
            (ExpositionFormat::Text.render(scrape).into(), ExpositionFormat::Protobuf.render(scrape).into());
    }
}

impl PrometheusEndpoint {
    pub(crate) fn start(addr: SocketAddr, allow_remote: bool) -> Result<PrometheusEndpoint, CliError> {
        let latest: Arc<Mutex<LatestMetrics>> = Arc::default();
        let shared = latest.clone();
        let answer = Arc::new(move |request: &Request<Incoming>| handle_request(request, &shared));
        Ok(PrometheusEndpoint { listener: HttpListener::start("--prometheus", addr, allow_remote, answer)?, latest })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Shows the numbers that the run has ended with.
    pub(crate) fn publish_final(&self, run: &ReportInput<'_>) {
        let ReportInput { view, plan, facts, version, .. } = *run;
        let mut latest = self.latest();
        latest.render(&ScrapeInput { view, plan, elapsed: facts.elapsed, generator: Some(&facts.generator), version });
        latest.finished = true;
    }

    /// Whether somebody scraped the run and has not seen its end.
    pub(crate) fn awaits_final_scrape(&self) -> bool {
        let latest = self.latest();
        latest.scrapes > 0 && latest.final_scrapes == 0
    }

    /// Waits until the end has been seen, for [`LINGER`] at most, or until `button` is pressed.
    pub(crate) fn wait_for_final_scrape(&self, button: &StopButton) {
        let begin = Instant::now();
        while self.awaits_final_scrape() && begin.elapsed() < FINAL_SCRAPE_TIMEOUT && button.presses() == 0 {
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    fn latest(&self) -> MutexGuard<'_, LatestMetrics> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunObserver for PrometheusEndpoint {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        let generator =
            GeneratorStats { cpu_s: live.cpu_s, max_rss_bytes: live.rss_bytes, ..GeneratorStats::default() };
        let (elapsed, version) = (live.elapsed, env!("SQUALL_VERSION"));
        let scrape = ScrapeInput { view, plan, elapsed, generator: Some(&generator), version };
        self.latest().render(&scrape);
    }
}

fn handle_request(request: &Request<Incoming>, latest: &Mutex<LatestMetrics>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return text_response(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = ExpositionFormat::negotiate(accept);
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    if latest.finished {
        latest.final_scrapes += 1;
    } else {
        latest.scrapes += 1;
    }
    let body = if format == ExpositionFormat::Text { &latest.text } else { &latest.protobuf };
    let response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    response.body(Full::from(body.clone())).expect("a valid header")
}

//! `--prometheus`: serves scrapes during a run and once after its end. squall-report renders the
//! metrics once a second; a scrape only copies them, so scraping cannot disturb the run. The
//! outputs of `squall run` call it.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use squall_metrics::RunView;
use squall_model::{GeneratorStats, Plan};
use squall_orchestrator::{LiveStatus, RunObserver};
use squall_report::{
    LiveSnapshot, LoadPhase, ReportInput, loadpilot_metrics,
    prometheus::{ExpositionFormat, ScrapeInput},
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    args::PrometheusNames,
    exit::CliError,
    http_listener::{HttpListener, text_response},
    stop_button::StopButton,
    tick::tick,
};

/// How long the end of a run waits for the last scrape: a usual scrape interval of Prometheus.
pub(crate) const FINAL_SCRAPE_TIMEOUT: Duration = Duration::from_secs(15);

/// How often the wait checks for a scrape.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The listening endpoint. Dropping it ends it.
pub(crate) struct PrometheusEndpoint {
    listener: HttpListener,
    latest: Arc<Mutex<LatestMetrics>>,
    names: PrometheusNames,
}

/// The metrics of the latest second in both formats; `protobuf` is empty if some exist as text only.
#[derive(Debug, Default)]
struct LatestMetrics {
    text: Bytes,
    protobuf: Bytes,
    /// Scrapes during the run.
    scrapes: u64,
    /// Scrapes after its end.
    final_scrapes: u64,
    finished: bool,
}

impl LatestMetrics {
    fn render(&mut self, scrape: &ScrapeInput<'_>) {
        (self.text, self.protobuf) =
            (ExpositionFormat::Text.render(scrape).into(), ExpositionFormat::Protobuf.render(scrape).into());
    }

    /// Appends metrics that only exist as text.
    fn add_text(&mut self, text: &str) {
        self.text = [&self.text[..], text.as_bytes()].concat().into();
        self.protobuf = Bytes::new();
    }
}

impl PrometheusEndpoint {
    pub(crate) fn start(
        addr: SocketAddr,
        allow_remote: bool,
        names: PrometheusNames,
    ) -> Result<PrometheusEndpoint, CliError> {
        let latest: Arc<Mutex<LatestMetrics>> = Arc::default();
        let shared = latest.clone();
        let handler = Arc::new(move |request: &Request<Incoming>| handle_request(request, &shared));
        let listener = HttpListener::start("--prometheus", addr, allow_remote, handler)?;
        Ok(PrometheusEndpoint { listener, latest, names })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Publishes the final metrics of the run.
    pub(crate) fn publish_final(&self, report: &ReportInput<'_>) {
        let ReportInput { view, plan, facts, version, .. } = *report;
        let mut latest = self.latest();
        latest.render(&ScrapeInput { view, plan, elapsed: facts.elapsed, generator: Some(&facts.generator), version });
        if self.names == PrometheusNames::Loadpilot {
            let (elapsed, phase) = (facts.elapsed, LoadPhase::Done);
            latest.add_text(&loadpilot_metrics(&LiveSnapshot { view, plan, elapsed, phase, unix_ms: 0 }));
        }
        latest.finished = true;
    }

    /// Whether the run was scraped, but not yet after its end.
    pub(crate) fn awaits_final_scrape(&self) -> bool {
        let latest = self.latest();
        latest.scrapes > 0 && latest.final_scrapes == 0
    }

    /// Waits for a scrape of the final metrics, at most [`FINAL_SCRAPE_TIMEOUT`] or until `button`
    /// is pressed.
    pub(crate) fn wait_for_final_scrape(&self, button: &StopButton) {
        let started = Instant::now();
        while self.awaits_final_scrape() && started.elapsed() < FINAL_SCRAPE_TIMEOUT && button.presses() == 0 {
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
        let mut latest = self.latest();
        latest.render(&scrape);
        if self.names == PrometheusNames::Loadpilot {
            latest.add_text(&loadpilot_metrics(&tick(plan, view, live)));
        }
    }
}

fn handle_request(request: &Request<Incoming>, latest: &Mutex<LatestMetrics>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return text_response(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    let format = match latest.protobuf.is_empty() {
        true => ExpositionFormat::Text,
        false => ExpositionFormat::negotiate(accept),
    };
    if latest.finished {
        latest.final_scrapes += 1;
    } else {
        latest.scrapes += 1;
    }
    let body = if format == ExpositionFormat::Text { &latest.text } else { &latest.protobuf };
    let response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    response.body(Full::from(body.clone())).expect("a valid header")
}

//! The health endpoint of a worker: `/healthz`, `/readyz`, and `/metrics` for Prometheus. Copies
//! the worker's last report and sends no requests. `squall worker --listen` calls it.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use squall_model::protocol::{WorkerHealth, WorkerReport};
use squall_worker::WorkerStatus;
use std::{fmt::Write as _, net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    exit::CliError,
    http_listener::{HttpListener, text_response},
};

/// A value of the report as text. Only numbers are published, because anyone may read the metrics.
type MetricValue = fn(&WorkerReport) -> String;

/// Metrics of a worker: name, kind, value, help text.
const METRICS: [(&str, &str, MetricValue, &str); 10] = [
    (
        "squall_worker_shares",
        "gauge",
        |report| report.share_count.to_string(),
        "Shares of the load that the worker holds, of 256",
    ),
    (
        "squall_worker_run",
        "gauge",
        |report| report.ready.to_string(),
        "Epoch of the run that the worker is ready for, 0 if none",
    ),
    (
        "squall_worker_run_requests",
        "gauge",
        |report| report.sent.to_string(),
        "Requests that the worker has sent in this run",
    ),
    ("squall_worker_deltas_waiting", "gauge", |report| report.waiting.to_string(), "Deltas that are not shipped yet"),
    ("squall_worker_threads", "gauge", |report| report.threads.to_string(), "Engine threads of the run"),
    (
        "squall_worker_revision",
        "gauge",
        |report| report.revision.to_string(),
        "Revision of the run record that the worker has read",
    ),
    ("squall_worker_cpu_seconds_total", "counter", |report| format!("{:.3}", report.cpu_s), "CPU time of the process"),
    ("squall_worker_resident_memory_bytes", "gauge", |report| report.rss_bytes.to_string(), "Memory of the process"),
    (
        "squall_worker_stale_commands_total",
        "counter",
        |report| report.stale_commands.to_string(),
        "Commands of earlier runs, ignored",
    ),
    (
        "squall_worker_bad_commands_total",
        "counter",
        |report| report.bad_commands.to_string(),
        "Messages that are not valid commands, refused",
    ),
];

/// What readiness depends on, besides the worker's report.
pub(crate) struct ReadinessCheck {
    /// How long an acknowledged report counts.
    pub(crate) ttl: Duration,
    /// Cancelled when the worker starts to leave.
    pub(crate) leaving: CancellationToken,
}

/// Serves the endpoint at `addr` until the listener is dropped.
pub(crate) fn serve(
    addr: SocketAddr,
    allow_remote: bool,
    status: watch::Receiver<WorkerStatus>,
    readiness: ReadinessCheck,
) -> Result<HttpListener, CliError> {
    let handler = move |request: &Request<Incoming>| handle_request(request.uri().path(), &status.borrow(), &readiness);
    HttpListener::start("--listen", addr, allow_remote, Arc::new(handler))
}

fn handle_request(path: &str, status: &WorkerStatus, readiness: &ReadinessCheck) -> Response<Full<Bytes>> {
    // From the token and not from the status, which changes only with the next report.
    let leaving = readiness.leaving.is_cancelled();
    let ready = !leaving && is_ready(status, readiness.ttl);
    match path {
        "/healthz" => text_response(StatusCode::OK, "ok\n"),
        "/readyz" if ready => text_response(StatusCode::OK, "ready\n"),
        "/readyz" if leaving => text_response(StatusCode::SERVICE_UNAVAILABLE, "not ready: leaving\n"),
        "/readyz" => {
            text_response(StatusCode::SERVICE_UNAVAILABLE, "not ready: the store has no recent report of this worker\n")
        }
        "/metrics" => {
            let response = Response::builder().header(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
            response.body(Full::from(metrics(status, ready))).expect("a valid header")
        }
        _ => text_response(StatusCode::NOT_FOUND, "unknown path: use /healthz, /readyz or /metrics\n"),
    }
}

fn is_ready(status: &WorkerStatus, ttl: Duration) -> bool {
    let healthy = status.report.health == WorkerHealth::Healthy;
    healthy && status.last_acknowledged.is_some_and(|at| at.elapsed() < ttl)
}

fn metrics(status: &WorkerStatus, ready: bool) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, labels: &str, value: &str| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n");
    };
    let version = format!("{{version=\"{}\"}}", env!("SQUALL_VERSION"));
    metric("squall_worker_info", "gauge", "The program", &version, "1");
    let up = if ready { "1" } else { "0" };
    metric("squall_worker_ready", "gauge", "Whether the store has a recent report and the worker takes load", "", up);
    for (name, kind, value, help) in METRICS {
        metric(name, kind, help, "", &value(&status.report));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn status(healthy: bool, last_acknowledged: Option<Instant>) -> WorkerStatus {
        let health = if healthy { WorkerHealth::Healthy } else { WorkerHealth::Unhealthy };
        let report = WorkerReport { health, share_count: 128, cpu_s: 1.5, ..WorkerReport::default() };
        WorkerStatus { report, last_acknowledged }
    }

    #[test]
    fn worker_is_ready_while_the_store_has_a_recent_report() {
        let (ttl, now) = (Duration::from_secs(3600), Some(Instant::now()));
        let leaving = CancellationToken::new();
        let readiness = |ttl| ReadinessCheck { ttl, leaving: leaving.clone() };
        let code =
            |path: &str, status: &WorkerStatus, ttl| handle_request(path, status, &readiness(ttl)).status().as_u16();
        assert_eq!(code("/readyz", &status(true, now), ttl), 200);
        assert_eq!(code("/readyz", &status(true, now), Duration::ZERO), 503);
        assert_eq!(code("/readyz", &status(false, now), ttl), 503);
        assert_eq!(code("/readyz", &status(true, None), ttl), 503);
        assert_eq!(code("/healthz", &WorkerStatus::default(), ttl), 200);
        assert_eq!(code("/", &WorkerStatus::default(), ttl), 404);
        leaving.cancel();
        assert_eq!(code("/readyz", &status(true, now), ttl), 503);
    }

    #[test]
    fn metrics_of_a_report_are_numbers() {
        let text = metrics(&status(true, None), false);
        for line in
            ["squall_worker_shares 128", "squall_worker_cpu_seconds_total 1.500", "squall_worker_bad_commands_total 0"]
        {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let mut samples = text.lines().filter(|line| !line.starts_with('#'));
        let number = |line: &str| line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(samples.all(number), "{text}");
    }
}

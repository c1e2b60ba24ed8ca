//! Writes the deltas of a worker as events to vikhry's streams of metrics and probes, one event per
//! request or call of a probe, because vikhry's orchestrator counts events. Times come from the
//! delta's histograms, so they are as precise as these. It ships no deltas. `WorkerRun` owns it in a
//! test of vikhry's orchestrator.

use serde_json::Value;
use squall_coord::{MetricEntry, RunStore, SeriesKind};
use squall_metrics::{Delta, ErrorNote, Histogram, MetricDelta, MetricKey, MetricKind, Outcome, OutcomeCategory};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};
use tracing::{debug, warn};

/// Prefix of the groups that hold the calls of probes, and of the requests that probes send.
const PROBE_PREFIX: &str = "probe/";

/// Tag of the metric of a text that a probe returned.
const TEXT_TAG: &str = "text";

/// Longest message of an event, as in vikhry.
const MAX_MESSAGE_CHARS: usize = 256;

/// Most kinds of errors whose message is kept.
const MAX_KEPT_MESSAGES: usize = 1000;

const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Writes events in a task of its own. Dropping it ends the task.
pub(crate) struct EventWriter {
    worker: String,
    /// Unbounded: one message per second.
    batches: mpsc::UnboundedSender<Vec<MetricEntry>>,
    unwritten: Arc<AtomicU64>,
    messages: ErrorMessages,
    task: AbortHandle,
}

/// The latest message of each kind of error.
type ErrorMessages = BTreeMap<(Arc<MetricKey>, Outcome), String>;

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EventWriter {
    pub(crate) fn start<R: RunStore>(run_store: R, worker: String) -> EventWriter {
        let (batches, receiver) = mpsc::unbounded_channel();
        let unwritten = Arc::new(AtomicU64::new(0));
        let task: JoinHandle<()> = tokio::spawn(write_batches(run_store, receiver, unwritten.clone()));
        EventWriter { worker, batches, unwritten, messages: ErrorMessages::new(), task: task.abort_handle() }
    }

    pub(crate) fn write(&mut self, delta: &Delta) {
        self.log_new_errors(&delta.errors);
        let ts_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let entries = SecondEvents { worker: &self.worker, messages: &self.messages, delta, ts_ms }.entries();
        if !entries.is_empty() {
            self.unwritten.fetch_add(1, Relaxed);
            // The task ends only with this writer.
            let _ = self.batches.send(entries);
        }
    }

    /// Keeps the latest message of each kind of error for the events, and logs the first one: vikhry's
    /// orchestrator shows no log of its workers' errors.
    fn log_new_errors(&mut self, notes: &[ErrorNote]) {
        for note in notes {
            let is_new = self.messages.len() < MAX_KEPT_MESSAGES;
            let kind = (note.metric.clone(), note.outcome);
            match self.messages.get_mut(&kind) {
                Some(message) => message.clone_from(&note.message),
                None if is_new => {
                    warn!(metric = note.metric.id(), code = %note.outcome.code, "an error in the test: {}", note.message);
                    self.messages.insert(kind, note.message.clone());
                }
                None => {}
            }
        }
    }

    /// Whether the store has every event.
    pub(crate) fn is_done(&self) -> bool {
        self.unwritten.load(Relaxed) == 0
    }
}

async fn write_batches<R: RunStore>(
    run_store: R,
    mut batches: mpsc::UnboundedReceiver<Vec<MetricEntry>>,
    unwritten: Arc<AtomicU64>,
) {
    while let Some(entries) = batches.recv().await {
        while let Err(error) = run_store.append_metric_entries(&entries).await {
            debug!(%error, "the worker could not write its events; it tries again");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        unwritten.fetch_sub(1, Relaxed);
    }
}

/// One second of a worker, as events.
struct SecondEvents<'a> {
    worker: &'a str,
    messages: &'a ErrorMessages,
    delta: &'a Delta,
    ts_ms: u64,
}

impl<'a> SecondEvents<'a> {
    fn entries(&self) -> Vec<MetricEntry> {
        let metrics = self.delta.metrics.iter();
        metrics
            .flat_map(|metric| match self.probe_of(metric) {
                Some(probe) if metric.key.kind == MetricKind::Group => self.probe_entries(probe, metric),
                // Values and requests of probes.
                Some(_) => Vec::new(),
                // A failure of a step's code is an error of the step in vikhry, and no request.
                None if metric.key.is_code_failure(self.keys()) => Vec::new(),
                None => self.metric_entries(metric),
            })
            .collect()
    }

    fn keys(&self) -> impl Iterator<Item = &'a MetricKey> {
        self.delta.metrics.iter().map(|metric| &*metric.key)
    }

    /// The probe that made the samples; empty for a request of a probe.
    fn probe_of(&self, metric: &'a MetricDelta) -> Option<&'a str> {
        let key = &metric.key;
        let is_value = |probe: &&str| *probe == key.name;
        match key.kind {
            MetricKind::Request => None,
            MetricKind::Group => key.name.strip_prefix(PROBE_PREFIX),
            MetricKind::Custom if key.id().starts_with(PROBE_PREFIX) => Some(""),
            MetricKind::Custom => {
                let groups = self.keys().filter(|key| key.kind == MetricKind::Group);
                groups.filter_map(|key| key.name.strip_prefix(PROBE_PREFIX)).find(is_value)
            }
        }
    }

    /// One entry for each request of a metric.
    fn metric_entries(&self, metric: &MetricDelta) -> Vec<MetricEntry> {
        let entry = |(number, outcome): (u64, &Outcome)| {
            let data = serde_json::json!({
                "ts_ms": self.ts_ms,
                "worker_id": self.worker,
                "name": metric.key.name,
                "step": metric.key.group,
                "status": outcome.category == OutcomeCategory::Ok,
                "time": nth_ms(&metric.response, number),
                "source": source(metric),
                "stage": "execute",
                "result_code": outcome.code.to_string(),
                "result_category": outcome.category.name(),
                "fatal": false,
            });
            let data = self.with_error(data, metric, outcome).to_string();
            MetricEntry { series: SeriesKind::Metric, metric: metric.key.id(), data }
        };
        (0..metric.requests()).zip(outcomes(metric)).map(entry).collect()
    }

    /// One entry for each call of a probe.
    fn probe_entries(&self, probe: &str, calls: &MetricDelta) -> Vec<MetricEntry> {
        let mut values = self.probe_values(probe).into_iter();
        let entry = |(number, outcome): (u64, &Outcome)| {
            let value = if outcome.is_error() { None } else { values.next() };
            let data = serde_json::json!({
                "ts_ms": self.ts_ms,
                "worker_id": self.worker,
                "name": probe,
                "status": !outcome.is_error() && value.as_ref().is_none_or(|(_, ok)| *ok),
                "time": nth_ms(&calls.response, number),
                "value": value.map(|(value, _)| value),
            });
            let data = self.with_error(data, calls, outcome).to_string();
            MetricEntry { series: SeriesKind::Probe, metric: probe.to_owned(), data }
        };
        (0..calls.requests()).zip(outcomes(calls)).map(entry).collect()
    }

    /// What the calls of a probe that did not raise returned, and whether each is a success.
    fn probe_values(&self, probe: &str) -> Vec<(Value, bool)> {
        let is_value = |metric: &&MetricDelta| metric.key.kind == MetricKind::Custom && metric.key.name == probe;
        let values_of = |metric: &'a MetricDelta| {
            let value = move |(number, outcome): (u64, &Outcome)| match metric.key.tags.get(TEXT_TAG) {
                Some(text) => (text.as_str().into(), !outcome.is_error()),
                None => (nth_ms(&metric.response, number).into(), !outcome.is_error()),
            };
            (0..metric.requests()).zip(outcomes(metric)).map(value)
        };
        self.delta.metrics.iter().filter(is_value).flat_map(values_of).collect()
    }

    fn with_error(&self, mut event: Value, metric: &MetricDelta, outcome: &Outcome) -> Value {
        if outcome.is_error() {
            event["error_type"] = outcome.code.to_string().into();
            if let Some(message) = self.messages.get(&(metric.key.clone(), *outcome)) {
                event["error_message"] = message.chars().take(MAX_MESSAGE_CHARS).collect::<String>().into();
            }
        }
        event
    }
}

/// vikhry's word for what made the events of `metric`. Its UI counts everything but `step` as requests.
fn source(metric: &MetricDelta) -> &'static str {
    match metric.key.kind {
        MetricKind::Request => "http",
        MetricKind::Group => "step",
        MetricKind::Custom => "custom",
    }
}

/// The outcome of each sample.
fn outcomes(metric: &MetricDelta) -> impl Iterator<Item = &Outcome> {
    metric.outcomes.iter().flat_map(|(outcome, count)| (0..*count).map(move |_| outcome))
}

/// The time of the sample `number` of a histogram, by size, in milliseconds.
fn nth_ms(times: &Histogram, number: u64) -> f64 {
    let rank = (number as f64 + 0.5) * 100.0 / times.count() as f64;
    (times.percentile(rank) as f64 / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::{MetricRecorder, RecorderConfig, Sample};

    fn custom(name: &str) -> MetricKey {
        MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) }
    }

    /// The events of one second with the samples, by series and name.
    fn events(samples: &[(MetricKey, u64, Outcome, &str)]) -> Vec<(SeriesKind, String, Value)> {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        for (key, service_ms, outcome, message) in samples {
            let (metric, outcome) = (recorder.metric(key.clone()), *outcome);
            if !message.is_empty() {
                recorder.note_error(metric, outcome, message);
            }
            let (wait, service) = (Duration::ZERO, Duration::from_millis(*service_ms));
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 1,
                bytes_out: 1,
                due_in_warm_up: false,
            });
        }
        let (metrics, errors, engine) = recorder.harvest(1, 0);
        let messages = errors.iter().map(|note| ((note.metric.clone(), note.outcome), note.message.clone())).collect();
        let source = squall_metrics::SourceId { instance: 1, thread: 0 };
        let delta = Delta { source, seq: 0, second: 0, metrics, errors, engine, last: false };
        let events = SecondEvents { worker: "w", messages: &messages, delta: &delta, ts_ms: 1 }.entries();
        let mut events: Vec<(SeriesKind, String, Value)> = events
            .into_iter()
            .map(|entry| (entry.series, entry.metric, serde_json::from_str(&entry.data).expect("JSON")))
            .collect();
        events.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        events
    }

    #[test]
    fn probes_have_streams_of_their_own_and_are_no_metrics() {
        let ok = Outcome::of_status(200);
        let raised = Outcome::new(OutcomeCategory::Exception, "KeyError");
        let text = MetricKey { tags: [(TEXT_TAG.to_owned(), "fine".to_owned())].into(), ..custom("mood") };
        let seen = events(&[
            (MetricKey::request("GET /"), 1, ok, ""),
            (custom("basket"), 1, ok, ""),
            (MetricKey::group("probe/depth"), 3, ok, ""),
            (custom("depth"), 42, ok, ""),
            (MetricKey::group("probe/mood"), 3, ok, ""),
            (text, 0, ok, ""),
            (MetricKey::group("probe/down"), 3, raised, "KeyError: 'x'"),
            (custom("probe/GET /health"), 1, ok, ""),
        ]);
        let names: Vec<(SeriesKind, &str)> = seen.iter().map(|(series, name, _)| (*series, name.as_str())).collect();
        let (metric, probe) = (SeriesKind::Metric, SeriesKind::Probe);
        assert_eq!(names, [(metric, "GET /"), (metric, "basket"), (probe, "depth"), (probe, "down"), (probe, "mood")]);
        let of = |event: &Value| (event["name"].clone(), event["status"].clone(), event["worker_id"].clone());
        let [_, _, (_, _, depth), (_, _, down), (_, _, mood)] = &seen[..] else { panic!("five events") };
        assert_eq!(of(depth), ("depth".into(), true.into(), "w".into()));
        assert_eq!((depth["value"].as_f64().map(f64::round), &mood["value"]), (Some(42.0), &"fine".into()));
        assert_eq!((&down["status"], &down["value"]), (&false.into(), &Value::Null));
        assert_eq!((&down["error_type"], &down["error_message"]), (&"KeyError".into(), &"KeyError: 'x'".into()));
    }

    #[test]
    fn event_of_an_error_has_its_type_and_message_and_a_raising_step_is_no_request() {
        let raised = Outcome::new(OutcomeCategory::Exception, "RuntimeError");
        let message = "RuntimeError: boom, in broken (shop.py, line 7)";
        let seen = events(&[
            (MetricKey::group("broken"), 1, raised, message),
            (MetricKey::request("broken (failed)"), 1, raised, ""),
        ]);
        let [(SeriesKind::Metric, name, event)] = &seen[..] else { panic!("one event: {seen:?}") };
        assert_eq!((name.as_str(), &event["source"], &event["status"]), ("broken", &"step".into(), &false.into()));
        assert_eq!((&event["error_type"], &event["error_message"]), (&"RuntimeError".into(), &message.into()));
    }
}

//! The events of vikhry's workers as deltas: one delta per worker and second, as a Squall worker
//! ships it. vikhry's workers write one event per request to the metric streams of Redis.
//! `VikhryWorkers` calls it.

use serde::Deserialize;
use squall_coord::{RunRecord, RunStore, ShipOutcome, StoreError};
use squall_metrics::{
    Delta, MetricKey, MetricKind, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, Sample, SourceId,
    encode_delta,
};
use squall_model::protocol::SourceName;
use std::{collections::BTreeMap, time::Duration};

use crate::fleet::WorkerInfo;

/// A leader that takes a run up later than this after its start does not know what its predecessor has
/// shipped. It reads only new events.
const RESUMED_AFTER: Duration = Duration::from_secs(2);

/// A second is shipped this long after its end: its last events may still be on their way.
const ARRIVAL_TIME: Duration = Duration::from_millis(500);

/// Most time of one event; longer ones are not plausible.
const MAX_EVENT_TIME: Duration = Duration::from_secs(24 * 3600);

/// What has been read and shipped of one run.
#[derive(Default)]
pub(super) struct EventDeltas {
    epoch: u64,
    /// Where streams begin that have not been read.
    start: String,
    /// The last entry that was read, by metric.
    positions: BTreeMap<String, String>,
    sources: BTreeMap<String, WorkerEvents>,
}

/// The events of one worker since its last delta.
struct WorkerEvents {
    recorder: MetricRecorder,
    /// Number of the next delta.
    sequence: u64,
    /// The second of the next delta.
    second: u32,
    /// Whether the last delta is shipped.
    ended: bool,
}

/// The fields of an event that become a sample. vikhry's workers add others.
#[derive(Deserialize)]
struct VikhryEvent {
    worker_id: String,
    status: bool,
    /// In milliseconds.
    time: f64,
    #[serde(default)]
    source: String,
    #[serde(default)]
    result_code: String,
    #[serde(default)]
    result_category: String,
    #[serde(default)]
    error_message: Option<String>,
}

impl EventDeltas {
    pub(super) fn new(record: &RunRecord, elapsed: Duration) -> EventDeltas {
        let start = if elapsed > RESUMED_AFTER { format!("{}-0", record.now_ms) } else { "0-0".to_owned() };
        EventDeltas { epoch: record.epoch, start, ..EventDeltas::default() }
    }

    /// Reads the events that have been written since the last call.
    pub(super) async fn read(&mut self, run_store: &impl RunStore) -> Result<(), StoreError> {
        for entry in run_store.metric_entries(&mut self.positions, &self.start).await? {
            // Merged seconds of this leader have no `worker_id`.
            let Ok(event) = serde_json::from_str::<VikhryEvent>(&entry.data) else { continue };
            self.source(&event.worker_id).record(&entry.metric, &event);
        }
        Ok(())
    }

    fn source(&mut self, worker: &str) -> &mut WorkerEvents {
        let recorder = || MetricRecorder::new(RecorderConfig::default());
        self.sources.entry(worker.to_owned()).or_insert_with(|| WorkerEvents {
            recorder: recorder(),
            sequence: 0,
            second: 0,
            ended: false,
        })
    }

    /// Ships a delta for each second of the run that has ended since the last call. `is_over`: the
    /// worker makes no more load.
    pub(super) async fn ship_due(
        &mut self,
        run_store: &impl RunStore,
        worker: &WorkerInfo,
        users: u64,
        (elapsed, is_over): (Duration, bool),
    ) -> Result<(), StoreError> {
        let (epoch, instance) = (self.epoch, worker.instance);
        let events = self.source(&worker.id);
        let complete = elapsed.saturating_sub(ARRIVAL_TIME).as_secs() as u32;
        while !events.ended && (events.second < complete || is_over) {
            let last = is_over && events.second >= complete;
            let name = SourceName::Thread { instance, thread: 0 }.to_string();
            let (metrics, errors, engine) = events.recorder.harvest(users, users);
            let source = SourceId { instance, thread: 0 };
            let mut delta =
                Delta { source, seq: events.sequence, second: events.second, metrics, errors, engine, last };
            // A predecessor has shipped the first deltas of this worker.
            if let ShipOutcome::Gap(expected) = run_store.ship(epoch, &name, delta.seq, &encode_delta(&delta)).await? {
                delta.seq = expected;
                run_store.ship(epoch, &name, delta.seq, &encode_delta(&delta)).await?;
            }
            (events.sequence, events.second, events.ended) = (delta.seq + 1, events.second + 1, last);
        }
        Ok(())
    }
}

impl WorkerEvents {
    fn record(&mut self, metric: &str, event: &VikhryEvent) {
        let kind = match event.source.as_str() {
            "step" | "lifecycle" => MetricKind::Group,
            "custom" => MetricKind::Custom,
            _ => MetricKind::Request,
        };
        if kind == MetricKind::Request {
            self.recorder.count_begun();
        }
        let metric = self.recorder.metric(MetricKey { kind, ..MetricKey::request(metric) });
        let service = Duration::try_from_secs_f64(event.time / 1e3).unwrap_or_default().min(MAX_EVENT_TIME);
        let outcome = event.outcome();
        if let Some(message) = event.error_message.as_ref().filter(|_| outcome.is_error()) {
            self.recorder.note_error(metric, outcome, message);
        }
        let (wait, due_in_warm_up) = (Duration::ZERO, false);
        self.recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, due_in_warm_up });
    }
}

impl VikhryEvent {
    fn outcome(&self) -> Outcome {
        let by_name = |category: &&OutcomeCategory| category.name() == self.result_category;
        let category = match self.status {
            true => OutcomeCategory::Ok,
            false => match OutcomeCategory::ALL.iter().find(by_name) {
                Some(category) if *category != OutcomeCategory::Ok => *category,
                // vikhry also has `rpc_error`.
                _ => OutcomeCategory::ProtocolError,
            },
        };
        Outcome::of_foreign_code(category, &self.result_code)
    }
}

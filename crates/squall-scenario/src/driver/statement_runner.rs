//! Sends one CQL statement and records it as a request: waits for the send budget, sends, and ends the
//! request with the outcome of the answer. TOML and Python users share it. It judges no rows; the caller
//! does.

use squall_cql::{BoundValues, KeptRows, ScenarioStatement, StatementFailure, StatementRows, StatementSession};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricId, Outcome};
use std::time::{Duration, Instant};

use super::{RequestStart, flow_run::PASSED, request_runner::UNSENT_PAUSE};

/// More rows than this are recorded as this number.
const MAX_RECORDED_ROWS: u64 = 86_400_000;

/// Records how many rows an answer has. One row is recorded as 1 ms, because metrics are times.
pub fn record_row_count(recorder: &ThreadRecorder, metric: MetricId, due: Instant, rows: u64) {
    let rows = Duration::from_millis(rows.min(MAX_RECORDED_ROWS));
    recorder.record_span(metric, due, due + rows, PASSED);
}

/// Sends the statements of one engine thread's users.
#[derive(Clone, Copy)]
pub struct StatementRunner<'p> {
    recorder: &'p ThreadRecorder,
    session: &'p StatementSession,
}

/// How a statement ended. All but `Fenced` are recorded.
pub enum StatementEnd {
    /// The worker may not send. The engine has recorded the request.
    Fenced,
    /// The database answered. `failure` is what the caller's check found.
    Answered {
        ended: Instant,
        rows: StatementRows,
        failure: Option<Outcome>,
    },
    Failed {
        ended: Instant,
        failure: StatementFailure,
    },
}

impl<'p> StatementRunner<'p> {
    pub fn new(recorder: &'p ThreadRecorder, session: &'p StatementSession) -> StatementRunner<'p> {
        StatementRunner { recorder, session }
    }

    /// Records a statement, due at `start`, that could not be prepared: preparing is the request that failed. Waits
    /// if the connection did.
    pub async fn record_unprepared(&self, start: RequestStart, failure: &StatementFailure) {
        if let Some(in_flight) = self.recorder.begin(start.metric, start.intended, start.started) {
            in_flight.end(Instant::now(), failure.outcome, 0, 0);
            self.recorder.note_error(start.metric, start.intended, failure.outcome, &failure.message);
        }
        if failure.transport_failed {
            tokio::time::sleep(UNSENT_PAUSE).await;
        }
    }

    /// Sends `statement`. `check` gets the answer and the service time, and returns the outcome and the
    /// message of an answer that is wrong. Messages end with `place`, if there is one. Dropping the future records the
    /// statement as cancelled.
    pub async fn run(
        &self,
        start: RequestStart,
        (statement, values): (&ScenarioStatement, &BoundValues),
        keep: KeptRows,
        place: Option<&str>,
        check: impl FnOnce(&StatementRows, Duration) -> Option<(Outcome, String)>,
    ) -> StatementEnd {
        let recorder = self.recorder;
        let started = recorder.wait_for_budget(start.started).await;
        let Some(in_flight) = recorder.begin(start.metric, start.intended, started) else {
            return StatementEnd::Fenced;
        };
        let answer = self.session.execute(statement, values, keep).await;
        let ended = Instant::now();
        let note = |outcome: Outcome, message: &str| {
            let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
            recorder.note_error(start.metric, start.intended, outcome, &format!("{message}{place}"));
        };
        match answer {
            Ok(rows) => {
                let failed = check(&rows, ended - started);
                let outcome = failed.as_ref().map_or(PASSED, |(outcome, _)| *outcome);
                in_flight.end(ended, outcome, rows.bytes(), values.sent_bytes());
                if let Some((outcome, message)) = &failed {
                    note(*outcome, message);
                }
                StatementEnd::Answered { ended, rows, failure: failed.map(|(outcome, _)| outcome) }
            }
            Err(failure) => {
                in_flight.end(ended, failure.outcome, 0, values.sent_bytes());
                note(failure.outcome, &failure.message);
                if failure.transport_failed {
                    tokio::time::sleep(UNSENT_PAUSE).await;
                }
                StatementEnd::Failed { ended, failure }
            }
        }
    }
}

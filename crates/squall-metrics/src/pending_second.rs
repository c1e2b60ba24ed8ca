//! Adds up a second of several threads or workers. It does not decide when the second is complete;
//! the [`SecondAligner`](crate::second_aligner::SecondAligner) does.

use std::{collections::BTreeSet, sync::Arc};

use crate::{Delta, EngineDelta, ErrorNote, MetricDelta, MetricKey, Outcome};

/// The most distinct failure messages of a second, and of a run.
pub(crate) const MAX_MESSAGES: usize = 200;

/// A second that not all sources have reported yet.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PendingSecond {
    pub(crate) metrics: Vec<MetricDelta>,
    pub(crate) errors: Vec<ErrorNote>,
    pub(crate) engine: EngineDelta,
    /// Which source had which failure of a metric.
    pub(crate) failed: BTreeSet<(Arc<MetricKey>, Outcome, u64)>,
}

impl PendingSecond {
    pub(crate) fn of(delta: Delta) -> PendingSecond {
        let instance = delta.source.instance;
        let failures = delta.metrics.iter().flat_map(|metric| {
            let failed = metric.outcomes.iter().filter(|(outcome, _)| outcome.is_error());
            failed.map(move |(outcome, _)| (metric.key.clone(), *outcome, instance))
        });
        let failed = failures.collect();
        PendingSecond { metrics: delta.metrics, errors: delta.errors, engine: delta.engine, failed }
    }

    /// The same without states such as the number of users: another second would count them twice.
    pub(crate) fn without_gauges(mut self) -> PendingSecond {
        (self.engine.users, self.engine.busy, self.engine.peak_users) = (0, 0, 0);
        self
    }

    pub(crate) fn merge(&mut self, other: PendingSecond) {
        // Sources list their metrics in nearly the same order, so the next one is usually found at
        // once.
        let mut expected = 0;
        for theirs in other.metrics {
            let (before, after) = self.metrics.split_at(expected);
            let found = after.iter().position(|mine| mine.key == theirs.key).map(|at| at + expected);
            let found = found.or_else(|| before.iter().position(|mine| mine.key == theirs.key));
            match found {
                Some(at) => {
                    self.metrics[at].merge(theirs);
                    expected = at + 1;
                }
                None => self.metrics.push(theirs),
            }
        }
        other.errors.into_iter().for_each(|note| add_note(&mut self.errors, note));
        self.engine.merge(&other.engine);
        self.failed.extend(other.failed);
    }
}

/// Adds a failure message to equal ones.
pub(crate) fn add_note(notes: &mut Vec<ErrorNote>, note: ErrorNote) {
    let ErrorNote { metric, outcome, message, count } = note;
    note_failure(notes, MAX_MESSAGES, (&metric, outcome, &message), count);
}

/// Adds a failure message to equal ones. From `most` distinct messages on, a new one is only
/// counted, with others of its metric and outcome, because messages with an id in them are all
/// distinct.
pub(crate) fn note_failure(
    notes: &mut Vec<ErrorNote>,
    most: usize,
    (metric, outcome, message): (&Arc<MetricKey>, Outcome, &str),
    count: u64,
) {
    let mut add = |message: &str, most: usize| {
        let same = |n: &ErrorNote| n.outcome == outcome && n.message == message && n.metric == *metric;
        match notes.iter().position(same) {
            Some(at) => notes[at].count += count,
            None if notes.len() < most => {
                notes.push(ErrorNote { metric: metric.clone(), outcome, message: message.to_owned(), count });
            }
            None => return false,
        }
        true
    };
    if !add(message, most) {
        add(OTHER_MESSAGES, usize::MAX);
    }
}

/// Stands for all messages beyond the limit.
const OTHER_MESSAGES: &str = "(other messages)";

impl MetricDelta {
    fn merge(&mut self, other: MetricDelta) {
        for (outcome, n) in other.outcomes {
            match self.outcomes.iter_mut().find(|(mine, _)| *mine == outcome) {
                Some((_, mine)) => *mine += n,
                None => self.outcomes.push((outcome, n)),
            }
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.wait.merge(&other.wait);
        match (&mut self.phases, other.phases) {
            (Some(mine), Some(theirs)) => mine.iter_mut().zip(theirs.iter()).for_each(|(m, t)| m.merge(t)),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }
}

impl EngineDelta {
    fn merge(&mut self, other: &EngineDelta) {
        self.begun += other.begun;
        self.recorded += other.recorded;
        self.warm_up_requests += other.warm_up_requests;
        self.unsent += other.unsent;
        self.peak_users += other.peak_users;
        self.iterations += other.iterations;
        self.dropped += other.dropped;
        self.late += other.late;
        self.metrics_refused += other.metrics_refused;
        self.users += other.users;
        self.busy += other.busy;
        self.schedule_lag.merge(&other.schedule_lag);
    }
}

//! The recorder of one engine thread: takes samples and gives one delta a second. Threads do not
//! share it, so recording is a few additions: no lock, no allocation, no message.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    EngineDelta, ErrorNote, Histogram, LiveHistogram, MetricDelta, MetricKey, MetricKind, Outcome,
    pending_second::note_failure,
};

/// The names of the phases, in the order of [`PhaseTimes`].
pub const PHASES: [&str; 5] = ["dns", "connect", "tls", "first_byte", "body"];

/// How long each of [`PHASES`] took; zero for a phase that did not happen.
pub type PhaseTimes = [Duration; PHASES.len()];

/// Identifies a metric in one recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MetricId(u32);

/// One finished request (or group).
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub metric: MetricId,
    /// From the intended start to the actual one.
    pub wait: Duration,
    /// From the actual start to the end.
    pub service: Duration,
    pub outcome: Outcome,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Whether the sample was due during the warm-up: it is counted, but not in the results.
    pub due_in_warm_up: bool,
}

/// Limits of a recorder.
#[derive(Debug, Clone, Copy)]
pub struct RecorderConfig {
    /// The most metrics of one recorder. Further ones share a metric named `(other)`. Each takes up
    /// to a few hundred KiB.
    pub max_metrics: usize,
    /// Whether to keep a histogram per phase.
    pub phases: bool,
    /// The most distinct failure messages between two harvests.
    pub max_messages: usize,
    /// Whether it records a background scenario: nothing counts as load, and requests are custom
    /// metrics.
    pub background: bool,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        RecorderConfig { max_metrics: MAX_METRICS, phases: false, max_messages: 50, background: false }
    }
}

/// Everything one thread has counted since the last harvest.
pub struct MetricRecorder {
    config: RecorderConfig,
    metrics: Vec<LiveMetric>,
    ids: HashMap<Arc<MetricKey>, MetricId>,
    messages: Vec<ErrorNote>,
    engine: EngineDelta,
    schedule_lag: LiveHistogram,
}

struct LiveMetric {
    key: Arc<MetricKey>,
    /// Few and repetitive: the latest outcome is nearly always first.
    outcomes: Vec<(Outcome, u64)>,
    bytes_in: u64,
    bytes_out: u64,
    service: LiveHistogram,
    response: LiveHistogram,
    wait: LiveHistogram,
    phases: Option<Box<[LiveHistogram; PHASES.len()]>>,
}

/// With more distinct codes than this in one metric and harvest, `outcomes` would grow while
/// recording.
const OUTCOMES_WITHOUT_ALLOCATION: usize = 32;

impl MetricRecorder {
    pub fn new(config: RecorderConfig) -> MetricRecorder {
        MetricRecorder {
            config,
            metrics: Vec::new(),
            ids: HashMap::new(),
            messages: Vec::new(),
            engine: EngineDelta::default(),
            schedule_lag: LiveHistogram::default(),
        }
    }

    /// The id of `key`. Beyond the limit, all new keys share one id.
    pub fn metric(&mut self, mut key: MetricKey) -> MetricId {
        if self.config.background && key.kind == MetricKind::Request {
            key.kind = MetricKind::Custom;
        }
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        if self.metrics.len() + 1 >= self.config.max_metrics && key.name != OTHER_METRIC {
            self.engine.metrics_refused += 1;
            return self.metric(MetricKey { kind: key.kind, ..MetricKey::request(OTHER_METRIC) });
        }
        let id = MetricId(self.metrics.len() as u32);
        let key = Arc::new(key);
        self.metrics.push(LiveMetric::new(key.clone(), self.config.phases));
        self.ids.insert(key, id);
        id
    }

    /// Counts a request that begins. If it then fails before it is sent,
    /// [`MetricRecorder::count_unsent`] counts it too.
    #[inline]
    pub fn count_begun(&mut self) {
        self.engine.begun += 1;
    }

    /// Counts that a request, already counted as begun and recorded, was never sent.
    pub fn count_unsent(&mut self) {
        self.engine.unsent += 1;
    }

    /// Counts a finished request in its metric.
    #[inline]
    pub fn record(&mut self, sample: &Sample) {
        let metric = &mut self.metrics[sample.metric.0 as usize];
        let counts = metric.key.kind == MetricKind::Request;
        self.engine.recorded += u64::from(counts);
        if sample.due_in_warm_up {
            self.engine.warm_up_requests += u64::from(counts);
            return;
        }
        metric.record(sample);
    }

    /// Adds bytes to a request that is already recorded, for example the rest of a streamed body.
    pub fn add_bytes(&mut self, metric: MetricId, bytes_in: u64, bytes_out: u64) {
        let metric = &mut self.metrics[metric.0 as usize];
        metric.bytes_in += bytes_in;
        metric.bytes_out += bytes_out;
    }

    /// Adds the phases of a request; does nothing unless phases are recorded.
    pub fn record_phases(&mut self, metric: MetricId, times: &PhaseTimes) {
        if let Some(phases) = &mut self.metrics[metric.0 as usize].phases {
            for (histogram, time) in phases.iter_mut().zip(times).filter(|(_, time)| !time.is_zero()) {
                histogram.record(time.as_nanos() as u64);
            }
        }
    }

    /// Keeps a failure message. It may allocate, so call it only for failures.
    pub fn note_error(&mut self, metric: MetricId, outcome: Outcome, message: &str) {
        let key = &self.metrics[metric.0 as usize].key;
        // Some messages contain a whole body; their beginning is enough.
        let message = message.char_indices().nth(MAX_MESSAGE_CHARS).map_or(message, |(end, _)| &message[..end]);
        note_failure(&mut self.messages, self.config.max_messages, (key, outcome, message), 1);
    }

    /// Counts a started iteration and how late the engine was for it.
    #[inline]
    pub fn record_iteration(&mut self, lag: Duration, late: bool) {
        self.engine.iterations += 1;
        self.engine.late += u64::from(late);
        self.schedule_lag.record(lag.as_nanos() as u64);
    }

    /// Records that the engine itself was late by `lag` though no start was due. Users of a closed
    /// model wait for the engine too.
    pub fn record_lag(&mut self, lag: Duration) {
        self.schedule_lag.record(lag.as_nanos() as u64);
    }

    /// Records the number of users alive, for the peak.
    pub fn record_users(&mut self, alive: u64) {
        self.engine.peak_users = self.engine.peak_users.max(alive);
    }

    /// Counts starts that were due and will not be made.
    pub fn count_dropped(&mut self, starts: u64) {
        self.engine.dropped += starts;
    }

    /// Takes everything recorded since the last harvest. Metrics without a sample are left out.
    pub fn harvest(&mut self, users: u64, busy: u64) -> (Vec<MetricDelta>, Vec<ErrorNote>, EngineDelta) {
        let metrics = self.metrics.iter_mut().filter_map(LiveMetric::harvest).collect();
        let mut engine = std::mem::take(&mut self.engine);
        if self.config.background {
            let engine = EngineDelta { metrics_refused: engine.metrics_refused, ..EngineDelta::default() };
            return (metrics, std::mem::take(&mut self.messages), engine);
        }
        self.schedule_lag.harvest(&mut engine.schedule_lag);
        (engine.users, engine.busy, engine.peak_users) = (users, busy, engine.peak_users.max(users));
        // These users are alive when the next second begins.
        self.engine.peak_users = users;
        (metrics, std::mem::take(&mut self.messages), engine)
    }
}

/// The metric that further keys beyond the limit share.
pub(crate) const OTHER_METRIC: &str = "(other)";

/// The most metrics of a recorder, and of a run.
pub(crate) const MAX_METRICS: usize = 500;

/// The longest failure message, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

impl LiveMetric {
    fn new(key: Arc<MetricKey>, phases: bool) -> LiveMetric {
        LiveMetric {
            key,
            outcomes: Vec::with_capacity(OUTCOMES_WITHOUT_ALLOCATION),
            bytes_in: 0,
            bytes_out: 0,
            service: LiveHistogram::default(),
            response: LiveHistogram::default(),
            wait: LiveHistogram::default(),
            phases: phases.then(Box::default),
        }
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        let (wait, service) = (sample.wait.as_nanos() as u64, sample.service.as_nanos() as u64);
        self.service.record(service);
        self.response.record(wait + service);
        self.wait.record(wait);
        self.bytes_in += sample.bytes_in;
        self.bytes_out += sample.bytes_out;
        match self.outcomes.iter_mut().find(|(outcome, _)| *outcome == sample.outcome) {
            Some((_, n)) => *n += 1,
            None => self.outcomes.push((sample.outcome, 1)),
        }
    }

    fn harvest(&mut self) -> Option<MetricDelta> {
        if self.outcomes.is_empty() && self.bytes_in == 0 && self.bytes_out == 0 {
            return None;
        }
        let mut delta = MetricDelta {
            key: self.key.clone(),
            outcomes: self.outcomes.clone(),
            bytes_in: std::mem::take(&mut self.bytes_in),
            bytes_out: std::mem::take(&mut self.bytes_out),
            service: Histogram::default(),
            response: Histogram::default(),
            wait: Histogram::default(),
            phases: None,
        };
        self.outcomes.clear();
        self.service.harvest(&mut delta.service);
        self.response.harvest(&mut delta.response);
        self.wait.harvest(&mut delta.wait);
        delta.phases = self.phases.as_mut().map(|live| {
            let mut phases: Box<[Histogram; PHASES.len()]> = Box::default();
            live.iter_mut().zip(phases.iter_mut()).for_each(|(live, phase)| live.harvest(phase));
            phases
        });
        Some(delta)
    }
}

#[cfg(test)]
mod tests;

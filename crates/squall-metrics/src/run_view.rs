//! The view of a run: totals, metrics, seconds and the engine's own figures, all from merged
//! histograms. Terminal, files, Prometheus and thresholds read it and compute no statistics of
//! their own.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    EngineDelta, ErrorNote, Histogram, MetricDelta, MetricKey, MetricKind, Outcome,
    pending_second::{PendingSecond, add_note},
    recorder::{MAX_METRICS, OTHER_METRIC, PHASES},
};

/// Everything known about a run so far.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// All requests together; its key is named `all`.
    pub all: MetricView,
    /// In the order of their first sample.
    pub metrics: Vec<MetricView>,
    /// One entry per second, without gaps.
    pub timeline: Vec<RunSecond>,
    pub engine: EngineView,
    /// Distinct failure messages, in the order of their first occurrence.
    pub errors: Vec<ErrorNote>,
    pub(crate) index: HashMap<Arc<MetricKey>, usize>,
    pub(crate) recent: VecDeque<Vec<MetricDelta>>,
    pub(crate) window_s: u32,
}

/// One metric over the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    pub key: Arc<MetricKey>,
    pub requests: u64,
    pub errors: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Since when, until when and where each failed outcome occurred. Empty for all requests together, and
    /// after the restoration of a view of a version that did not save it.
    pub failures: BTreeMap<Outcome, FailureSpan>,
    pub service: Histogram,
    pub response: Histogram,
    pub wait: Histogram,
    /// In the order of [`PHASES`], if phases are recorded.
    pub phases: Option<Box<[Histogram; PHASES.len()]>>,
    /// One entry for each second with a sample.
    pub timeline: Vec<MetricSecond>,
}

/// The seconds in which a failure of a metric occurred, and the sources that had it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureSpan {
    /// The end of the first and of the last second with it, in seconds from the start of the run.
    pub first_s: u32,
    pub last_s: u32,
    /// [`SourceId::instance`](crate::SourceId::instance) of each.
    pub instances: BTreeSet<u64>,
}

/// One second of the whole run. Times are response times in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSecond {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    pub requests: u64,
    pub errors: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Users alive at its end; their peak in a second in which all users left.
    pub users: u64,
    pub busy: u64,
    pub iterations: u64,
    pub dropped: u64,
    pub late: u64,
    /// Requests that ended in this second and were due during the warm-up. No other number of the
    /// second includes them.
    pub warm_up_requests: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
    pub service_p50: u64,
    pub service_p95: u64,
    pub service_p99: u64,
    pub lag_p99: u64,
    /// Failed requests by outcome.
    pub failures: Box<[(Outcome, u64)]>,
    /// Response times as in [`Histogram::coarse_buckets`].
    pub buckets: Box<[(u16, u64)]>,
}

/// One second of one metric, kept small because there are many. Times are response times in
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSecond {
    pub t_s: u32,
    pub requests: u32,
    pub errors: u32,
    pub mean: f32,
    pub p50: f32,
    pub p95: f32,
    pub p99: f32,
}

/// The engine's own figures over the whole run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineView {
    pub begun: u64,
    pub recorded: u64,
    pub warm_up_requests: u64,
    pub unsent: u64,
    pub iterations: u64,
    pub dropped: u64,
    pub late: u64,
    pub users: u64,
    pub busy: u64,
    pub peak_users: u64,
    pub schedule_lag: Histogram,
    pub metrics_refused: u64,
}

/// The balance that every report checks: each request, sent or unsent, was recorded, and each recorded
/// one is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounting {
    /// Requests that began, without the unsent ones.
    pub sent: u64,
    pub recorded: u64,
    pub reported: u64,
    /// Requests due during the warm-up, part of the three counts above. Latencies, rates and errors
    /// exclude them.
    pub warm_up: u64,
    /// Requests that were recorded and reported, but never sent, because they failed on this machine.
    pub unsent: u64,
}

impl Accounting {
    pub fn balances(&self) -> bool {
        self.sent + self.unsent == self.recorded && self.recorded == self.reported
    }
}

impl RunView {
    pub(crate) fn new(window_s: u32) -> RunView {
        RunView {
            all: MetricView::new(Arc::new(MetricKey::request("all"))),
            metrics: Vec::new(),
            timeline: Vec::new(),
            engine: EngineView::default(),
            errors: Vec::new(),
            index: HashMap::new(),
            recent: VecDeque::new(),
            window_s,
        }
    }

    /// Sent, recorded and reported requests so far.
    pub fn accounting(&self) -> Accounting {
        let EngineView { begun, recorded, warm_up_requests: warm_up, unsent, .. } = self.engine;
        let sent = begun.saturating_sub(unsent);
        Accounting { sent, recorded, reported: self.all.requests + warm_up, warm_up, unsent }
    }

    /// Whether any user has run an on_start.
    pub fn has_on_start(&self) -> bool {
        self.on_starts().next().is_some()
    }

    /// How often users failed their on_start.
    pub fn on_start_failures(&self) -> u64 {
        self.on_starts().map(|metric| metric.errors).sum()
    }

    /// The metrics of an on_start: a group in Python, which several scenarios may each have, and steps
    /// elsewhere.
    fn on_starts(&self) -> impl Iterator<Item = &MetricView> {
        self.metrics.iter().filter(|metric| match metric.key.kind {
            MetricKind::Group => metric.key.name.rsplit('/').next() == Some("on_start"),
            _ => metric.key.name.starts_with("on_start/"),
        })
    }

    /// The metric named `name`.
    pub fn metric(&self, name: &str) -> Option<&MetricView> {
        self.metrics.iter().find(|m| m.key.name == name)
    }

    /// The latest `seconds` of one metric or of all requests; `None` if the run is younger, or
    /// fewer are kept.
    pub fn window(&self, metric: Option<&str>, seconds: u32) -> Option<MetricView> {
        self.window_before(metric, seconds, 0)
    }

    /// As [`RunView::window`], without the latest `after` seconds.
    pub fn window_before(&self, metric: Option<&str>, seconds: u32, after: usize) -> Option<MetricView> {
        if self.recent.len() < seconds as usize + after {
            return None;
        }
        let wanted = |delta: &&MetricDelta| match metric {
            Some(name) => delta.key.name == name,
            None => delta.key.kind == MetricKind::Request,
        };
        let mut view = MetricView::new(self.all.key.clone());
        let latest = self.recent.iter().rev().skip(after).take(seconds as usize);
        latest.flatten().filter(wanted).for_each(|delta| view.merge(delta));
        Some(view)
    }

    /// Up to `seconds` of the latest seconds of the metric `key`, as many as are kept, and how many
    /// these are.
    pub fn window_of(&self, key: &MetricKey, seconds: usize) -> (MetricView, usize) {
        let mut view = MetricView::new(self.all.key.clone());
        let latest = self.recent.len().min(seconds);
        let deltas = self.recent.iter().rev().take(latest).flatten();
        deltas.filter(|delta| *delta.key == *key).for_each(|delta| view.merge(delta));
        (view, latest)
    }

    /// The merged deltas of the latest second, one for each metric with a sample.
    pub fn latest(&self) -> &[MetricDelta] {
        self.recent.back().map_or(&[], Vec::as_slice)
    }

    /// The same for up to `seconds` of the latest seconds, oldest first; fewer if fewer are kept.
    pub fn latest_seconds(&self, seconds: usize) -> impl Iterator<Item = &[MetricDelta]> {
        self.recent.iter().skip(self.recent.len().saturating_sub(seconds)).map(Vec::as_slice)
    }

    pub(crate) fn close(&mut self, second: u32, pending: PendingSecond) {
        while (self.timeline.len() as u32) < second {
            self.push_second(PendingSecond::default());
        }
        self.push_second(pending);
    }

    /// Adds deltas that came after the last second was closed to that second, for a run that has no
    /// next one.
    pub(crate) fn amend_last(&mut self, overdue: PendingSecond) {
        let (Some(row), Some(metrics)) = (self.timeline.pop(), self.recent.pop_back()) else {
            return self.push_second(overdue);
        };
        let overdue = self.cap_metrics(overdue);
        let before = (self.engine.users, self.engine.busy);
        self.add_totals(&overdue);
        let mut whole = PendingSecond { metrics, ..PendingSecond::default() };
        whole.merge(overdue);
        let all = self.push_metric_rows(row.t_s, &whole.metrics);
        self.add_failures(row.t_s, &whole);
        let more = RunSecond::of(row.t_s, &all, &whole.engine);
        (self.engine.users, self.engine.busy) = before;
        self.timeline.push(RunSecond {
            users: row.users,
            busy: row.busy,
            iterations: row.iterations + more.iterations,
            dropped: row.dropped + more.dropped,
            late: row.late + more.late,
            warm_up_requests: row.warm_up_requests + more.warm_up_requests,
            lag_p99: row.lag_p99.max(more.lag_p99),
            ..more
        });
        self.recent.push_back(whole.metrics);
    }

    fn push_second(&mut self, pending: PendingSecond) {
        let pending = self.cap_metrics(pending);
        let t_s = self.timeline.len() as u32 + 1;
        self.add_totals(&pending);
        let all = self.push_metric_rows(t_s, &pending.metrics);
        self.add_failures(t_s, &pending);
        self.timeline.push(RunSecond::of(t_s, &all, &pending.engine));
        self.recent.push_back(pending.metrics);
    }

    /// Keeps the seconds that a window ending with the next second needs.
    pub(crate) fn trim_recent(&mut self) {
        let keep = self.window_s.saturating_sub(1) as usize;
        self.recent.drain(..self.recent.len().saturating_sub(keep));
    }

    /// Moves new metrics beyond the limit into one. Each source keeps to the limit, but all
    /// together may exceed it.
    fn cap_metrics(&self, mut pending: PendingSecond) -> PendingSecond {
        let mut free_names = (MAX_METRICS - 1).saturating_sub(self.metrics.len());
        if pending.metrics.len() <= free_names {
            return pending;
        }
        let mut fits = |delta: &MetricDelta| {
            let known = self.index.contains_key(&delta.key) || delta.key.name == OTHER_METRIC;
            let new = !known && free_names > 0;
            free_names -= usize::from(new);
            known || new
        };
        let (metrics, beyond): (Vec<_>, Vec<_>) = pending.metrics.into_iter().partition(|delta| fits(delta));
        pending.metrics = metrics;
        pending.engine.metrics_refused += beyond.len() as u64;
        for mut delta in beyond {
            delta.key = Arc::new(MetricKey { kind: delta.key.kind, ..MetricKey::request(OTHER_METRIC) });
            pending.merge(PendingSecond { metrics: vec![delta], ..PendingSecond::default() });
        }
        pending
    }

    /// Adds a second to the totals.
    fn add_totals(&mut self, pending: &PendingSecond) {
        for delta in &pending.metrics {
            if delta.key.kind == MetricKind::Request {
                self.all.merge(delta);
            }
            self.metric_entry(&delta.key).merge(delta);
        }
        self.engine.merge(&pending.engine);
        pending.errors.iter().for_each(|note| add_note(&mut self.errors, note.clone()));
    }

    /// Adds the rows of second `t_s` to the metrics; returns all its requests together.
    fn push_metric_rows(&mut self, t_s: u32, metrics: &[MetricDelta]) -> MetricView {
        let mut all = MetricView::new(self.all.key.clone());
        for delta in metrics {
            if delta.key.kind == MetricKind::Request {
                all.merge(delta);
            }
            let timeline = &mut self.metric_entry(&delta.key).timeline;
            // Late bytes of an earlier request have no times.
            if delta.requests() == 0 {
                continue;
            }
            let row = MetricSecond::of(t_s, delta);
            match timeline.last_mut() {
                Some(last) if last.t_s == t_s => *last = row,
                _ => timeline.push(row),
            }
        }
        all
    }

    fn add_failures(&mut self, t_s: u32, pending: &PendingSecond) {
        for (key, outcome, instance) in &pending.failed {
            let Some(&index) = self.index.get(key) else { continue };
            let new = FailureSpan { first_s: t_s, ..FailureSpan::default() };
            let span = self.metrics[index].failures.entry(*outcome).or_insert(new);
            span.last_s = t_s;
            span.instances.insert(*instance);
        }
    }

    pub(crate) fn metric_entry(&mut self, key: &Arc<MetricKey>) -> &mut MetricView {
        let index = *self.index.entry(key.clone()).or_insert_with(|| {
            self.metrics.push(MetricView::new(key.clone()));
            self.metrics.len() - 1
        });
        &mut self.metrics[index]
    }
}

impl MetricView {
    pub(crate) fn new(key: Arc<MetricKey>) -> MetricView {
        MetricView {
            key,
            requests: 0,
            errors: 0,
            bytes_in: 0,
            bytes_out: 0,
            outcomes: BTreeMap::new(),
            failures: BTreeMap::new(),
            service: Histogram::default(),
            response: Histogram::default(),
            wait: Histogram::default(),
            phases: None,
            timeline: Vec::new(),
        }
    }

    /// Failed requests as a fraction of all; 0 without requests.
    pub fn error_rate(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.errors as f64 / self.requests as f64 }
    }

    pub(crate) fn merge(&mut self, delta: &MetricDelta) {
        self.requests += delta.requests();
        self.errors += delta.errors();
        self.bytes_in += delta.bytes_in;
        self.bytes_out += delta.bytes_out;
        for (outcome, n) in &delta.outcomes {
            *self.outcomes.entry(*outcome).or_default() += n;
        }
        self.service.merge(&delta.service);
        self.response.merge(&delta.response);
        self.wait.merge(&delta.wait);
        if let Some(theirs) = &delta.phases {
            let mine = self.phases.get_or_insert_default();
            mine.iter_mut().zip(theirs.iter()).for_each(|(mine, theirs)| mine.merge(theirs));
        }
    }
}

impl MetricSecond {
    fn of(t_s: u32, delta: &MetricDelta) -> MetricSecond {
        let response = &delta.response;
        MetricSecond {
            t_s,
            requests: delta.requests() as u32,
            errors: delta.errors() as u32,
            mean: response.mean() as f32,
            p50: response.percentile(50.0) as f32,
            p95: response.percentile(95.0) as f32,
            p99: response.percentile(99.0) as f32,
        }
    }
}

impl RunSecond {
    fn of(t_s: u32, all: &MetricView, engine: &EngineDelta) -> RunSecond {
        let response = &all.response;
        RunSecond {
            t_s,
            requests: all.requests,
            errors: all.errors,
            bytes_in: all.bytes_in,
            bytes_out: all.bytes_out,
            // At the end of a run all users leave, but they made the load of its last second.
            users: if engine.users == 0 { engine.peak_users } else { engine.users },
            busy: engine.busy,
            iterations: engine.iterations,
            dropped: engine.dropped,
            late: engine.late,
            warm_up_requests: engine.warm_up_requests,
            mean: response.mean(),
            p50: response.percentile(50.0),
            p90: response.percentile(90.0),
            p95: response.percentile(95.0),
            p99: response.percentile(99.0),
            max: response.max(),
            service_p50: all.service.percentile(50.0),
            service_p95: all.service.percentile(95.0),
            service_p99: all.service.percentile(99.0),
            lag_p99: engine.schedule_lag.percentile(99.0),
            failures: all.outcomes.iter().filter(|(outcome, _)| outcome.is_error()).map(|(o, n)| (*o, *n)).collect(),
            buckets: response.coarse_buckets().into(),
        }
    }
}

impl EngineView {
    pub(crate) fn merge(&mut self, delta: &EngineDelta) {
        self.begun += delta.begun;
        self.recorded += delta.recorded;
        self.warm_up_requests += delta.warm_up_requests;
        self.unsent += delta.unsent;
        self.iterations += delta.iterations;
        self.dropped += delta.dropped;
        self.late += delta.late;
        self.metrics_refused += delta.metrics_refused;
        self.schedule_lag.merge(&delta.schedule_lag);
        (self.users, self.busy) = (delta.users, delta.busy);
        self.peak_users = self.peak_users.max(delta.peak_users);
    }
}

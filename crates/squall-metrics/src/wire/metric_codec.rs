//! The parts that deltas and checkpoints share: keys, outcomes, histograms, metrics, failure
//! messages and the engine's figures.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    WireError, code_names,
    wire_codec::{WireReader, WireWriter},
};
use crate::{
    EngineDelta, ErrorNote, Histogram, MetricDelta, MetricKey, MetricKind, MetricView, Outcome, OutcomeCategory,
    OutcomeCode, PHASES,
    bucket_layout::{BUCKETS, CHUNK, index_of},
};

/// A metric to encode, from a delta or from a view.
pub(super) struct MetricRef<'a> {
    key: &'a Arc<MetricKey>,
    outcomes: Vec<(Outcome, u64)>,
    bytes: (u64, u64),
    service: &'a Histogram,
    response: &'a Histogram,
    wait: &'a Histogram,
    phases: Option<&'a [Histogram; PHASES.len()]>,
}

impl<'a> From<&'a MetricDelta> for MetricRef<'a> {
    fn from(delta: &'a MetricDelta) -> Self {
        let MetricDelta { key, outcomes, bytes_in, bytes_out, service, response, wait, phases } = delta;
        let (outcomes, bytes) = (outcomes.clone(), (*bytes_in, *bytes_out));
        MetricRef { key, outcomes, bytes, service, response, wait, phases: phases.as_deref() }
    }
}

impl<'a> From<&'a MetricView> for MetricRef<'a> {
    fn from(view: &'a MetricView) -> Self {
        let outcomes = view.outcomes.iter().map(|(outcome, n)| (*outcome, *n)).collect();
        let MetricView { key, service, response, wait, .. } = view;
        let bytes = (view.bytes_in, view.bytes_out);
        MetricRef { key, outcomes, bytes, service, response, wait, phases: view.phases.as_deref() }
    }
}

/// The bits of a metric's flags.
const RESPONSE_IS_SERVICE: u8 = 1;
const HAS_PHASES: u8 = 2;

impl WireWriter {
    pub(super) fn metric(&mut self, metric: &MetricRef<'_>) {
        // Common, when no request waited; it saves a third of the message.
        let same = metric.response == metric.service;
        self.key(metric.key);
        self.byte(if same { RESPONSE_IS_SERVICE } else { 0 } | if metric.phases.is_some() { HAS_PHASES } else { 0 });
        self.list(&metric.outcomes, |out, (outcome, n)| {
            out.outcome(*outcome);
            out.number(*n);
        });
        self.number(metric.bytes.0);
        self.number(metric.bytes.1);
        self.histogram(metric.service);
        if !same {
            self.histogram(metric.response);
        }
        self.histogram(metric.wait);
        metric.phases.into_iter().flatten().for_each(|phase| self.histogram(phase));
    }

    pub(super) fn note(&mut self, note: &ErrorNote) {
        self.key(&note.metric);
        self.outcome(note.outcome);
        self.text(&note.message);
        self.number(note.count);
    }

    pub(super) fn engine(&mut self, engine: &EngineDelta) {
        let EngineDelta { begun, recorded, warm_up_requests, unsent, iterations, dropped, late, .. } = *engine;
        let EngineDelta { users, peak_users, busy, metrics_refused, .. } = *engine;
        for n in [
            begun,
            recorded,
            warm_up_requests,
            unsent,
            iterations,
            dropped,
            late,
            users,
            peak_users,
            busy,
            metrics_refused,
        ] {
            self.number(n);
        }
        self.histogram(&engine.schedule_lag);
    }

    pub(super) fn histogram(&mut self, histogram: &Histogram) {
        let mut next = 0;
        for (index, n) in histogram.buckets() {
            self.number((index - next) as u64 + 1);
            self.number(n);
            next = index + 1;
        }
        self.number(0);
        if !histogram.is_empty() {
            self.number(histogram.min());
            self.number(histogram.max());
            self.number_u128(histogram.sum());
        }
    }

    pub(super) fn key(&mut self, key: &Arc<MetricKey>) {
        let next = self.keys.len() as u64;
        let place = *self.keys.entry(key.clone()).or_insert(next);
        self.number(place);
        if place == next {
            self.text(&key.name);
            self.byte(key.kind as u8);
            self.list(&key.group, |out, group| out.text(group));
            self.list(&key.tags, |out, (tag, value)| {
                out.text(tag);
                out.text(value);
            });
        }
    }

    /// The category, plus 8 if the code is a name.
    pub(super) fn outcome(&mut self, outcome: Outcome) {
        let category = outcome.category as u8;
        match outcome.code {
            OutcomeCode::Http(status) => {
                self.byte(category);
                self.number(status.into());
            }
            OutcomeCode::Named(name) => {
                self.byte(category | NAMED);
                self.text(if code_names::is_valid_name(name) { name } else { code_names::OTHER_CODE });
            }
        }
    }
}

const NAMED: u8 = 8;

impl WireReader<'_> {
    pub(super) fn metric(&mut self) -> Result<MetricDelta, WireError> {
        let key = self.key()?;
        let flags = self.byte()?;
        if flags > RESPONSE_IS_SERVICE | HAS_PHASES {
            return Err(WireError::Invalid { what: "a metric has unknown flags" });
        }
        let outcomes = self.list(|input| Ok((input.outcome()?, input.counter()?)))?;
        let (bytes_in, bytes_out) = (self.counter()?, self.counter()?);
        let service = self.histogram()?;
        let response =
            if flags & RESPONSE_IS_SERVICE == 0 { self.histogram()? } else { self.copy_histogram(&service)? };
        let wait = self.histogram()?;
        let phases = if flags & HAS_PHASES == 0 { None } else { Some(Box::new(self.phases()?)) };
        if outcomes.iter().map(|(_, n)| n).sum::<u64>() != service.count() {
            return Err(WireError::Invalid { what: "outcomes and times of a metric differ in number" });
        }
        Ok(MetricDelta { key, outcomes, bytes_in, bytes_out, service, response, wait, phases })
    }

    pub(super) fn note(&mut self) -> Result<ErrorNote, WireError> {
        let (metric, outcome) = (self.key()?, self.outcome()?);
        Ok(ErrorNote { metric, outcome, message: self.text()?.to_owned(), count: self.counter()? })
    }

    pub(super) fn engine(&mut self) -> Result<EngineDelta, WireError> {
        Ok(EngineDelta {
            begun: self.counter()?,
            recorded: self.counter()?,
            warm_up_requests: self.counter()?,
            unsent: self.counter()?,
            iterations: self.counter()?,
            dropped: self.counter()?,
            late: self.counter()?,
            users: self.counter()?,
            peak_users: self.counter()?,
            busy: self.counter()?,
            metrics_refused: self.counter()?,
            schedule_lag: self.histogram()?,
        })
    }

    pub(super) fn histogram(&mut self) -> Result<Histogram, WireError> {
        let mut histogram = Histogram::default();
        let (mut first, mut next) = (None, 0);
        loop {
            let gap = self.number_below(BUCKETS as u64 + 1, "values")? as usize;
            if gap == 0 {
                break;
            }
            let index = next + gap - 1;
            if index >= BUCKETS {
                return Err(WireError::Invalid { what: "a histogram goes beyond its end" });
            }
            if next == 0 || index / CHUNK != (next - 1) / CHUNK {
                self.reserve_chunks(1)?;
            }
            match self.counter()? {
                0 => return Err(WireError::Invalid { what: "a bucket of a histogram is empty" }),
                n => histogram.add_bucket(index, n),
            }
            first = first.or(Some(index));
            next = index + 1;
        }
        let Some(first) = first else { return Ok(histogram) };
        let (min, max, sum) = (self.number()?, self.number()?, self.number_u128()?);
        let count = u128::from(histogram.count());
        let sums = count * u128::from(min)..=count * u128::from(max);
        if index_of(min) != first || index_of(max) + 1 != next || !sums.contains(&sum) {
            return Err(WireError::Invalid { what: "a histogram's extremes are not in its buckets" });
        }
        histogram.add_extremes(sum, min, max);
        Ok(histogram)
    }

    fn copy_histogram(&mut self, histogram: &Histogram) -> Result<Histogram, WireError> {
        self.reserve_chunks(histogram.chunks())?;
        Ok(histogram.clone())
    }

    fn phases(&mut self) -> Result<[Histogram; PHASES.len()], WireError> {
        let mut phases: [Histogram; PHASES.len()] = Default::default();
        for phase in &mut phases {
            *phase = self.histogram()?;
        }
        Ok(phases)
    }

    pub(super) fn key(&mut self) -> Result<Arc<MetricKey>, WireError> {
        let place = self.number_below(self.keys.len() as u64 + 1, "keys")? as usize;
        if let Some(known) = self.keys.get(place) {
            return Ok(known.clone());
        }
        let name = self.text()?.to_owned();
        let kind = *[MetricKind::Request, MetricKind::Group, MetricKind::Custom]
            .get(usize::from(self.byte()?))
            .ok_or(WireError::Invalid { what: "the kind of a metric is unknown" })?;
        let group = if self.flag()? { Some(self.text()?.to_owned()) } else { None };
        let tags = self.list(|input| Ok((input.text()?.to_owned(), input.text()?.to_owned())))?;
        let tags = tags.into_iter().collect::<BTreeMap<_, _>>();
        let key = Arc::new(MetricKey { name, kind, group, tags });
        self.keys.push(key.clone());
        Ok(key)
    }

    pub(super) fn outcome(&mut self) -> Result<Outcome, WireError> {
        let byte = self.byte()?;
        let category = *OutcomeCategory::ALL
            .get(usize::from(byte & !NAMED))
            .ok_or(WireError::Invalid { what: "the category of an outcome is unknown" })?;
        let code = if byte & NAMED == 0 {
            OutcomeCode::Http(self.number_below(1 << 16, "HTTP status")? as u16)
        } else {
            let name = self.text()?;
            if !code_names::is_valid_name(name) {
                return Err(WireError::Invalid { what: "the code of an outcome is not a valid name" });
            }
            OutcomeCode::Named(code_names::intern(name))
        };
        Ok(Outcome { category, code })
    }
}

//! A whole collector as bytes, so that another process can continue exactly where this one was, and the
//! view of a finished run as bytes, so that its reports can be made again. A checksum at the end detects
//! damaged bytes before any of them are decoded.
//!
//! Like the view, it grows with the run: about 200 bytes per second, and 20 per second and metric.

use std::collections::BTreeSet;
use xxhash_rust::xxh64::xxh64;

use super::{
    MAX_SECOND, WireError,
    wire_codec::{WireLimits, WireReader, WireWriter},
};
use crate::{
    Collector, EngineDelta, FailureSpan, MetricKind, MetricSecond, RunSecond, RunView,
    pending_second::PendingSecond,
    second_aligner::{MAX_AHEAD_S, SecondAligner, SourceProgress},
};

/// The first byte of a checkpoint; no delta begins with it.
const CHECKPOINT: u8 = 130;

/// A checkpoint was written by this program, so it may be as large as it was in memory.
const CHECKPOINT_LIMITS: WireLimits = WireLimits { bytes: usize::MAX, chunks: usize::MAX, count: 1 << 62 };

impl Collector {
    /// Encodes everything that [`Collector::restore`] needs.
    pub fn save(&self) -> Vec<u8> {
        let mut out = WireWriter::new(CHECKPOINT);
        out.view(&self.view);
        out.list(&self.view.recent, |out, metrics| out.list(metrics, |out, metric| out.metric(&metric.into())));
        out.align(&self.aligner);
        out.failure_spans(&self.view);
        let SecondAligner { pending, overdue, .. } = &self.aligner;
        out.list(pending, |out, (_, pending)| out.failed(pending));
        out.list(overdue, WireWriter::failed);
        with_checksum(out.finish())
    }

    /// The collector that was saved. `window_s` is as in [`Collector::new`]; a longer window than
    /// the saved one fills during the run.
    pub fn restore(bytes: &[u8], window_s: u32) -> Result<Collector, WireError> {
        // The version comes first, because another version may have its checksum elsewhere.
        WireReader::new(bytes, CHECKPOINT, CHECKPOINT_LIMITS)?;
        let mut input = WireReader::new(without_checksum(bytes)?, CHECKPOINT, CHECKPOINT_LIMITS)?;
        let mut view = input.view(window_s)?;
        view.recent = input.list(|input| input.list(WireReader::metric))?.into();
        if view.recent.is_empty() != view.timeline.is_empty() {
            return Err(WireError::Invalid { what: "the latest second is missing" });
        }
        let mut align = input.align(view.timeline.len() as u32)?;
        // Another version may have saved none.
        if !input.is_at_end() {
            input.failure_spans(&mut view)?;
            let SecondAligner { pending, overdue, .. } = &mut align;
            input.failed(pending.values_mut())?;
            input.failed(overdue.iter_mut())?;
        }
        input.finish()?;
        Ok(Collector { view, aligner: align })
    }
}

/// The first byte of a saved view; no delta and no checkpoint begins with it.
const VIEW: u8 = 193;

/// A view may come from a file of other people, so its memory is bounded: 2 GiB of histograms.
const VIEW_LIMITS: WireLimits = WireLimits { bytes: usize::MAX, chunks: 1 << 18, count: 1 << 62 };

impl RunView {
    /// Encodes what [`RunView::restore`] needs: everything except the histograms of the latest seconds,
    /// which only a running test uses.
    pub fn save(&self) -> Vec<u8> {
        let mut out = WireWriter::new(VIEW);
        out.view(self);
        out.failure_spans(self);
        with_checksum(out.finish())
    }

    /// The view that was saved, without windows.
    pub fn restore(bytes: &[u8]) -> Result<RunView, WireError> {
        WireReader::new(bytes, VIEW, VIEW_LIMITS)?;
        let mut input = WireReader::new(without_checksum(bytes)?, VIEW, VIEW_LIMITS)?;
        let mut view = input.view(1)?;
        // Results of earlier versions have none.
        if !input.is_at_end() {
            input.failure_spans(&mut view)?;
        }
        input.finish()?;
        Ok(view)
    }
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(xxh64(&bytes, 0).to_le_bytes());
    bytes
}

fn without_checksum(bytes: &[u8]) -> Result<&[u8], WireError> {
    let (bytes, checksum) = bytes.split_last_chunk().ok_or(WireError::CutOff)?;
    if xxh64(bytes, 0).to_le_bytes() == *checksum { Ok(bytes) } else { Err(WireError::Checksum) }
}

impl WireWriter {
    /// The totals of all requests are not written: they are the sum of the metrics.
    fn view(&mut self, view: &RunView) {
        self.list(&view.timeline, WireWriter::second);
        self.list(&view.metrics, |out, metric| {
            out.metric(&metric.into());
            let mut before = 0;
            out.list(&metric.timeline, |out, row| {
                out.number((row.t_s - before).into());
                before = row.t_s;
                out.metric_second(row);
            });
        });
        let engine = view.engine.clone();
        self.engine(&EngineDelta {
            begun: engine.begun,
            recorded: engine.recorded,
            warm_up_requests: engine.warm_up_requests,
            unsent: engine.unsent,
            iterations: engine.iterations,
            dropped: engine.dropped,
            late: engine.late,
            schedule_lag: engine.schedule_lag,
            users: engine.users,
            peak_users: engine.peak_users,
            busy: engine.busy,
            metrics_refused: engine.metrics_refused,
        });
        self.list(&view.errors, WireWriter::note);
    }

    /// In the order of the metrics.
    fn failure_spans(&mut self, view: &RunView) {
        self.list(&view.metrics, |out, metric| {
            out.list(&metric.failures, |out, (outcome, span)| {
                out.outcome(*outcome);
                out.number(span.first_s.into());
                out.number(span.last_s.into());
                out.list(&span.instances, |out, instance| out.number(*instance));
            });
        });
    }

    fn failed(&mut self, pending: &PendingSecond) {
        self.list(&pending.failed, |out, (key, outcome, instance)| {
            out.key(key);
            out.outcome(*outcome);
            out.number(*instance);
        });
    }

    /// The index of a second is its time.
    fn second(&mut self, row: &RunSecond) {
        let RunSecond {
            requests,
            errors,
            bytes_in,
            bytes_out,
            users,
            busy,
            iterations,
            dropped,
            late,
            warm_up_requests,
            ..
        } = *row;
        let RunSecond { p50, p90, p95, p99, max, service_p50, service_p95, service_p99, lag_p99, .. } = *row;
        for n in [requests, errors, bytes_in, bytes_out, users, busy, iterations, dropped, late, warm_up_requests] {
            self.number(n);
        }
        self.fixed(row.mean.to_le_bytes());
        for n in [p50, p90, p95, p99, max, service_p50, service_p95, service_p99, lag_p99] {
            self.number(n);
        }
        self.list(&row.failures, |out, (outcome, n)| {
            out.outcome(*outcome);
            out.number(*n);
        });
        self.list(&row.buckets, |out, (bucket, n)| {
            out.number((*bucket).into());
            out.number(*n);
        });
    }

    fn metric_second(&mut self, row: &MetricSecond) {
        self.number(row.requests.into());
        self.number(row.errors.into());
        for x in [row.mean, row.p50, row.p95, row.p99] {
            self.fixed(x.to_le_bytes());
        }
    }

    fn align(&mut self, align: &SecondAligner) {
        self.list(&align.sources, |out, (source, progress)| {
            out.source(*source);
            out.number(progress.next_seq);
            out.number(progress.complete_below.into());
            out.byte(progress.lost.into());
            out.number(progress.begun);
            out.number(progress.recorded_sent);
        });
        self.list(&align.pending, |out, (second, pending)| {
            out.number((*second).into());
            out.pending(pending);
        });
        self.list(&align.overdue, WireWriter::pending);
    }

    fn pending(&mut self, pending: &PendingSecond) {
        self.list(&pending.metrics, |out, metric| out.metric(&metric.into()));
        self.list(&pending.errors, WireWriter::note);
        self.engine(&pending.engine);
    }
}

impl WireReader<'_> {
    fn view(&mut self, window_s: u32) -> Result<RunView, WireError> {
        let mut view = RunView::new(window_s);
        view.timeline = self.list(WireReader::second)?;
        view.timeline.iter_mut().zip(1..).for_each(|(row, t_s)| row.t_s = t_s);
        let metrics = self.list(|input| Ok((input.metric()?, input.metric_timeline()?)))?;
        for (total, timeline) in metrics {
            if timeline.last().is_some_and(|row| row.t_s as usize > view.timeline.len()) {
                return Err(WireError::Invalid { what: "a metric has a second after the end of the run" });
            }
            if total.key.kind == MetricKind::Request {
                view.all.merge(&total);
            }
            let metric = view.metric_entry(&total.key);
            metric.merge(&total);
            metric.timeline = timeline;
        }
        view.engine.merge(&self.engine()?);
        view.errors = self.list(WireReader::note)?;
        Ok(view)
    }

    fn failure_spans(&mut self, view: &mut RunView) -> Result<(), WireError> {
        let spans = self.list(|input| {
            input.list(|input| {
                let outcome = input.outcome()?;
                let first_s = input.number_below(MAX_SECOND, "second")? as u32;
                let last_s = input.number_below(MAX_SECOND, "second")? as u32;
                let instances = input.list(WireReader::number)?.into_iter().collect();
                Ok((outcome, FailureSpan { first_s, last_s, instances }))
            })
        })?;
        for (metric, spans) in view.metrics.iter_mut().zip(spans) {
            metric.failures = spans.into_iter().collect();
        }
        Ok(())
    }

    fn failed<'p>(&mut self, pending: impl Iterator<Item = &'p mut PendingSecond>) -> Result<(), WireError> {
        let failed = self.list(|input| input.list(|input| Ok((input.key()?, input.outcome()?, input.number()?))))?;
        for (pending, failed) in pending.zip(failed) {
            pending.failed = failed.into_iter().collect();
        }
        Ok(())
    }

    fn second(&mut self) -> Result<RunSecond, WireError> {
        Ok(RunSecond {
            t_s: 0,
            requests: self.counter()?,
            errors: self.counter()?,
            bytes_in: self.counter()?,
            bytes_out: self.counter()?,
            users: self.counter()?,
            busy: self.counter()?,
            iterations: self.counter()?,
            dropped: self.counter()?,
            late: self.counter()?,
            warm_up_requests: self.counter()?,
            mean: f64::from_le_bytes(self.fixed()?),
            p50: self.number()?,
            p90: self.number()?,
            p95: self.number()?,
            p99: self.number()?,
            max: self.number()?,
            service_p50: self.number()?,
            service_p95: self.number()?,
            service_p99: self.number()?,
            lag_p99: self.number()?,
            failures: self.list(|input| Ok((input.outcome()?, input.counter()?)))?.into(),
            buckets: self.list(|input| Ok((input.number_below(1 << 16, "bucket")? as u16, input.counter()?)))?.into(),
        })
    }

    fn metric_timeline(&mut self) -> Result<Vec<MetricSecond>, WireError> {
        let mut before = 0;
        self.list(|input| {
            before += input.number_below(MAX_SECOND - before, "second")?;
            Ok(MetricSecond {
                t_s: before as u32,
                requests: input.number_below(1 << 32, "requests")? as u32,
                errors: input.number_below(1 << 32, "errors")? as u32,
                mean: f32::from_le_bytes(input.fixed()?),
                p50: f32::from_le_bytes(input.fixed()?),
                p95: f32::from_le_bytes(input.fixed()?),
                p99: f32::from_le_bytes(input.fixed()?),
            })
        })
    }

    fn align(&mut self, closed_below: u32) -> Result<SecondAligner, WireError> {
        let source = |input: &mut Self| {
            let source = input.source()?;
            let next_seq = input.sequence()?;
            let complete_below = input.number_below(1 << 32, "second")? as u32;
            let (lost, begun, recorded_sent) = (input.flag()?, input.counter()?, input.counter()?);
            Ok((source, SourceProgress { next_seq, complete_below, lost, begun, recorded_sent }))
        };
        let sources = self.list(source)?.into_iter().collect();
        let pending = self.list(|input| Ok((input.number_below(MAX_SECOND, "second")? as u32, input.pending()?)))?;
        let open = closed_below..closed_below.saturating_add(MAX_AHEAD_S);
        if !pending.iter().all(|(second, _)| open.contains(second)) {
            return Err(WireError::Invalid { what: "a pending second is out of range" });
        }
        let pending = pending.into_iter().collect();
        let overdue = if self.flag()? { Some(self.pending()?) } else { None };
        Ok(SecondAligner { sources, pending, overdue, closed_below })
    }

    fn pending(&mut self) -> Result<PendingSecond, WireError> {
        let (metrics, errors) = (self.list(WireReader::metric)?, self.list(WireReader::note)?);
        Ok(PendingSecond { metrics, errors, engine: self.engine()?, failed: BTreeSet::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
    use std::time::Duration;

    #[test]
    fn view_without_the_spans_of_failures_is_restored() {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::request("pay"));
        let (service, outcome) = (Duration::from_millis(1), Outcome::of_status(200));
        let wait = Duration::ZERO;
        recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, due_in_warm_up: false });
        let (metrics, errors, engine) = recorder.harvest(1, 1);
        let source = SourceId { instance: 1, thread: 0 };
        let mut collector = Collector::new([source], 1);
        collector.merge(Delta { source, seq: 0, second: 0, metrics, errors, engine, last: true }).unwrap();
        let view = collector.finish();
        let bytes = view.save();
        // One metric with no failure.
        let earlier = without_checksum(&bytes).unwrap().strip_suffix(&[1, 0]).expect("the spans are at the end");
        assert_eq!(RunView::restore(&with_checksum(earlier.to_vec())).unwrap().metrics, view.metrics);
    }
}

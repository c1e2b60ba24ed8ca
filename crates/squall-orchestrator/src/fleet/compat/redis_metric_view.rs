//! The merged seconds of every metric and probe in Redis. It reads the aggregated view and computes
//! nothing.

use serde_json::json;
use squall_coord::{CompatView, SecondRow, SeriesKind, StoreError};
use squall_metrics::{MetricSecond, MetricView, RunView};
use std::collections::BTreeMap;

use crate::fleet::{ProbeSecond, metric_event, probe_names, probe_seconds, vikhry_metrics};

/// A new leader writes this many seconds again: its predecessor may have merged them and died
/// before it wrote them.
const REWRITTEN_SECONDS: u32 = 60;

/// Which seconds of a run have been written.
#[derive(Debug)]
pub(crate) struct RedisMetricView {
    written_until_s: u32,
}

impl RedisMetricView {
    /// Continues after a previous leader, which merged `view`.
    pub(crate) fn resume_after(view: &RunView) -> RedisMetricView {
        RedisMetricView { written_until_s: (view.timeline.len() as u32).saturating_sub(REWRITTEN_SECONDS) }
    }

    /// Writes the seconds that have closed since the last update, of a run that started at
    /// `start_ms`.
    pub(crate) async fn update(
        &mut self,
        store: &impl CompatView,
        epoch: u64,
        start_ms: u64,
        view: &RunView,
    ) -> Result<(), StoreError> {
        for (t_s, rows) in self.rows(epoch, start_ms, view) {
            store.append_second(epoch, end_ms(start_ms, t_s), &rows).await?;
            self.written_until_s = t_s;
        }
        self.written_until_s = self.written_until_s.max(view.timeline.len() as u32);
        Ok(())
    }

    fn rows(&self, epoch: u64, start_ms: u64, view: &RunView) -> BTreeMap<u32, Vec<SecondRow>> {
        let mut rows: BTreeMap<u32, Vec<SecondRow>> = BTreeMap::new();
        if view.timeline.len() as u32 <= self.written_until_s {
            return rows;
        }
        for metric in vikhry_metrics(view) {
            let fresh = metric.timeline.iter().rev().take_while(|second| second.t_s > self.written_until_s);
            for second in fresh {
                let (series, id) = (SeriesKind::Metric, metric.key.id());
                let row = SecondRow { series, id, row: metric_row((epoch, start_ms), view, metric, second) };
                rows.entry(second.t_s).or_default().push(row);
            }
        }
        for name in probe_names(view) {
            for second in probe_seconds(view, name, self.written_until_s) {
                let (series, id) = (SeriesKind::Probe, name.to_owned());
                let row = SecondRow { series, id, row: probe_row(epoch, start_ms, name, &second) };
                rows.entry(second.t_s).or_default().push(row);
            }
        }
        rows
    }
}

fn end_ms(start_ms: u64, t_s: u32) -> u64 {
    start_ms + u64::from(t_s) * 1000
}

fn metric_row((epoch, start_ms): (u64, u64), view: &RunView, metric: &MetricView, second: &MetricSecond) -> String {
    let mut row = metric_event(view, metric, second, end_ms(start_ms, second.t_s));
    row["epoch"] = epoch.into();
    row["t_s"] = second.t_s.into();
    row.to_string()
}

fn probe_row(epoch: u64, start_ms: u64, name: &str, second: &ProbeSecond) -> String {
    let mut row = json!({
        "epoch": epoch,
        "name": name,
        "ts_ms": end_ms(start_ms, second.t_s),
        "t_s": second.t_s,
        "status": second.is_ok(),
        "time": second.time_ms,
        "value": second.value,
        "calls": second.samples,
        "errors": second.errors,
    });
    if let Some((kind, message)) = &second.error {
        row["error_type"] = kind.as_str().into();
        row["error_message"] = message.as_str().into();
    }
    row.to_string()
}

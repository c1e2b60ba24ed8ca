//! Selects the seconds of a run that can be compared: whole seconds after the warm-up, during the
//! load, and at the profile's full level if that lasted long enough. Ramps would add variance and
//! hide real changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{MetricJson, ResultFile};

/// Fewer seconds than this are not enough data.
pub(super) const MIN_SECONDS: usize = 10;

/// One metric's comparable seconds in order, including seconds without requests.
pub(super) struct FullLoadSeries {
    pub(super) seconds: Vec<ComparedSecond>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ComparedSecond {
    pub(super) requests: f64,
    pub(super) errors: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl FullLoadSeries {
    pub(super) fn of_run(file: &ResultFile) -> FullLoadSeries {
        let chosen = full_load_seconds(file);
        let seconds = file.timeline.iter().filter(|second| chosen.contains(&second.t_s)).map(|second| ComparedSecond {
            requests: second.rate,
            errors: second.errors as f64,
            mean: second.mean_ms,
            p50: second.p50_ms,
            p95: second.p95_ms,
            p99: second.p99_ms,
        });
        FullLoadSeries { seconds: seconds.collect() }
    }

    pub(super) fn of_metric(file: &ResultFile, metric: &MetricJson) -> FullLoadSeries {
        let mut seconds: BTreeMap<u32, ComparedSecond> =
            full_load_seconds(file).into_iter().map(|t| (t, ComparedSecond::default())).collect();
        for second in &metric.timeline {
            if let Some(entry) = seconds.get_mut(&second.t_s) {
                *entry = ComparedSecond {
                    requests: second.requests as f64,
                    errors: second.errors as f64,
                    mean: second.mean_ms,
                    p50: second.p50_ms,
                    p95: second.p95_ms,
                    p99: second.p99_ms,
                };
            }
        }
        FullLoadSeries { seconds: seconds.into_values().collect() }
    }
}

/// The comparable seconds by their `t_s`.
pub(super) fn full_load_seconds(file: &ResultFile) -> BTreeSet<u32> {
    // Runs end slightly before or after a whole second, so allow a tenth of a second.
    let active = |t_s: u32| f64::from(t_s) <= file.run.active_s + 0.1 && f64::from(t_s) > file.run.warm_up_s + 0.999;
    let whole: Vec<_> = file.timeline.iter().filter(|second| !second.in_warm_up && active(second.t_s)).collect();
    let peak = whole.iter().map(|second| second.target).fold(0.0, f64::max);
    let full: BTreeSet<u32> = whole.iter().filter(|s| s.target >= 0.999 * peak).map(|s| s.t_s).collect();
    if full.len() >= MIN_SECONDS { full } else { whole.iter().map(|second| second.t_s).collect() }
}

//! Records samples that a scenario measures itself, on the engine thread that runs the scenario.
//! Outside a run it drops them. `squall._metrics` and `squall._strategy` call it.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricKey, MetricKind, Outcome, OutcomeCategory};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use crate::blocking_threads;

thread_local! {
    static THREAD_RECORDER: RefCell<Option<(ThreadRecorder, String)>> = const { RefCell::new(None) };
}

/// Sets the recorder that receives the samples of this thread.
pub(crate) fn set_thread_recorder(recorder: &ThreadRecorder, prefix: &str) {
    THREAD_RECORDER.set(Some((recorder.clone(), prefix.to_owned())));
}

/// One sample of a metric of the scenario.
pub(crate) struct CustomSample {
    name: String,
    elapsed: Duration,
    outcome: Outcome,
    /// Whether the metric belongs to the scenario and gets its prefix.
    group: bool,
    /// The measured text: the metric's tag `text`.
    text: Option<String>,
    measured_at: Instant,
}

/// Records one sample of the metric `name`. The metric of a `group` belongs to the scenario and
/// gets its prefix. `text` is a result that is a text.
#[pyfunction]
#[pyo3(signature = (name, seconds, passed, code, group = false, text = None))]
pub(crate) fn emit(
    name: &str,
    seconds: f64,
    passed: bool,
    code: &str,
    group: bool,
    text: Option<String>,
) -> PyResult<()> {
    let elapsed = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is not a duration in seconds; give 0 or more")))?;
    let category = if passed { OutcomeCategory::Ok } else { OutcomeCategory::Exception };
    let outcome = Outcome::new(category, crate::driver::exception_code(code));
    let sample = CustomSample { name: name.to_owned(), elapsed, outcome, group, text, measured_at: Instant::now() };
    blocking_threads::keep_sample(sample).iter().for_each(record_sample);
    Ok(())
}

/// Records a sample on this engine thread.
pub(crate) fn record_sample(sample: &CustomSample) {
    THREAD_RECORDER.with_borrow(|recorder| {
        let Some((recorder, prefix)) = recorder else { return };
        let metric = recorder.metric(match sample.group {
            true => MetricKey::group(format!("{prefix}{}", sample.name)),
            false => MetricKey {
                kind: MetricKind::Custom,
                tags: sample.text.iter().map(|text| ("text".to_owned(), text.clone())).collect(),
                ..MetricKey::request(&sample.name)
            },
        });
        // The span starts at the measurement instead of ending there, so that the sample counts in
        // that second, however long ago the measured code started.
        let started = sample.measured_at;
        recorder.record_span(metric, started, started + sample.elapsed, sample.outcome);
    });
}

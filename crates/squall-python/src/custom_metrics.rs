//! Samples that a scenario measures itself, recorded on the thread that it runs on. Outside a run they go nowhere.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricKey, MetricKind, Outcome, OutcomeCategory};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

thread_local! {
    static THREAD_RECORDER: RefCell<Option<(ThreadRecorder, String)>> = const { RefCell::new(None) };
}

/// Makes this thread's recorder the one that samples go to.
pub(crate) fn set_thread_recorder(probe: &ThreadRecorder, prefix: &str) {
    THREAD_RECORDER.set(Some((probe.clone(), prefix.to_owned())));
}

/// One sample of the metric `name`; of a `group`, it is the scenario's own and has its prefix.
#[pyfunction]
#[pyo3(signature = (name, seconds, passed, code, group = false))]
pub(crate) fn emit(name: &str, seconds: f64, passed: bool, code: &str, group: bool) -> PyResult<()> {
    let lasted = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no duration in seconds")))?;
    THREAD_RECORDER.with_borrow(|probe| {
        let Some((probe, prefix)) = probe else { return };
        let metric = probe.metric(match group {
            true => MetricKey::group(format!("{prefix}{name}")),
            false => MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) },
        });
        // From now on rather than until now: it counts as measured now, however long before it may have begun.
        let started = Instant::now();
        let category = if passed { OutcomeCategory::Ok } else { OutcomeCategory::Exception };
        probe.record_span(
            metric,
            started,
            started + lasted,
            Outcome::new(category, crate::driver::exception_code(code)),
        );
    });
    Ok(())
}

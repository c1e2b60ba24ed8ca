//! The messages that say what a fleet run waits for. They decide nothing. Shown by `RunWatch` and
//! by the start.

use squall_coord::StoreError;
use std::time::Duration;

use super::WAITING_MESSAGE_INTERVAL;
use crate::{
    fleet::{FleetError, FleetStatus, WorkerInfo, worker_info::unready_workers},
    local_run::RunObserver,
};

/// Most workers that one message names.
const MAX_NAMED_WORKERS: usize = 10;

const NO_WORKER_LEFT: &str = "no worker is left; waiting for one";

/// Shows that the store has not been usable for `silent`. An error other than "unreachable" is
/// quoted, because the reader may be able to fix it.
pub(super) fn report_store_outage(observers: &mut [&mut dyn RunObserver], error: &FleetError, silent: Duration) {
    let seconds = silent.as_secs();
    let message = match error {
        FleetError::Store(StoreError::Unreachable(_)) => {
            format!("waiting for the store, which has not answered for {seconds} s")
        }
        error => format!("waiting for the store, which has returned errors for {seconds} s: {error}"),
    };
    observers.iter_mut().for_each(|observer| observer.on_waiting(&message));
}

/// Names the workers whose reports are overdue, so that a second of theirs may be missing. They may
/// still come back.
pub(super) fn silent_workers_message(workers: &[WorkerInfo], now_ms: u64) -> Option<String> {
    if workers.is_empty() {
        return Some(NO_WORKER_LEFT.to_owned());
    }
    let silent_s = |worker: &WorkerInfo| now_ms as f64 / 1e3 - worker.last_report_at;
    let silent = workers.iter().filter(|worker| {
        worker.last_report_at > 0.0 && silent_s(worker) > 1.5 * WAITING_MESSAGE_INTERVAL.as_secs_f64()
    });
    let longest = silent.clone().max_by(|a, b| silent_s(a).total_cmp(&silent_s(b)))?;
    let others = match silent.count() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!("waiting for worker {}{others}, last heard {:.0} s ago", longest.id, silent_s(longest)))
}

/// Names the workers that are still building their users. Workers that have stopped reporting are
/// left out, because the leader does not wait for them.
pub(super) fn preparing_message(status: &FleetStatus) -> Option<String> {
    if status.workers.is_empty() {
        return Some(NO_WORKER_LEFT.to_owned());
    }
    let mut present = status.spec.as_ref()?.expected.clone();
    present.retain(|id| status.workers.iter().any(|worker| worker.id == *id));
    let mut names = unready_workers(&present, &status.workers, status.epoch);
    let (whose, more) = (if names.len() == 1 { "its" } else { "their" }, names.len().saturating_sub(MAX_NAMED_WORKERS));
    names.truncate(MAX_NAMED_WORKERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("waiting for {}{more} to build {whose} users", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_workers_are_named_after_a_missed_report() {
        let heard = |id: &str, last_report_at: f64| {
            let (id, status) = (id.to_owned(), "healthy".to_owned());
            WorkerInfo { id, status, last_report_at, ..WorkerInfo::default() }
        };
        let message = |workers: &[WorkerInfo]| silent_workers_message(workers, 10_000);
        assert_eq!(message(&[heard("w1", 9.5), heard("w2", 9.0)]), None);
        assert_eq!(message(&[]).as_deref(), Some("no worker is left; waiting for one"));
        let one = message(&[heard("w1", 9.5), heard("w2", 8.0)]);
        assert_eq!(one.as_deref(), Some("waiting for worker w2, last heard 2 s ago"));
        let two = message(&[heard("w1", 7.0), heard("w2", 8.0)]);
        assert_eq!(two.as_deref(), Some("waiting for worker w1 and 1 more, last heard 3 s ago"));
    }
}

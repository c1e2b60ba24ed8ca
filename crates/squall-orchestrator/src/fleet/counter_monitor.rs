//! Watches the shared counters of a run for its leader: whether all iterations of a limited run
//! have been used, and which numbers lost workers held. It gives out no numbers; workers draw them
//! from the store.

use squall_coord::{CounterState, CounterStore, FleetStores, RunStore, StoreError};
use squall_model::{Bundle, FleetEvent, FleetEventKind, ITERATIONS_COUNTER, LoadModel, protocol::SourceName};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

use super::{FleetClient, FleetError, RunAggregator};

/// Time between two polls of a run without an iteration limit. A run with a limit ends by them, so
/// it is polled always.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The leader's view of the counters of a run.
pub(super) struct CounterMonitor {
    iteration_limit: Option<u64>,
    last_poll: Option<Instant>,
}

impl CounterMonitor {
    pub(super) fn new(bundle: &Bundle) -> CounterMonitor {
        CounterMonitor { iteration_limit: iteration_limit(bundle), last_poll: None }
    }

    /// Whether users draw iterations from a limit.
    pub(super) fn has_iteration_limit(&self) -> bool {
        self.iteration_limit.is_some()
    }

    /// Writes off the numbers that lost workers hold. Returns whether the run has used all its
    /// iterations.
    pub(super) async fn poll<C: FleetStores>(
        &mut self,
        fleet: &FleetClient<C>,
        aggregator: &mut RunAggregator<C>,
        elapsed: Duration,
    ) -> Result<bool, FleetError> {
        if self.iteration_limit.is_none() && self.last_poll.is_some_and(|at| at.elapsed() < POLL_INTERVAL) {
            return Ok(false);
        }
        self.last_poll = Some(Instant::now());
        let (run_store, epoch) = (fleet.stores().run(), aggregator.epoch());
        let counters = run_store.counters(epoch).await?;
        // Reports are read after the counters: a worker reports before it draws.
        for (name, source, instance) in lost_holders(&counters, fleet).await? {
            if let Some(held) = run_store.write_off(epoch, &name, &source).await?.filter(|held| *held > 0) {
                let worker = aggregator.roster().workers.get(&instance).map_or(source, |entry| entry.id.clone());
                let text = write_off_message(held, &name, &worker);
                aggregator.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Other, text));
            }
        }
        Ok(counters
            .get(ITERATIONS_COUNTER)
            .is_some_and(|counter| counter.remaining() == 0 && counter.outstanding() == 0))
    }

    /// Iterations that can have begun, if workers had to draw each one.
    pub(super) async fn drawn_iterations<R: RunStore>(
        &self,
        run_store: &R,
        epoch: u64,
    ) -> Result<Option<u64>, StoreError> {
        if self.iteration_limit.is_none() {
            return Ok(None);
        }
        let counters = run_store.counters(epoch).await?;
        Ok(Some(
            counters.get(ITERATIONS_COUNTER).map_or(0, |counter| counter.limit.saturating_sub(counter.remaining())),
        ))
    }

    /// Iterations that no worker is known to have made, if the run had a limit and reached it.
    /// `reported` is the number in the report, if the report covers the whole run.
    pub(super) async fn missed_iterations<R: RunStore>(
        &self,
        run_store: &R,
        epoch: u64,
        reported: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let Some(limit) = self.iteration_limit else { return Ok(None) };
        let counters = run_store.counters(epoch).await?;
        let Some(counter) =
            counters.get(ITERATIONS_COUNTER).filter(|counter| counter.remaining() + counter.outstanding() == 0)
        else {
            return Ok(None);
        };
        // The report does not contain the warm-up.
        let used = reported.unwrap_or_else(|| counter.used());
        Ok(Some(limit.saturating_sub(used)))
    }
}

/// The event for numbers that a lost worker held. Every counter except the iterations counts rows
/// of the data of its name.
fn write_off_message(held: u64, name: &str, worker: &str) -> String {
    let (one, many) = match name {
        ITERATIONS_COUNTER => ("iteration".to_owned(), "iterations".to_owned()),
        data => (format!("row of {data}"), format!("rows of {data}")),
    };
    match held {
        1 => format!("worker {worker} was lost with 1 {one}, which counts as used"),
        _ => format!("worker {worker} was lost with {held} {many}, which count as used"),
    }
}

/// The workers that hold numbers and no longer report: counter, source, instance.
async fn lost_holders<C: FleetStores>(
    counters: &BTreeMap<String, CounterState>,
    fleet: &FleetClient<C>,
) -> Result<Vec<(String, String, u64)>, FleetError> {
    let holders = counters.iter().flat_map(|(name, counter)| {
        let holds = counter.sources.iter().filter(|(_, holding)| !holding.written_off && holding.unused() > 0);
        holds.map(|(source, _)| (name.clone(), source.clone(), source_instance(source)))
    });
    let holders: Vec<_> = holders.collect();
    if holders.is_empty() {
        return Ok(holders);
    }
    let workers = fleet.workers().await?;
    Ok(holders
        .into_iter()
        .filter(|(_, _, instance)| workers.iter().all(|worker| worker.instance != *instance))
        .collect())
}

/// The instance of the worker that draws under this name.
fn source_instance(source: &str) -> u64 {
    source.parse().map_or(0, SourceName::instance)
}

/// The iteration limit of a closed load, whose users draw iterations when they are free.
pub(super) fn iteration_limit(bundle: &Bundle) -> Option<u64> {
    let load = &bundle.plan.load;
    load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_off_message_names_the_worker_and_what_it_held() {
        let text = "worker w3 was lost with 6 iterations, which count as used";
        assert_eq!(write_off_message(6, ITERATIONS_COUNTER, "w3"), text);
        let text = "worker w3 was lost with 1 row of data `users`, which counts as used";
        assert_eq!(write_off_message(1, "data `users`", "w3"), text);
    }
}

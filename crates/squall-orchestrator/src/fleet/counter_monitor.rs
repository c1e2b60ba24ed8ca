//! What the fleet uses once each, as its leader sees it: whether all iterations of a limited run were used, and what was with workers that are
//! gone. Gives nothing out.

use squall_coord::{CounterState, CounterStore, FleetStores, RunStore, StoreError};
use squall_model::{Bundle, ITERATIONS_COUNTER, LoadModel, protocol::SourceName};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{FleetClient, FleetError, RunAggregator};

/// How often it is looked at what the dead have drawn, where the run does not end with it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Looks after the counters of a run.
pub(super) struct CounterMonitor {
    iteration_limit: Option<u64>,
    last_poll: Option<Instant>,
}

impl CounterMonitor {
    pub(super) fn new(bundle: &Bundle) -> CounterMonitor {
        CounterMonitor { iteration_limit: iteration_limit(bundle), last_poll: None }
    }

    /// Whether there are so many iterations, which users take as they can.
    pub(super) fn has_iteration_limit(&self) -> bool {
        self.iteration_limit.is_some()
    }

    /// Writes off what was with workers that are gone; says whether the run has used all its iterations.
    pub(super) async fn poll<C: FleetStores>(
        &mut self,
        fleet: &FleetClient<C>,
        follower: &mut RunAggregator<C>,
        elapsed: Duration,
    ) -> Result<bool, FleetError> {
        if self.iteration_limit.is_none() && self.last_poll.is_some_and(|at| at.elapsed() < POLL_INTERVAL) {
            return Ok(false);
        }
        self.last_poll = Some(Instant::now());
        let (run, epoch) = (fleet.cell().run(), follower.epoch());
        let counters = run.counters(epoch).await?;
        // Asked after the counters: whoever has drawn was heard before.
        for (name, source, instance) in lost_holders(&counters, fleet).await? {
            if let Some(held) = run.write_off(epoch, &name, &source).await?.filter(|held| *held > 0) {
                let worker = follower.roster().members.get(&instance).map_or(source, |member| member.id.clone());
                let text = write_off_message(held, &name, &worker);
                follower.record_event(elapsed, text);
            }
        }
        Ok(counters
            .get(ITERATIONS_COUNTER)
            .is_some_and(|counter| counter.remaining() == 0 && counter.outstanding() == 0))
    }

    /// Iterations that can have begun, where each had to be drawn.
    pub(super) async fn drawn_iterations<R: RunStore>(&self, run: &R, epoch: u64) -> Result<Option<u64>, StoreError> {
        if self.iteration_limit.is_none() {
            return Ok(None);
        }
        let counters = run.counters(epoch).await?;
        Ok(Some(
            counters.get(ITERATIONS_COUNTER).map_or(0, |counter| counter.limit.saturating_sub(counter.remaining())),
        ))
    }

    /// Iterations that nobody is known to have made, if it had a limit and reached it; `made`: those that are reported, if those of all its
    /// time are.
    pub(super) async fn missed_iterations<R: RunStore>(
        &self,
        run: &R,
        epoch: u64,
        made: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let Some(limit) = self.iteration_limit else { return Ok(None) };
        let counters = run.counters(epoch).await?;
        let Some(counter) =
            counters.get(ITERATIONS_COUNTER).filter(|counter| counter.remaining() + counter.outstanding() == 0)
        else {
            return Ok(None);
        };
        // What was made during the warm-up is not in the report.
        let used = made.unwrap_or_else(|| counter.used());
        Ok(Some(limit.saturating_sub(used)))
    }
}

/// What was with a worker that is gone, for people. What is not iterations is rows of the data that has the counter's name.
fn write_off_message(held: u64, name: &str, worker: &str) -> String {
    let (one, many) = match name {
        ITERATIONS_COUNTER => ("iteration".to_owned(), "iterations".to_owned()),
        data => (format!("row of {data}"), format!("rows of {data}")),
    };
    match held {
        1 => format!("1 {one} was with worker {worker}, which is gone; it counts as used"),
        _ => format!("{held} {many} were with worker {worker}, which is gone; they count as used"),
    }
}

/// Who holds numbers and is not heard any more: counter, source, instance.
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

/// Which life of which worker draws under this name.
fn source_instance(source: &str) -> u64 {
    source.parse().map_or(0, SourceName::instance)
}

/// The iterations of a run that has so many and whose users take them as they can.
pub(super) fn iteration_limit(bundle: &Bundle) -> Option<u64> {
    let load = &bundle.plan.load;
    load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_off_is_said_in_plain_words() {
        let said = "6 iterations were with worker w3, which is gone; they count as used";
        assert_eq!(write_off_message(6, ITERATIONS_COUNTER, "w3"), said);
        let said = "1 row of data `users` was with worker w3, which is gone; it counts as used";
        assert_eq!(write_off_message(1, "data `users`", "w3"), said);
    }
}

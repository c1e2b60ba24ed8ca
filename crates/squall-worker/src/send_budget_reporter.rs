//! Announces to the store how many requests the worker may send, and only then lets the engine send
//! them. So the leader knows how many requests a killed worker sent at most. The budget covers the
//! time that a worker may work without the store, at the pace of the last seconds; a faster thread
//! asks for more before its budget is used up. `WorkerRun` starts it.

use squall_coord::{RunStore, ShipOutcome};
use squall_engine::SendPermit;
use squall_model::protocol::{SendBudgetReport, SourceName};
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::debug;

/// Time between two samples of the pace.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The best pace of this many samples counts.
const RATE_SAMPLES: usize = 3;
/// Requests that a thread may send after it has sent none for a while.
const MIN_BUDGET: u64 = 16;
/// A thread that asks for more gets its budget times `BUDGET_FACTOR`, and at least
/// `MIN_RAISED_BUDGET`.
const MIN_RAISED_BUDGET: u64 = 256;
const BUDGET_FACTOR: u64 = 4;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Announces the send budget of one worker instance in one run.
pub(crate) struct SendBudgetReporter<R> {
    run_store: R,
    epoch: u64,
    instance: u64,
    send_permit: SendPermit,
    /// Most requests of one iteration, if the driver knows it.
    max_requests_per_iteration: Option<u64>,
    /// How long this worker may work after its last announcement.
    budget_horizon: Duration,
    sequence: u64,
    /// The last report that the store has.
    last_report: Option<SendBudgetReport>,
    thread_rates: Vec<ThreadRate>,
    last_sample_at: Instant,
    /// When the load starts.
    load_start: LoadStart,
}

/// When the load of a worker's run starts; set once, when the record says so.
pub(crate) type LoadStart = Arc<OnceLock<std::time::Instant>>;

/// Another run has started.
pub(crate) struct StaleRun;

/// The pace of one thread.
struct ThreadRate {
    started_requests: u64,
    /// Requests per second in the last samples.
    recent_rates: VecDeque<f64>,
    /// Requests that the thread may send after an announcement.
    budget: u64,
}

impl<R: RunStore> SendBudgetReporter<R> {
    /// `first_budgets`: what each thread may send before its pace is known. `ttl`: how long the
    /// worker's membership lasts after a heartbeat.
    pub(crate) fn new(
        run_store: R,
        (epoch, instance): (u64, u64),
        send_permit: SendPermit,
        (first_budgets, max_requests_per_iteration): (Vec<u64>, Option<u64>),
        ttl: Duration,
        load_start: LoadStart,
    ) -> SendBudgetReporter<R> {
        SendBudgetReporter {
            run_store,
            epoch,
            instance,
            send_permit,
            max_requests_per_iteration,
            budget_horizon: ttl + SAMPLE_INTERVAL,
            sequence: 0,
            last_report: None,
            thread_rates: first_budgets.into_iter().map(ThreadRate::with_budget).collect(),
            last_sample_at: Instant::now(),
            load_start,
        }
    }

    /// Announces the budget that the first requests need.
    pub(crate) async fn report_first_budget(&mut self) -> Result<(), StaleRun> {
        self.report_budget().await
    }

    /// Announces budgets until another run starts or the task is dropped.
    pub(crate) async fn run(mut self) {
        let mut samples = tokio::time::interval_at(Instant::now() + SAMPLE_INTERVAL, SAMPLE_INTERVAL);
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = samples.tick() => self.sample_rates(),
                () = self.send_permit.refill_requested() => self.raise_low_budgets(),
            }
            if self.report_budget().await.is_err() {
                return;
            }
        }
    }

    /// Measures the pace of every thread.
    fn sample_rates(&mut self) {
        let (now, horizon_s) = (Instant::now(), self.budget_horizon.as_secs_f64());
        let elapsed_s = now.duration_since(self.last_sample_at).as_secs_f64().max(1e-3);
        self.last_sample_at = now;
        let is_loading = self.load_start.get().is_some_and(|at| at.elapsed() > SAMPLE_INTERVAL * RATE_SAMPLES as u32);
        let threads = self.thread_rates.iter_mut().zip(self.send_permit.requests_charged());
        threads.for_each(|(thread, started)| thread.update(started, elapsed_s, horizon_s, is_loading));
    }

    /// Raises the budget of threads that have used half of it.
    fn raise_low_budgets(&mut self) {
        let low = self.thread_rates.iter_mut().enumerate().filter(|(thread, _)| self.send_permit.is_half_used(*thread));
        low.for_each(|(_, thread)| thread.raise_budget());
    }

    /// Announces the budget until the store has it, then lets the threads use it.
    async fn report_budget(&mut self) -> Result<(), StaleRun> {
        let budgets: Vec<u64> = self.thread_rates.iter().map(|thread| thread.budget).collect();
        let redirects = self.send_permit.redirect_pending();
        let limits = self.send_permit.lower_limits(&budgets);
        let report = SendBudgetReport {
            instance: self.instance,
            most: limits.iter().copied().fold(0, u64::saturating_add),
            each: self.max_requests_per_iteration.filter(|_| !redirects),
        };
        if self.last_report.is_some_and(|last| last == report) {
            return Ok(());
        }
        let (source, bytes) = (SourceName::SendBudget { instance: self.instance }.to_string(), report.encode());
        let mut retry = FIRST_RETRY;
        loop {
            match self.run_store.ship(self.epoch, &source, self.sequence, &bytes).await {
                Ok(ShipOutcome::Appended | ShipOutcome::Duplicate) => break,
                Ok(ShipOutcome::RunEnded) => return Err(StaleRun),
                // The store has lost earlier announcements. Only the last one counts, so they are
                // not repeated.
                Ok(ShipOutcome::Gap(expected)) => self.sequence = expected,
                Err(error) => {
                    debug!(%error, "the worker could not announce its send budget; it tries again");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        (self.sequence, self.last_report) = (self.sequence + 1, Some(report));
        self.send_permit.raise_limits(&limits);
        // Without a bound per iteration the leader bounds no redirects, so they need no further
        // report.
        if report.each.is_none() {
            self.send_permit.allow_redirects();
        }
        Ok(())
    }
}

impl ThreadRate {
    fn with_budget(budget: u64) -> ThreadRate {
        ThreadRate { started_requests: 0, recent_rates: VecDeque::new(), budget }
    }

    /// Takes a sample: the thread has started `started` requests, `elapsed_s` after the last
    /// sample. `is_loading`: the load started long enough ago for a pace of zero to count.
    fn update(&mut self, started: u64, elapsed_s: f64, horizon_s: f64, is_loading: bool) {
        if started == 0 && !is_loading {
            // The pace is unknown before the load starts.
            return;
        }
        self.recent_rates.push_back(started.saturating_sub(self.started_requests) as f64 / elapsed_s);
        if self.recent_rates.len() > RATE_SAMPLES {
            self.recent_rates.pop_front();
        }
        self.started_requests = started;
        let pace = self.recent_rates.iter().copied().fold(0.0, f64::max);
        self.budget = MIN_BUDGET + (pace * horizon_s).ceil() as u64;
    }

    /// The thread is faster than its recent pace.
    fn raise_budget(&mut self) {
        self.budget = self.budget.saturating_mul(BUDGET_FACTOR).max(MIN_RAISED_BUDGET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemoryRunStore, START_POSITION};

    /// Otherwise the worker could announce nothing more, and would hold shares without making their
    /// load.
    #[tokio::test]
    async fn reporter_continues_at_the_number_that_the_store_expects() {
        let (run_store, send_permit) = (MemoryRunStore::new(), SendPermit::new(1));
        run_store
            .compare_and_set(&run_store.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .expect("alone");
        let first = (vec![10], None);
        let mut reporter = SendBudgetReporter::new(
            run_store.clone(),
            (1, 7),
            send_permit,
            first,
            Duration::from_secs(1),
            LoadStart::default(),
        );
        reporter.sequence = 5;
        assert!(reporter.report_first_budget().await.is_ok());
        assert_eq!((run_store.deltas(1, START_POSITION, 9).await.unwrap().len(), reporter.sequence), (1, 1));
    }

    #[tokio::test]
    async fn redirects_are_allowed_from_the_first_report_without_a_bound_per_iteration() {
        for (bound, allowed) in [(None, true), (Some(1), false)] {
            let (run_store, budget) = (MemoryRunStore::new(), SendPermit::new(1));
            run_store
                .compare_and_set(&run_store.read_record().await.unwrap(), "RUNNING", "{}", true)
                .await
                .unwrap()
                .expect("alone");
            let (first, ttl) = ((vec![10], bound), Duration::from_secs(1));
            let mut reporter =
                SendBudgetReporter::new(run_store, (1, 7), budget.clone(), first, ttl, LoadStart::default());
            assert!(reporter.report_first_budget().await.is_ok());
            assert_eq!(budget.redirects_allowed(), allowed, "{bound:?}");
        }
    }

    #[test]
    fn budget_is_the_best_recent_pace_times_the_horizon() {
        let mut pace = ThreadRate::with_budget(1000);
        pace.update(0, 1.0, 4.5, false);
        assert_eq!(pace.budget, 1000, "the load has not started");
        let mut idle = ThreadRate::with_budget(1000);
        idle.update(0, 1.0, 4.5, true);
        assert_eq!(idle.budget, MIN_BUDGET, "the load is running and this thread has no user");
        for started in [100, 200, 300] {
            pace.update(started, 1.0, 4.5, true);
        }
        assert_eq!(pace.budget, MIN_BUDGET + 450);
        pace.raise_budget();
        assert_eq!(pace.budget, 4 * (MIN_BUDGET + 450), "until the next sample");
        pace.update(500, 2.0, 4.5, true);
        assert_eq!(pace.budget, MIN_BUDGET + 450, "a late sample is divided by its time");
        for _ in 0..RATE_SAMPLES {
            pace.update(500, 1.0, 4.5, true);
        }
        assert_eq!(pace.budget, MIN_BUDGET, "a paused load");
        pace.raise_budget();
        assert_eq!(pace.budget, MIN_RAISED_BUDGET);
    }
}

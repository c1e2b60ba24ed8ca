//! Says before it is sent how much will be: what a worker may send alone is what it sends in the time that it may go on alone, by its pace
//! of the last seconds. Who goes faster than that asks for more before it has used what there is. Only when the store has an announcement
//! may more be sent; so if this process dies, what it may have sent is known.

use squall_coord::{RunStore, ShipOutcome};
use squall_engine::SendBudget;
use squall_model::protocol::{SendBudgetReport, SourceName};
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::debug;

/// Time between two looks at the pace.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Looks whose best pace counts.
const RATE_SAMPLES: usize = 3;
/// What a thread may send that has sent nothing for a while.
const MIN_BUDGET: u64 = 16;
/// What it may send at least once it has asked for more, and how many times as much as before.
const MIN_RAISED_BUDGET: u64 = 256;
const BUDGET_FACTOR: u64 = 4;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Announces for one life of a worker in one run.
pub(crate) struct SendBudgetReporter<R> {
    run: R,
    epoch: u64,
    instance: u64,
    send_budget: SendBudget,
    /// Requests of an iteration at most, if that is known.
    max_requests_per_iteration: Option<u64>,
    /// How long this worker may go on alone after its last announcement.
    budget_horizon: Duration,
    sequence: u64,
    /// What was last said.
    last_report: Option<SendBudgetReport>,
    thread_rates: Vec<ThreadRate>,
    last_sample_at: Instant,
    /// When the load begins, once that is known.
    load_start: LoadStart,
}

/// When the load of a job begins; set once.
pub(crate) type LoadStart = Arc<OnceLock<std::time::Instant>>;

/// The run wants nothing more of this worker.
pub(crate) struct StaleRun;

/// How fast one thread is.
struct ThreadRate {
    started_requests: u64,
    /// Requests per second at the last looks.
    recent_rates: VecDeque<f64>,
    /// That it may send from an announcement on.
    budget: u64,
}

impl<R: RunStore> SendBudgetReporter<R> {
    /// `first`: what each thread of `leash` may send before anybody knows how fast it is; `ttl`: how long this worker lives without a beat.
    pub(crate) fn new(
        run: R,
        (epoch, instance): (u64, u64),
        leash: SendBudget,
        (first, each): (Vec<u64>, Option<u64>),
        ttl: Duration,
        starts: LoadStart,
    ) -> SendBudgetReporter<R> {
        let alone = ttl + SAMPLE_INTERVAL;
        let threads = first.into_iter().map(ThreadRate::with_budget).collect();
        SendBudgetReporter {
            run,
            epoch,
            instance,
            send_budget: leash,
            max_requests_per_iteration: each,
            budget_horizon: alone,
            sequence: 0,
            last_report: None,
            thread_rates: threads,
            last_sample_at: Instant::now(),
            load_start: starts,
        }
    }

    /// Says what is to be known before the first request.
    pub(crate) async fn report_first_budget(&mut self) -> Result<(), StaleRun> {
        self.report_budget().await
    }

    /// Goes on until nobody wants to know any more.
    pub(crate) async fn run(mut self) {
        let mut looks = tokio::time::interval_at(Instant::now() + SAMPLE_INTERVAL, SAMPLE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => self.sample_rates(),
                () = self.send_budget.refill_requested() => self.raise_low_budgets(),
            }
            if self.report_budget().await.is_err() {
                return;
            }
        }
    }

    /// Learns how fast the threads are.
    fn sample_rates(&mut self) {
        let (now, alone) = (Instant::now(), self.budget_horizon.as_secs_f64());
        let passed = now.duration_since(self.last_sample_at).as_secs_f64().max(1e-3);
        self.last_sample_at = now;
        let going = self.load_start.get().is_some_and(|at| at.elapsed() > SAMPLE_INTERVAL * RATE_SAMPLES as u32);
        let all = self.thread_rates.iter_mut().zip(self.send_budget.requests_begun());
        all.for_each(|(thread, begun)| thread.update(begun, passed, alone, going));
    }

    /// Lets those who have used half of what they may send go on faster.
    fn raise_low_budgets(&mut self) {
        let low = self.thread_rates.iter_mut().enumerate().filter(|(at, _)| self.send_budget.is_half_used(*at));
        low.for_each(|(_, thread)| thread.raise_budget());
    }

    /// Says what may be sent from now on, as often as it takes, then lets it be sent.
    async fn report_budget(&mut self) -> Result<(), StaleRun> {
        let allowances: Vec<u64> = self.thread_rates.iter().map(|thread| thread.budget).collect();
        let hops = self.send_budget.redirect_pending();
        let most = self.send_budget.lower_limits(&allowances);
        let said = SendBudgetReport {
            instance: self.instance,
            most: most.iter().copied().fold(0, u64::saturating_add),
            each: self.max_requests_per_iteration.filter(|_| !hops),
        };
        if self.last_report.is_some_and(|last| last == said) {
            return Ok(());
        }
        let (source, bytes) = (SourceName::SendBudget { instance: self.instance }.to_string(), said.encode());
        let mut retry = FIRST_RETRY;
        loop {
            match self.run.ship(self.epoch, &source, self.sequence, &bytes).await {
                Ok(ShipOutcome::Appended | ShipOutcome::Duplicate) => break,
                Ok(ShipOutcome::RunEnded) => return Err(StaleRun),
                // The store has lost earlier ones, of which only the last counts.
                Ok(ShipOutcome::Gap(expected)) => self.sequence = expected,
                Err(error) => {
                    debug!(%error, "could not be announced yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        (self.sequence, self.last_report) = (self.sequence + 1, Some(said));
        self.send_budget.raise_limits(&most);
        if hops {
            self.send_budget.allow_redirects();
        }
        Ok(())
    }
}

impl ThreadRate {
    fn with_budget(first: u64) -> ThreadRate {
        ThreadRate { started_requests: 0, recent_rates: VecDeque::new(), budget: first }
    }

    /// It has begun so many requests, `passed` seconds after the last look. `going`: the load began a while ago.
    fn update(&mut self, begun: u64, passed: f64, alone: f64, going: bool) {
        if begun == 0 && !going {
            // A load that has not begun says nothing of its pace.
            return;
        }
        self.recent_rates.push_back(begun.saturating_sub(self.started_requests) as f64 / passed);
        if self.recent_rates.len() > RATE_SAMPLES {
            self.recent_rates.pop_front();
        }
        self.started_requests = begun;
        let pace = self.recent_rates.iter().copied().fold(0.0, f64::max);
        self.budget = MIN_BUDGET + (pace * alone).ceil() as u64;
    }

    /// It goes faster than was thought.
    fn raise_budget(&mut self) {
        self.budget = self.budget.saturating_mul(BUDGET_FACTOR).max(MIN_RAISED_BUDGET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemoryRunStore, START_POSITION};

    /// A worker that could announce nothing more would hold its load, and make none of it.
    #[tokio::test]
    async fn announcements_go_on_where_the_store_has_lost_some() {
        let (run, leash) = (MemoryRunStore::new(), SendBudget::new(1));
        run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().expect("alone");
        let first = (vec![10], None);
        let mut announcer =
            SendBudgetReporter::new(run.clone(), (1, 7), leash, first, Duration::from_secs(1), LoadStart::default());
        announcer.sequence = 5;
        assert!(announcer.report_first_budget().await.is_ok());
        assert_eq!((run.deltas(1, START_POSITION, 9).await.unwrap().len(), announcer.sequence), (1, 1));
    }

    /// What a worker may send alone is what it sends in the time that it may go on alone.
    #[test]
    fn the_allowance_is_what_the_pace_of_the_last_seconds_makes_of_the_time_alone() {
        let mut pace = ThreadRate::with_budget(1000);
        pace.update(0, 1.0, 4.5, false);
        assert_eq!(pace.budget, 1000, "the load has not begun");
        let mut idle = ThreadRate::with_budget(1000);
        idle.update(0, 1.0, 4.5, true);
        assert_eq!(idle.budget, MIN_BUDGET, "the load goes on, and nobody is here to make it");
        for begun in [100, 200, 300] {
            pace.update(begun, 1.0, 4.5, true);
        }
        assert_eq!(pace.budget, MIN_BUDGET + 450);
        pace.raise_budget();
        assert_eq!(pace.budget, 4 * (MIN_BUDGET + 450), "until the next look");
        pace.update(500, 2.0, 4.5, true);
        assert_eq!(pace.budget, MIN_BUDGET + 450, "a look that came late counts its seconds");
        for _ in 0..RATE_SAMPLES {
            pace.update(500, 1.0, 4.5, true);
        }
        assert_eq!(pace.budget, MIN_BUDGET, "a load that has paused");
        pace.raise_budget();
        assert_eq!(pace.budget, MIN_RAISED_BUDGET);
    }
}

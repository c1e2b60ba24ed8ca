//! Says before it is sent how much will be: what a worker may send alone is what it sends in the time that it may go on alone, by its pace
//! of the last seconds. Who goes faster than that asks for more before it has used what there is. Only when the store has an announcement
//! may more be sent; so if this process dies, what it may have sent is known.

use squall_coord::{RunStore, ShipOutcome};
use squall_engine::SendBudget;
use squall_model::SendBudgetReport;
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::debug;

/// Time between two looks at the pace.
const LOOK: Duration = Duration::from_secs(1);
/// Looks whose best pace counts.
const LOOKS: usize = 3;
/// What a thread may send that has sent nothing for a while.
const LEAST: u64 = 16;
/// What it may send at least once it has asked for more, and how many times as much as before.
const FIRST_STEP: u64 = 256;
const STEP: u64 = 4;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Announces for one life of a worker in one run.
pub(crate) struct Announcer<R> {
    run: R,
    epoch: u64,
    instance: u64,
    leash: SendBudget,
    /// Requests of an iteration at most, if that is known.
    each: Option<u64>,
    /// How long this worker may go on alone after its last announcement.
    alone: Duration,
    turn: u64,
    /// What was last said.
    said: Option<SendBudgetReport>,
    threads: Vec<Pace>,
    looked: Instant,
    /// When the load begins, once that is known.
    starts: Starts,
}

/// When the load of a job begins; set once.
pub(crate) type Starts = Arc<OnceLock<std::time::Instant>>;

/// The run wants nothing more of this worker.
pub(crate) struct Stale;

/// How fast one thread is.
struct Pace {
    begun: u64,
    /// Requests per second at the last looks.
    recent: VecDeque<f64>,
    /// That it may send from an announcement on.
    allowance: u64,
}

impl<R: RunStore> Announcer<R> {
    /// `first`: what each thread of `leash` may send before anybody knows how fast it is; `ttl`: how long this worker lives without a beat.
    pub(crate) fn new(
        run: R,
        (epoch, instance): (u64, u64),
        leash: SendBudget,
        (first, each): (Vec<u64>, Option<u64>),
        ttl: Duration,
        starts: Starts,
    ) -> Announcer<R> {
        let alone = ttl + LOOK;
        let threads = first.into_iter().map(Pace::unknown).collect();
        Announcer {
            run,
            epoch,
            instance,
            leash,
            each,
            alone,
            turn: 0,
            said: None,
            threads,
            looked: Instant::now(),
            starts,
        }
    }

    /// Says what is to be known before the first request.
    pub(crate) async fn begin(&mut self) -> Result<(), Stale> {
        self.announce().await
    }

    /// Goes on until nobody wants to know any more.
    pub(crate) async fn serve(mut self) {
        let mut looks = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => self.look(),
                () = self.leash.refill_requested() => self.step(),
            }
            if self.announce().await.is_err() {
                return;
            }
        }
    }

    /// Learns how fast the threads are.
    fn look(&mut self) {
        let (now, alone) = (Instant::now(), self.alone.as_secs_f64());
        let passed = now.duration_since(self.looked).as_secs_f64().max(1e-3);
        self.looked = now;
        let going = self.starts.get().is_some_and(|at| at.elapsed() > LOOK * LOOKS as u32);
        let all = self.threads.iter_mut().zip(self.leash.requests_begun());
        all.for_each(|(thread, begun)| thread.learn(begun, passed, alone, going));
    }

    /// Lets those who have used half of what they may send go on faster.
    fn step(&mut self) {
        let low = self.threads.iter_mut().enumerate().filter(|(at, _)| self.leash.is_half_used(*at));
        low.for_each(|(_, thread)| thread.step());
    }

    /// Says what may be sent from now on, as often as it takes, then lets it be sent.
    async fn announce(&mut self) -> Result<(), Stale> {
        let allowances: Vec<u64> = self.threads.iter().map(|thread| thread.allowance).collect();
        let hops = self.leash.redirect_pending();
        let most = self.leash.lower_limits(&allowances);
        let said = SendBudgetReport {
            instance: self.instance,
            most: most.iter().copied().fold(0, u64::saturating_add),
            each: self.each.filter(|_| !hops),
        };
        if self.said.is_some_and(|last| last == said) {
            return Ok(());
        }
        let (source, bytes) = (format!("{:016x}.announced", self.instance), said.to_bytes());
        let mut retry = FIRST_RETRY;
        loop {
            match self.run.ship(self.epoch, &source, self.turn, &bytes).await {
                Ok(ShipOutcome::Appended | ShipOutcome::Duplicate) => break,
                Ok(ShipOutcome::RunEnded) => return Err(Stale),
                // The store has lost earlier ones, of which only the last counts.
                Ok(ShipOutcome::Gap(expected)) => self.turn = expected,
                Err(error) => {
                    debug!(%error, "could not be announced yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        (self.turn, self.said) = (self.turn + 1, Some(said));
        self.leash.raise_limits(&most);
        if hops {
            self.leash.allow_redirects();
        }
        Ok(())
    }
}

impl Pace {
    fn unknown(first: u64) -> Pace {
        Pace { begun: 0, recent: VecDeque::new(), allowance: first }
    }

    /// It has begun so many requests, `passed` seconds after the last look. `going`: the load began a while ago.
    fn learn(&mut self, begun: u64, passed: f64, alone: f64, going: bool) {
        if begun == 0 && !going {
            // A load that has not begun says nothing of its pace.
            return;
        }
        self.recent.push_back(begun.saturating_sub(self.begun) as f64 / passed);
        if self.recent.len() > LOOKS {
            self.recent.pop_front();
        }
        self.begun = begun;
        let pace = self.recent.iter().copied().fold(0.0, f64::max);
        self.allowance = LEAST + (pace * alone).ceil() as u64;
    }

    /// It goes faster than was thought.
    fn step(&mut self) {
        self.allowance = self.allowance.saturating_mul(STEP).max(FIRST_STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{START_POSITION, MemoryRunStore};

    /// A worker that could announce nothing more would hold its load, and make none of it.
    #[tokio::test]
    async fn announcements_go_on_where_the_store_has_lost_some() {
        let (run, leash) = (MemoryRunStore::new(), SendBudget::new(1));
        run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().expect("alone");
        let first = (vec![10], None);
        let mut announcer =
            Announcer::new(run.clone(), (1, 7), leash, first, Duration::from_secs(1), Starts::default());
        announcer.turn = 5;
        assert!(announcer.begin().await.is_ok());
        assert_eq!((run.deltas(1, START_POSITION, 9).await.unwrap().len(), announcer.turn), (1, 1));
    }

    /// What a worker may send alone is what it sends in the time that it may go on alone.
    #[test]
    fn the_allowance_is_what_the_pace_of_the_last_seconds_makes_of_the_time_alone() {
        let mut pace = Pace::unknown(1000);
        pace.learn(0, 1.0, 4.5, false);
        assert_eq!(pace.allowance, 1000, "the load has not begun");
        let mut idle = Pace::unknown(1000);
        idle.learn(0, 1.0, 4.5, true);
        assert_eq!(idle.allowance, LEAST, "the load goes on, and nobody is here to make it");
        for begun in [100, 200, 300] {
            pace.learn(begun, 1.0, 4.5, true);
        }
        assert_eq!(pace.allowance, LEAST + 450);
        pace.step();
        assert_eq!(pace.allowance, 4 * (LEAST + 450), "until the next look");
        pace.learn(500, 2.0, 4.5, true);
        assert_eq!(pace.allowance, LEAST + 450, "a look that came late counts its seconds");
        for _ in 0..LOOKS {
            pace.learn(500, 1.0, 4.5, true);
        }
        assert_eq!(pace.allowance, LEAST, "a load that has paused");
        pace.step();
        assert_eq!(pace.allowance, FIRST_STEP);
    }
}

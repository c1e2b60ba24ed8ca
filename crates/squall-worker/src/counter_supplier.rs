//! Supplies this worker's users with numbers that the whole fleet uses once each: iterations of a
//! limited run, rows of data. It draws blocks sized to the users' pace, returns numbers that no
//! user takes, and reports how many were used, because users of other workers may wait for the last
//! numbers. It decides nothing about the limit: the store does. `WorkerRun` starts it.

use squall_coord::{BlockGrant, BlockRequest, RunStore};
use squall_engine::{QuotaStatus, SharedCounter};
use std::{
    ops::Range,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Numbers that no user takes for this long go back. If users wait and the store has none, the
/// supplier asks again after this time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between polls with no numbers at hand and nothing to report. A waiting user ends it early.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// At most one part in this many of the remaining numbers is drawn ahead, so that no worker keeps
/// the last ones from others.
const DRAW_AHEAD_DIVISOR: u64 = 8;
/// A block that lasted less than this is followed by a larger one, a block that lasted more than
/// `SLOW_BLOCK` by a smaller one.
const FAST_BLOCK: Duration = Duration::from_millis(50);
const SLOW_BLOCK: Duration = Duration::from_millis(300);
const MAX_BLOCK: u64 = 100_000;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Supplies all shared counters of one worker's run. Dropping it ends the tasks.
pub(crate) struct CounterSupplier {
    closing: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl CounterSupplier {
    /// Starts one task per counter. A task draws nothing before a user asks.
    pub(crate) fn start<R: RunStore>(
        run_store: &R,
        epoch: u64,
        source: &str,
        counters: Vec<SharedCounter>,
    ) -> CounterSupplier {
        let closing = CancellationToken::new();
        let supply_task = |counter| CounterSupplyTask {
            run_store: run_store.clone(),
            epoch,
            source: source.to_owned(),
            counter,
            sequence: 0,
            reported_used: 0,
            last_taken: 0,
            block_size: 1,
            remaining: u64::MAX,
            last_block_at: Instant::now(),
        };
        let tasks =
            counters.into_iter().map(|counter| tokio::spawn(supply_task(counter).run(closing.clone()))).collect();
        CounterSupplier { closing, tasks }
    }

    /// Returns the unused numbers. Called when no user will take another one.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Whether the store has every unused number back.
    pub(crate) fn is_done(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for CounterSupplier {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Why a task polls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollTrigger {
    UserWaits,
    Timer,
}

struct CounterSupplyTask<R> {
    run_store: R,
    epoch: u64,
    source: String,
    counter: SharedCounter,
    sequence: u64,
    /// The number of used ones that the store knows.
    reported_used: u64,
    /// The number of taken ones at the last poll.
    last_taken: u64,
    /// Size of the next block.
    block_size: u64,
    /// Numbers that no worker had at the last draw.
    remaining: u64,
    /// When the last block arrived.
    last_block_at: Instant,
}

/// Another run has started.
struct StaleEpoch;

impl<R: RunStore> CounterSupplyTask<R> {
    async fn run(mut self, closing: CancellationToken) {
        let mut wait = IDLE_INTERVAL;
        loop {
            let trigger = tokio::select! {
                () = self.counter.refill.refill_requested() => PollTrigger::UserWaits,
                () = tokio::time::sleep(wait) => PollTrigger::Timer,
                () = closing.cancelled() => break,
            };
            match self.poll(trigger).await {
                Ok(next) => wait = next,
                Err(StaleEpoch) => return self.counter.refill.close(),
            }
        }
        let returned = self.counter.refill.reclaim();
        // Fails only if another run has started, and then the numbers of this one do not matter.
        let _ = self.draw(self.counter.refill.status(), returned, 0).await;
    }

    /// Draws, returns or reports numbers as needed. Returns the time until the next poll.
    async fn poll(&mut self, trigger: PollTrigger) -> Result<Duration, StaleEpoch> {
        let mut need = self.counter.refill.status();
        let is_timer = trigger == PollTrigger::Timer;
        let idle = is_timer && need.waiting == 0 && need.taken == self.last_taken;
        self.last_taken = need.taken;
        let returned = if idle { self.counter.refill.reclaim() } else { Vec::new() };
        need.available -= returned.iter().map(|block| block.end - block.start).sum::<u64>().min(need.available);
        let max_count = self.next_draw_size(need, trigger);
        // A user of another worker may wait for the last numbers. Every draw also reports how many
        // were used.
        let must_report = is_timer && need.available == 0 && need.taken != self.reported_used;
        if max_count == 0 && returned.is_empty() && !must_report {
            return Ok(if need.available > 0 || need.taken != self.reported_used {
                POLL_INTERVAL
            } else {
                IDLE_INTERVAL
            });
        }
        let BlockGrant { block, remaining, held_by_others } = self.draw(need, returned, max_count).await?;
        self.remaining = remaining;
        if !block.is_empty() {
            self.last_block_at = Instant::now();
            self.counter.refill.set_refill_threshold(self.block_size / 2);
            self.counter.refill.add_block(block);
        } else if max_count > 0 && remaining == 0 && held_by_others == 0 && need.available == 0 {
            self.counter.refill.close();
        }
        Ok(POLL_INTERVAL)
    }

    /// How many numbers to draw: one for each waiting user, or a block if users take them fast.
    fn next_draw_size(&mut self, need: QuotaStatus, trigger: PollTrigger) -> u64 {
        if need.waiting == 0
            && (trigger == PollTrigger::Timer || self.block_size == 1 || need.available > self.block_size / 2)
        {
            return 0;
        }
        match self.last_block_at.elapsed() {
            lasted if lasted < FAST_BLOCK => self.block_size = (self.block_size * 2).min(MAX_BLOCK),
            lasted if lasted > SLOW_BLOCK => self.block_size = (self.block_size / 2).max(1),
            _ => {}
        }
        self.block_size.min(self.remaining / DRAW_AHEAD_DIVISOR).max(need.waiting)
    }

    /// Draws once, and tries until the store responds.
    async fn draw(
        &mut self,
        need: QuotaStatus,
        returned: Vec<Range<u64>>,
        max_count: u64,
    ) -> Result<BlockGrant, StaleEpoch> {
        self.sequence += 1;
        let draw = BlockRequest {
            sequence: self.sequence,
            used: need.taken,
            returned_blocks: returned,
            max_count,
            limit: self.counter.limit,
        };
        let mut retry = FIRST_RETRY;
        loop {
            match self.run_store.acquire_block(self.epoch, &self.counter.name, &self.source, &draw).await {
                Ok(drawn) => {
                    self.reported_used = need.taken;
                    return drawn.ok_or(StaleEpoch);
                }
                Err(error) => {
                    debug!(counter = self.counter.name, %error, "the worker could not draw numbers; it tries again");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
    }
}

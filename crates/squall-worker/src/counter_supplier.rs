//! Supplies the users here with numbers that the whole fleet uses once each: iterations of a run that has so many, rows of data. Draws as
//! much as is used in a moment, gives back what nobody took, and says what was used, so that whoever waits for the last of them elsewhere knows.

use squall_coord::{BlockGrant, BlockRequest, RunStore};
use squall_engine::{QuotaStatus, SharedCounter};
use std::{
    ops::Range,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// What nobody took for this long goes back; where users wait and there is nothing, it is asked again after it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// With nothing in hand and nothing to say there is nothing to look at: whoever wants something asks.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// At most this part of what is left is drawn ahead, so that nobody keeps the last of it from others.
const DRAW_AHEAD_DIVISOR: u64 = 8;
/// A block that was used up faster than this is followed by a larger one, one that lasted longer than `LONG` by a smaller one.
const FAST_BLOCK: Duration = Duration::from_millis(50);
const SLOW_BLOCK: Duration = Duration::from_millis(300);
const MAX_BLOCK: u64 = 100_000;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// The supplies of one run here; dropping it ends them.
pub(crate) struct CounterSupplier {
    closing: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl CounterSupplier {
    /// Begins to supply what is asked for; nothing is drawn before.
    pub(crate) fn start<R: RunStore>(
        run: &R,
        epoch: u64,
        source: &str,
        rations: Vec<SharedCounter>,
    ) -> CounterSupplier {
        let closing = CancellationToken::new();
        let supplier = |ration| CounterSupplyTask {
            run: run.clone(),
            epoch,
            source: source.to_owned(),
            counter: ration,
            sequence: 0,
            reported_used: 0,
            last_taken: 0,
            block_size: 1,
            remaining: u64::MAX,
            last_block_at: Instant::now(),
        };
        let tasks = rations.into_iter().map(|ration| tokio::spawn(supplier(ration).run(closing.clone()))).collect();
        CounterSupplier { closing, tasks }
    }

    /// Nobody will take any more: the rest goes back.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Whether everything has gone back.
    pub(crate) fn is_done(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for CounterSupplier {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct CounterSupplyTask<R> {
    run: R,
    epoch: u64,
    source: String,
    counter: SharedCounter,
    sequence: u64,
    /// What the store was last told to be used.
    reported_used: u64,
    /// What was taken when it was last looked at.
    last_taken: u64,
    /// Of the next block.
    block_size: u64,
    /// That nobody had, when it was last asked.
    remaining: u64,
    /// When the last block came.
    last_block_at: Instant,
}

/// Another run has begun.
struct StaleEpoch;

impl<R: RunStore> CounterSupplyTask<R> {
    async fn run(mut self, closing: CancellationToken) {
        let mut nap = IDLE_INTERVAL;
        loop {
            let rested = tokio::select! {
                () = self.counter.refill.refill_requested() => false,
                () = tokio::time::sleep(nap) => true,
                () = closing.cancelled() => break,
            };
            match self.poll(rested).await {
                Ok(next) => nap = next,
                Err(StaleEpoch) => return self.counter.refill.close(),
            }
        }
        let back = self.counter.refill.reclaim();
        // Last words: only another run makes them superfluous.
        let _ = self.draw(self.counter.refill.status(), back, 0).await;
    }

    /// Draws, gives back or says what there is to say; answers when to look again of itself.
    async fn poll(&mut self, rested: bool) -> Result<Duration, StaleEpoch> {
        let mut need = self.counter.refill.status();
        let idle = rested && need.waiting == 0 && need.taken == self.last_taken;
        self.last_taken = need.taken;
        let back = if idle { self.counter.refill.reclaim() } else { Vec::new() };
        need.available -= back.iter().map(|block| block.end - block.start).sum::<u64>().min(need.available);
        let most = self.next_draw_size(need, rested);
        // Somebody may wait for the last of it elsewhere; a draw says it by the way.
        let to_say = rested && need.available == 0 && need.taken != self.reported_used;
        if most == 0 && back.is_empty() && !to_say {
            return Ok(if need.available > 0 || need.taken != self.reported_used {
                POLL_INTERVAL
            } else {
                IDLE_INTERVAL
            });
        }
        let BlockGrant { block, remaining: left, held_by_others: elsewhere } = self.draw(need, back, most).await?;
        self.remaining = left;
        if !block.is_empty() {
            self.last_block_at = Instant::now();
            self.counter.refill.set_refill_threshold(self.block_size / 2);
            self.counter.refill.add_block(block);
        } else if most > 0 && left == 0 && elsewhere == 0 && need.available == 0 {
            self.counter.refill.close();
        }
        Ok(POLL_INTERVAL)
    }

    /// How many to draw: as many as wait, or, where they go fast, as many as are used in a moment.
    fn next_draw_size(&mut self, need: QuotaStatus, rested: bool) -> u64 {
        if need.waiting == 0 && (rested || self.block_size == 1 || need.available > self.block_size / 2) {
            return 0;
        }
        match self.last_block_at.elapsed() {
            lasted if lasted < FAST_BLOCK => self.block_size = (self.block_size * 2).min(MAX_BLOCK),
            lasted if lasted > SLOW_BLOCK => self.block_size = (self.block_size / 2).max(1),
            _ => {}
        }
        self.block_size.min(self.remaining / DRAW_AHEAD_DIVISOR).max(need.waiting)
    }

    /// One draw, as often as it takes.
    async fn draw(&mut self, need: QuotaStatus, back: Vec<Range<u64>>, most: u64) -> Result<BlockGrant, StaleEpoch> {
        self.sequence += 1;
        let draw = BlockRequest {
            sequence: self.sequence,
            used: need.taken,
            returned_blocks: back,
            max_count: most,
            limit: self.counter.limit,
        };
        let mut retry = FIRST_RETRY;
        loop {
            match self.run.acquire_block(self.epoch, &self.counter.name, &self.source, &draw).await {
                Ok(drawn) => {
                    self.reported_used = need.taken;
                    return drawn.ok_or(StaleEpoch);
                }
                Err(error) => {
                    debug!(of = self.counter.name, %error, "could not be drawn yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
    }
}

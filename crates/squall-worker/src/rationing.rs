//! Supplies the users here with numbers that the whole fleet uses once each: iterations of a run that has so many, rows of data. Draws as
//! much as is used in a moment, gives back what nobody took, and says what was used, so that whoever waits for the last of them elsewhere knows.

use squall_coord::{BlockRequest, BlockGrant, RunStore};
use squall_engine::{QuotaStatus, SharedCounter};
use std::{
    ops::Range,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// What nobody took for this long goes back; where users wait and there is nothing, it is asked again after it.
const LOOK: Duration = Duration::from_millis(100);
/// With nothing in hand and nothing to say there is nothing to look at: whoever wants something asks.
const REST: Duration = Duration::from_secs(60);
/// At most this part of what is left is drawn ahead, so that nobody keeps the last of it from others.
const PART: u64 = 8;
/// A block that was used up faster than this is followed by a larger one, one that lasted longer than `LONG` by a smaller one.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(300);
const LARGEST: u64 = 100_000;

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// The supplies of one run here; dropping it ends them.
pub(crate) struct Rationing {
    closing: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Rationing {
    /// Begins to supply what is asked for; nothing is drawn before.
    pub(crate) fn start<R: RunStore>(run: &R, epoch: u64, source: &str, rations: Vec<SharedCounter>) -> Rationing {
        let closing = CancellationToken::new();
        let supplier = |ration| Supplier {
            run: run.clone(),
            epoch,
            source: source.to_owned(),
            ration,
            turn: 0,
            stated: 0,
            seen: 0,
            size: 1,
            left: u64::MAX,
            given: Instant::now(),
        };
        let tasks = rations.into_iter().map(|ration| tokio::spawn(supplier(ration).serve(closing.clone()))).collect();
        Rationing { closing, tasks }
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

impl Drop for Rationing {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Supplier<R> {
    run: R,
    epoch: u64,
    source: String,
    ration: SharedCounter,
    turn: u64,
    /// What the store was last told to be used.
    stated: u64,
    /// What was taken when it was last looked at.
    seen: u64,
    /// Of the next block.
    size: u64,
    /// That nobody had, when it was last asked.
    left: u64,
    /// When the last block came.
    given: Instant,
}

/// Another run has begun.
struct Stale;

impl<R: RunStore> Supplier<R> {
    async fn serve(mut self, closing: CancellationToken) {
        let mut nap = REST;
        loop {
            let rested = tokio::select! {
                () = self.ration.refill.refill_requested() => false,
                () = tokio::time::sleep(nap) => true,
                () = closing.cancelled() => break,
            };
            match self.look(rested).await {
                Ok(next) => nap = next,
                Err(Stale) => return self.ration.refill.close(),
            }
        }
        let back = self.ration.refill.reclaim();
        // Last words: only another run makes them superfluous.
        let _ = self.draw(self.ration.refill.status(), back, 0).await;
    }

    /// Draws, gives back or says what there is to say; answers when to look again of itself.
    async fn look(&mut self, rested: bool) -> Result<Duration, Stale> {
        let mut need = self.ration.refill.status();
        let idle = rested && need.waiting == 0 && need.taken == self.seen;
        self.seen = need.taken;
        let back = if idle { self.ration.refill.reclaim() } else { Vec::new() };
        need.available -= back.iter().map(|block| block.end - block.start).sum::<u64>().min(need.available);
        let most = self.wanted(need, rested);
        // Somebody may wait for the last of it elsewhere; a draw says it by the way.
        let to_say = rested && need.available == 0 && need.taken != self.stated;
        if most == 0 && back.is_empty() && !to_say {
            return Ok(if need.available > 0 || need.taken != self.stated { LOOK } else { REST });
        }
        let BlockGrant { block, remaining: left, held_by_others: elsewhere } = self.draw(need, back, most).await?;
        self.left = left;
        if !block.is_empty() {
            self.given = Instant::now();
            self.ration.refill.set_refill_threshold(self.size / 2);
            self.ration.refill.add_block(block);
        } else if most > 0 && left == 0 && elsewhere == 0 && need.available == 0 {
            self.ration.refill.close();
        }
        Ok(LOOK)
    }

    /// How many to draw: as many as wait, or, where they go fast, as many as are used in a moment.
    fn wanted(&mut self, need: QuotaStatus, rested: bool) -> u64 {
        if need.waiting == 0 && (rested || self.size == 1 || need.available > self.size / 2) {
            return 0;
        }
        match self.given.elapsed() {
            lasted if lasted < SHORT => self.size = (self.size * 2).min(LARGEST),
            lasted if lasted > LONG => self.size = (self.size / 2).max(1),
            _ => {}
        }
        self.size.min(self.left / PART).max(need.waiting)
    }

    /// One draw, as often as it takes.
    async fn draw(&mut self, need: QuotaStatus, back: Vec<Range<u64>>, most: u64) -> Result<BlockGrant, Stale> {
        self.turn += 1;
        let draw = BlockRequest { sequence: self.turn, used: need.taken, returned_blocks: back, max_count: most, limit: self.ration.limit };
        let mut retry = FIRST_RETRY;
        loop {
            match self.run.acquire_block(self.epoch, &self.ration.name, &self.source, &draw).await {
                Ok(drawn) => {
                    self.stated = need.taken;
                    return drawn.ok_or(Stale);
                }
                Err(error) => {
                    debug!(of = self.ration.name, %error, "could not be drawn yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
    }
}

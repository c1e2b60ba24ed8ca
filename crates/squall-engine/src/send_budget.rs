//! How far a process may go on alone. A member of a fleet makes load only while its place is certain, and never more requests than
//! it has announced; then, if it is killed or cut off, nobody else makes the same load, and what it may have sent is known to the
//! request. Who has sent all that was announced waits until more is. A local run has no leash. It also says whether the run is paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// Who waits for more looks this often whether the process still has its place.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The limits of one process, shared by its threads. Cloning shares it. Holds nothing back until it is first set.
#[derive(Debug, Clone)]
pub struct SendBudget {
    shared: Arc<SendBudgetState>,
}

#[derive(Debug)]
struct SendBudgetState {
    base: Instant,
    /// Nanoseconds after `base`.
    valid_until: AtomicU64,
    /// The run is paused.
    paused: AtomicBool,
    threads: Box<[ThreadBudget]>,
    /// Somebody was redirected; that requests lead to others is announced before the first of them is sent.
    redirect_seen: AtomicBool,
    redirects_allowed: AtomicBool,
    /// More should be announced.
    refill_requested: Notify,
    /// Changes when more was.
    limits_raised: watch::Sender<()>,
    final_limits_set: watch::Sender<usize>,
}

/// The limits of one thread; on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadBudget {
    /// Requests begun so far, but for those that never left. Written by the thread itself alone.
    begun: AtomicU64,
    /// Requests that it may have begun in all.
    limit: AtomicU64,
    /// When it has begun so many, more should be announced.
    refill_at: AtomicU64,
    /// As `most`, for good: its load is over.
    final_limit: AtomicU64,
}

impl SendBudget {
    /// For `threads` engine threads; at first without limits.
    pub fn new(threads: usize) -> SendBudget {
        let endless = || AtomicU64::new(u64::MAX);
        let thread = || ThreadBudget {
            begun: AtomicU64::new(0),
            limit: endless(),
            refill_at: endless(),
            final_limit: endless(),
        };
        let shared = SendBudgetState {
            base: Instant::now(),
            valid_until: endless(),
            paused: AtomicBool::new(false),
            threads: (0..threads.max(1)).map(|_| thread()).collect(),
            redirect_seen: AtomicBool::new(false),
            redirects_allowed: AtomicBool::new(false),
            refill_requested: Notify::new(),
            limits_raised: watch::Sender::default(),
            final_limits_set: watch::Sender::default(),
        };
        SendBudget { shared: Arc::new(shared) }
    }

    /// Lets the process go on until `until`, which may also be sooner than before.
    pub fn set_valid_until(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.shared.base).as_nanos();
        self.shared.valid_until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the run is paused: what waits for a user waits on.
    pub fn set_paused(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
    }

    /// Whether a start that waits for a user may begin now.
    pub(crate) fn may_start(&self, now: Instant) -> bool {
        !self.shared.paused.load(Ordering::Relaxed) && self.is_valid_at(now)
    }

    /// Requests that each thread has begun.
    pub fn requests_begun(&self) -> Vec<u64> {
        self.shared.threads.iter().map(|thread| thread.begun.load(Ordering::SeqCst)).collect()
    }

    /// Whether `thread` has used half of what it may send, and more.
    pub fn is_half_used(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.begun.load(Ordering::Relaxed) >= thread.refill_at.load(Ordering::Relaxed)
    }

    /// What each thread may have begun in all, if it may begin `more` from now on. Where that is less than before it holds at once, so
    /// that it is true when it is said; where it is more, only when it was said: see [`SendBudget::raise_limits`].
    pub fn lower_limits(&self, more: &[u64]) -> Vec<u64> {
        let limit = |(thread, more): (&ThreadBudget, &u64)| {
            let most = thread.begun.load(Ordering::SeqCst).saturating_add(*more);
            if most >= thread.limit.load(Ordering::SeqCst) {
                return most;
            }
            thread.limit.store(most, Ordering::SeqCst);
            // It may have begun more meanwhile; either we see that here or it has seen the limit.
            most.max(thread.begun.load(Ordering::SeqCst))
        };
        self.shared.threads.iter().zip(more).map(limit).collect()
    }

    /// Lets each thread begin so many requests in all; everybody may know it by now.
    pub fn raise_limits(&self, most: &[u64]) {
        for (thread, most) in self.shared.threads.iter().zip(most) {
            let begun = thread.begun.load(Ordering::SeqCst);
            thread.limit.store(*most, Ordering::SeqCst);
            thread.refill_at.store(begun + most.saturating_sub(begun) / 2, Ordering::SeqCst);
        }
        self.shared.limits_raised.send_replace(());
    }

    /// Waits until more should be announced.
    pub async fn refill_requested(&self) {
        self.shared.refill_requested.notified().await;
    }

    /// Whether somebody was redirected and waits until that is announced.
    pub fn redirect_pending(&self) -> bool {
        self.shared.redirect_seen.load(Ordering::SeqCst)
    }

    /// Requests may lead to others from now on; everybody may know it by now.
    pub fn allow_redirects(&self) {
        self.shared.redirects_allowed.store(true, Ordering::SeqCst);
        self.shared.limits_raised.send_replace(());
    }

    /// `thread` itself says that its load is over and that it will have sent `most` requests in all.
    pub(crate) fn set_final_limit(&self, thread: usize, most: u64) {
        self.shared.threads[thread].final_limit.store(most, Ordering::Relaxed);
        self.shared.final_limits_set.send_modify(|seals| *seals += 1);
    }

    /// Waits until every thread has said so; gives the requests that all together will have sent at most.
    pub async fn final_limit_total(&self) -> u64 {
        let mut seals = self.shared.final_limits_set.subscribe();
        // Cannot fail: the sender is here.
        let _ = seals.wait_for(|seals| *seals >= self.shared.threads.len()).await;
        self.shared.threads.iter().map(|thread| thread.final_limit.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    /// Whether load may be made at `now`.
    #[inline]
    pub(crate) fn is_valid_at(&self, now: Instant) -> bool {
        let until = self.shared.valid_until.load(Ordering::Relaxed);
        until == u64::MAX || now.saturating_duration_since(self.shared.base).as_nanos() < u128::from(until)
    }

    /// `thread` itself begins a request; `false` if it may not.
    #[inline]
    pub(crate) fn try_acquire(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        let before = thread.begun.load(Ordering::Relaxed);
        // Counted first: who lowers the limit meanwhile sees it.
        thread.begun.store(before + 1, Ordering::SeqCst);
        if before >= thread.limit.load(Ordering::SeqCst) || before >= thread.final_limit.load(Ordering::Relaxed) {
            thread.begun.store(before, Ordering::SeqCst);
            return false;
        }
        if before + 1 == thread.refill_at.load(Ordering::Relaxed) {
            self.shared.refill_requested.notify_one();
        }
        true
    }

    /// A request that `thread` had begun has never left.
    pub(crate) fn release(&self, thread: usize) {
        self.shared.threads[thread].begun.fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests that `thread` has begun.
    pub(crate) fn requests_begun_by(&self, thread: usize) -> u64 {
        self.shared.threads[thread].begun.load(Ordering::Relaxed)
    }

    /// Whether `thread` has to wait before it can begin a request.
    #[inline]
    pub(crate) fn is_exhausted(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.begun.load(Ordering::Relaxed) >= thread.limit.load(Ordering::Relaxed)
    }

    /// Waits until `thread` may begin a request, or must not begin any.
    pub(crate) async fn wait_available(&self, thread: usize) {
        let sealed =
            || self.requests_begun_by(thread) >= self.shared.threads[thread].final_limit.load(Ordering::Relaxed);
        self.wait(|| !self.is_exhausted(thread) || sealed()).await;
    }

    /// Whether requests after a redirect may be sent.
    pub fn redirects_allowed(&self) -> bool {
        self.shared.redirects_allowed.load(Ordering::Relaxed)
    }

    /// Waits until a request may lead to another one, or must not.
    pub(crate) async fn wait_redirects_allowed(&self) {
        self.shared.redirect_seen.store(true, Ordering::SeqCst);
        self.wait(|| self.redirects_allowed()).await;
    }

    async fn wait(&self, done: impl Fn() -> bool) {
        let mut raised = self.shared.limits_raised.subscribe();
        while !done() && self.is_valid_at(Instant::now()) {
            self.shared.refill_requested.notify_one();
            // Nothing is lost if it takes too long: it is looked at again.
            let _ = tokio::time::timeout(POLL_INTERVAL, raised.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(leash: &SendBudget, tries: u64) -> u64 {
        (0..tries).filter(|_| leash.try_acquire(0)).count() as u64
    }

    #[test]
    fn a_lower_limit_holds_before_it_is_said_and_a_higher_one_after() {
        let leash = SendBudget::new(1);
        assert_eq!(begun(&leash, 5), 5, "no limit was set");
        assert_eq!(leash.lower_limits(&[10]), [15]);
        assert_eq!(begun(&leash, 20), 10, "lower than none at all");
        assert_eq!(leash.lower_limits(&[3]), [18]);
        assert_eq!(begun(&leash, 20), 0);
        leash.raise_limits(&[18]);
        assert_eq!(begun(&leash, 20), 3);
        assert_eq!((leash.requests_begun(), leash.is_exhausted(0)), (vec![18], true));
    }

    #[tokio::test]
    async fn more_is_asked_for_when_half_is_used() {
        let leash = SendBudget::new(1);
        leash.raise_limits(&[10]);
        assert_eq!((begun(&leash, 4), leash.is_half_used(0)), (4, false));
        assert_eq!((begun(&leash, 1), leash.is_half_used(0)), (1, true));
        leash.refill_requested().await;
        // One that never left is none.
        leash.release(0);
        assert_eq!(begun(&leash, 20), 6);
    }

    #[tokio::test]
    async fn who_has_used_everything_waits_for_more_and_not_longer_than_the_place_is_certain() {
        let leash = SendBudget::new(1);
        leash.raise_limits(&[0]);
        let waits = tokio::spawn({
            let leash = leash.clone();
            async move { leash.wait_available(0).await }
        });
        leash.refill_requested().await;
        leash.raise_limits(&[1]);
        waits.await.expect("no panic");
        assert_eq!(begun(&leash, 2), 1);
        leash.set_valid_until(Instant::now());
        leash.wait_available(0).await;
        assert_eq!(begun(&leash, 1), 0);
    }

    #[tokio::test]
    async fn the_first_redirect_waits_until_it_is_announced() {
        let leash = SendBudget::new(1);
        let waits = tokio::spawn({
            let leash = leash.clone();
            async move { leash.wait_redirects_allowed().await }
        });
        leash.refill_requested().await;
        assert!(leash.redirect_pending() && !leash.redirects_allowed());
        leash.allow_redirects();
        waits.await.expect("no panic");
        assert!(leash.redirects_allowed());
    }

    /// A thread begins requests while another one lowers and raises its limit: what was said is never exceeded.
    #[test]
    fn nothing_is_begun_beyond_what_was_said() {
        let leash = SendBudget::new(1);
        leash.raise_limits(&[100]);
        let made = Arc::new(AtomicU64::new(0));
        let (maker, count) = (leash.clone(), made.clone());
        let making = std::thread::spawn(move || {
            while count.load(Ordering::SeqCst) < 200_000 {
                count.fetch_add(u64::from(maker.try_acquire(0)), Ordering::SeqCst);
            }
        });
        for round in 0u64.. {
            if making.is_finished() {
                break;
            }
            let said = leash.lower_limits(&[if round % 2 == 0 { 3 } else { 500 }]);
            if round % 2 == 0 {
                // Nobody has raised it since: this is all there can be.
                std::thread::yield_now();
                assert!(made.load(Ordering::SeqCst) <= said[0]);
            }
            leash.raise_limits(&said);
        }
        making.join().expect("no panic");
    }
}

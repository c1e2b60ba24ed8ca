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
const LOOK: Duration = Duration::from_millis(100);

/// The limits of one process, shared by its threads. Cloning shares it. Holds nothing back until it is first set.
#[derive(Debug, Clone)]
pub struct Leash {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    base: Instant,
    /// Nanoseconds after `base`.
    until: AtomicU64,
    /// The run is paused.
    paused: AtomicBool,
    threads: Box<[Thread]>,
    /// Somebody was redirected; that requests lead to others is announced before the first of them is sent.
    redirected: AtomicBool,
    hops: AtomicBool,
    /// More should be announced.
    asked: Notify,
    /// Changes when more was.
    raised: watch::Sender<()>,
    seals: watch::Sender<usize>,
}

/// The limits of one thread; on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Thread {
    /// Requests begun so far, but for those that never left. Written by the thread itself alone.
    begun: AtomicU64,
    /// Requests that it may have begun in all.
    most: AtomicU64,
    /// When it has begun so many, more should be announced.
    low: AtomicU64,
    /// As `most`, for good: its load is over.
    sealed: AtomicU64,
}

impl Leash {
    /// For `threads` engine threads; at first without limits.
    pub fn new(threads: usize) -> Leash {
        let endless = || AtomicU64::new(u64::MAX);
        let thread = || Thread { begun: AtomicU64::new(0), most: endless(), low: endless(), sealed: endless() };
        let shared = Shared {
            base: Instant::now(),
            until: endless(),
            paused: AtomicBool::new(false),
            threads: (0..threads.max(1)).map(|_| thread()).collect(),
            redirected: AtomicBool::new(false),
            hops: AtomicBool::new(false),
            asked: Notify::new(),
            raised: watch::Sender::default(),
            seals: watch::Sender::default(),
        };
        Leash { shared: Arc::new(shared) }
    }

    /// Lets the process go on until `until`, which may also be sooner than before.
    pub fn until(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.shared.base).as_nanos();
        self.shared.until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the run is paused: what waits for a user waits on.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
    }

    /// Whether a start that waits for a user may begin now.
    pub(crate) fn lets_begin(&self, now: Instant) -> bool {
        !self.shared.paused.load(Ordering::Relaxed) && self.holds_at(now)
    }

    /// Requests that each thread has begun.
    pub fn begun(&self) -> Vec<u64> {
        self.shared.threads.iter().map(|thread| thread.begun.load(Ordering::SeqCst)).collect()
    }

    /// Whether `thread` has used half of what it may send, and more.
    pub fn is_low(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.begun.load(Ordering::Relaxed) >= thread.low.load(Ordering::Relaxed)
    }

    /// What each thread may have begun in all, if it may begin `more` from now on. Where that is less than before it holds at once, so
    /// that it is true when it is said; where it is more, only when it was said: see [`Leash::raise`].
    pub fn lower(&self, more: &[u64]) -> Vec<u64> {
        let limit = |(thread, more): (&Thread, &u64)| {
            let most = thread.begun.load(Ordering::SeqCst).saturating_add(*more);
            if most >= thread.most.load(Ordering::SeqCst) {
                return most;
            }
            thread.most.store(most, Ordering::SeqCst);
            // It may have begun more meanwhile; either we see that here or it has seen the limit.
            most.max(thread.begun.load(Ordering::SeqCst))
        };
        self.shared.threads.iter().zip(more).map(limit).collect()
    }

    /// Lets each thread begin so many requests in all; everybody may know it by now.
    pub fn raise(&self, most: &[u64]) {
        for (thread, most) in self.shared.threads.iter().zip(most) {
            let begun = thread.begun.load(Ordering::SeqCst);
            thread.most.store(*most, Ordering::SeqCst);
            thread.low.store(begun + most.saturating_sub(begun) / 2, Ordering::SeqCst);
        }
        self.shared.raised.send_replace(());
    }

    /// Waits until more should be announced.
    pub async fn asked(&self) {
        self.shared.asked.notified().await;
    }

    /// Whether somebody was redirected and waits until that is announced.
    pub fn wants_hops(&self) -> bool {
        self.shared.redirected.load(Ordering::SeqCst)
    }

    /// Requests may lead to others from now on; everybody may know it by now.
    pub fn allow_hops(&self) {
        self.shared.hops.store(true, Ordering::SeqCst);
        self.shared.raised.send_replace(());
    }

    /// `thread` itself says that its load is over and that it will have sent `most` requests in all.
    pub(crate) fn seal(&self, thread: usize, most: u64) {
        self.shared.threads[thread].sealed.store(most, Ordering::Relaxed);
        self.shared.seals.send_modify(|seals| *seals += 1);
    }

    /// Waits until every thread has said so; gives the requests that all together will have sent at most.
    pub async fn sealed(&self) -> u64 {
        let mut seals = self.shared.seals.subscribe();
        // Cannot fail: the sender is here.
        let _ = seals.wait_for(|seals| *seals >= self.shared.threads.len()).await;
        self.shared.threads.iter().map(|thread| thread.sealed.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    /// Whether load may be made at `now`.
    #[inline]
    pub(crate) fn holds_at(&self, now: Instant) -> bool {
        let until = self.shared.until.load(Ordering::Relaxed);
        until == u64::MAX || now.saturating_duration_since(self.shared.base).as_nanos() < u128::from(until)
    }

    /// `thread` itself begins a request; `false` if it may not.
    #[inline]
    pub(crate) fn begin(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        let before = thread.begun.load(Ordering::Relaxed);
        // Counted first: who lowers the limit meanwhile sees it.
        thread.begun.store(before + 1, Ordering::SeqCst);
        if before >= thread.most.load(Ordering::SeqCst) || before >= thread.sealed.load(Ordering::Relaxed) {
            thread.begun.store(before, Ordering::SeqCst);
            return false;
        }
        if before + 1 == thread.low.load(Ordering::Relaxed) {
            self.shared.asked.notify_one();
        }
        true
    }

    /// A request that `thread` had begun has never left.
    pub(crate) fn take_back(&self, thread: usize) {
        self.shared.threads[thread].begun.fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests that `thread` has begun.
    pub(crate) fn begun_by(&self, thread: usize) -> u64 {
        self.shared.threads[thread].begun.load(Ordering::Relaxed)
    }

    /// Whether `thread` has to wait before it can begin a request.
    #[inline]
    pub(crate) fn is_used_up(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.begun.load(Ordering::Relaxed) >= thread.most.load(Ordering::Relaxed)
    }

    /// Waits until `thread` may begin a request, or must not begin any.
    pub(crate) async fn more(&self, thread: usize) {
        let sealed = || self.begun_by(thread) >= self.shared.threads[thread].sealed.load(Ordering::Relaxed);
        self.wait(|| !self.is_used_up(thread) || sealed()).await;
    }

    pub(crate) fn may_hop(&self) -> bool {
        self.shared.hops.load(Ordering::Relaxed)
    }

    /// Waits until a request may lead to another one, or must not.
    pub(crate) async fn hops(&self) {
        self.shared.redirected.store(true, Ordering::SeqCst);
        self.wait(|| self.may_hop()).await;
    }

    async fn wait(&self, done: impl Fn() -> bool) {
        let mut raised = self.shared.raised.subscribe();
        while !done() && self.holds_at(Instant::now()) {
            self.shared.asked.notify_one();
            // Nothing is lost if it takes too long: it is looked at again.
            let _ = tokio::time::timeout(LOOK, raised.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(leash: &Leash, tries: u64) -> u64 {
        (0..tries).filter(|_| leash.begin(0)).count() as u64
    }

    #[test]
    fn a_lower_limit_holds_before_it_is_said_and_a_higher_one_after() {
        let leash = Leash::new(1);
        assert_eq!(begun(&leash, 5), 5, "no limit was set");
        assert_eq!(leash.lower(&[10]), [15]);
        assert_eq!(begun(&leash, 20), 10, "lower than none at all");
        assert_eq!(leash.lower(&[3]), [18]);
        assert_eq!(begun(&leash, 20), 0);
        leash.raise(&[18]);
        assert_eq!(begun(&leash, 20), 3);
        assert_eq!((leash.begun(), leash.is_used_up(0)), (vec![18], true));
    }

    #[tokio::test]
    async fn more_is_asked_for_when_half_is_used() {
        let leash = Leash::new(1);
        leash.raise(&[10]);
        assert_eq!((begun(&leash, 4), leash.is_low(0)), (4, false));
        assert_eq!((begun(&leash, 1), leash.is_low(0)), (1, true));
        leash.asked().await;
        // One that never left is none.
        leash.take_back(0);
        assert_eq!(begun(&leash, 20), 6);
    }

    #[tokio::test]
    async fn who_has_used_everything_waits_for_more_and_not_longer_than_the_place_is_certain() {
        let leash = Leash::new(1);
        leash.raise(&[0]);
        let waits = tokio::spawn({
            let leash = leash.clone();
            async move { leash.more(0).await }
        });
        leash.asked().await;
        leash.raise(&[1]);
        waits.await.expect("no panic");
        assert_eq!(begun(&leash, 2), 1);
        leash.until(Instant::now());
        leash.more(0).await;
        assert_eq!(begun(&leash, 1), 0);
    }

    #[tokio::test]
    async fn the_first_redirect_waits_until_it_is_announced() {
        let leash = Leash::new(1);
        let waits = tokio::spawn({
            let leash = leash.clone();
            async move { leash.hops().await }
        });
        leash.asked().await;
        assert!(leash.wants_hops() && !leash.may_hop());
        leash.allow_hops();
        waits.await.expect("no panic");
        assert!(leash.may_hop());
    }

    /// A thread begins requests while another one lowers and raises its limit: what was said is never exceeded.
    #[test]
    fn nothing_is_begun_beyond_what_was_said() {
        let leash = Leash::new(1);
        leash.raise(&[100]);
        let made = Arc::new(AtomicU64::new(0));
        let (maker, count) = (leash.clone(), made.clone());
        let making = std::thread::spawn(move || {
            while count.load(Ordering::SeqCst) < 200_000 {
                count.fetch_add(u64::from(maker.begin(0)), Ordering::SeqCst);
            }
        });
        for round in 0u64.. {
            if making.is_finished() {
                break;
            }
            let said = leash.lower(&[if round % 2 == 0 { 3 } else { 500 }]);
            if round % 2 == 0 {
                // Nobody has raised it since: this is all there can be.
                std::thread::yield_now();
                assert!(made.load(Ordering::SeqCst) <= said[0]);
            }
            leash.raise(&said);
        }
        making.join().expect("no panic");
    }
}

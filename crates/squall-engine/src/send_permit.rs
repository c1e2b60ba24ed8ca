//! The permission of a fleet's worker to send: until when, whether the run is paused, and how many
//! requests (the send budget). A worker makes load only while its membership is valid, and never
//! sends more requests than it has announced in the store. So no two workers make the same load
//! when one of them is frozen or cut off, and the report can bound the requests that a lost worker
//! may have sent. Users that have used up the budget wait until it is raised. A local run has no
//! send permit. squall-worker sets the limits.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// How often a waiting user checks whether the membership is still valid.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The permission of one process to send, shared by its threads. Clones share it. It limits nothing
/// until it is first set.
#[derive(Debug, Clone)]
pub struct SendPermit {
    shared: Arc<SendPermitState>,
}

#[derive(Debug)]
struct SendPermitState {
    base: Instant,
    /// The end of the membership, in nanoseconds after `base`.
    valid_until: AtomicU64,
    /// Whether the run is paused.
    paused: AtomicBool,
    /// When the run was paused and resumed. Only starts that waited meanwhile read it.
    pauses: Mutex<Vec<PausedTime>>,
    /// The end of the last pause, in nanoseconds after `base`.
    resumed_at: AtomicU64,
    threads: Box<[ThreadBudget]>,
    /// Whether a request was redirected. The worker reports that redirects occur before it sends
    /// the first one.
    redirect_seen: AtomicBool,
    redirects_allowed: AtomicBool,
    /// Notified when the worker should raise the limits.
    refill_requested: Notify,
    /// Changes when the limits were raised.
    limits_raised: watch::Sender<()>,
    final_send_limits_set: watch::Sender<usize>,
}

/// A time in which the run was paused.
#[derive(Debug, Clone, Copy)]
struct PausedTime {
    from: Instant,
    /// `None` while it is paused.
    to: Option<Instant>,
}

/// The send budget of one thread, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadBudget {
    /// Requests charged to the budget: begun and not known to be unsent. Only the thread itself writes it.
    charged: AtomicU64,
    /// The most requests that may be charged to the thread in total.
    limit: AtomicU64,
    /// At this many requests charged, the worker should raise the limit.
    refill_at: AtomicU64,
    /// As `limit`, but final: the thread's load is over. The sum of all threads is the worker's
    /// final send limit, which it notes as `RunNote::FinalSendLimit`.
    final_send_limit: AtomicU64,
}

impl SendPermit {
    /// A permit for `threads` engine threads, without limits at first.
    pub fn new(threads: usize) -> SendPermit {
        let unlimited = || AtomicU64::new(u64::MAX);
        let thread = || ThreadBudget {
            charged: AtomicU64::new(0),
            limit: unlimited(),
            refill_at: unlimited(),
            final_send_limit: unlimited(),
        };
        let shared = SendPermitState {
            base: Instant::now(),
            valid_until: unlimited(),
            paused: AtomicBool::new(false),
            pauses: Mutex::default(),
            resumed_at: AtomicU64::new(0),
            threads: (0..threads.max(1)).map(|_| thread()).collect(),
            redirect_seen: AtomicBool::new(false),
            redirects_allowed: AtomicBool::new(false),
            refill_requested: Notify::new(),
            limits_raised: watch::Sender::default(),
            final_send_limits_set: watch::Sender::default(),
        };
        SendPermit { shared: Arc::new(shared) }
    }

    /// Sets the end of the membership, which may be earlier than the previous one.
    pub fn set_valid_until(&self, until: Instant) {
        self.shared.valid_until.store(self.nanos(until), Ordering::Relaxed);
    }

    /// Nanoseconds from `base` to `at`.
    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.shared.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Pauses or resumes the run. While it is paused, queued starts stay queued.
    pub fn set_paused(&self, paused: bool) {
        self.set_paused_at(paused, Instant::now());
    }

    fn set_paused_at(&self, paused: bool, now: Instant) {
        let mut pauses = self.pauses();
        match (pauses.last_mut().filter(|pause| pause.to.is_none()), paused) {
            (None, true) => pauses.push(PausedTime { from: now, to: None }),
            (Some(pause), false) => {
                pause.to = Some(now);
                self.shared.resumed_at.store(self.nanos(now), Ordering::Relaxed);
            }
            (None, false) | (Some(_), true) => {}
        }
        // After the list, so that a start that may begin finds the end of its pause there.
        self.shared.paused.store(paused, Ordering::Release);
    }

    /// How long the run was paused after `since`. A queued start was not late in this time.
    pub(crate) fn paused_after(&self, since: Instant) -> Duration {
        if self.nanos(since) >= self.shared.resumed_at.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let after = |pause: &PausedTime| pause.to.map(|to| to.saturating_duration_since(pause.from.max(since)));
        self.pauses().iter().filter_map(after).sum()
    }

    fn pauses(&self) -> MutexGuard<'_, Vec<PausedTime>> {
        self.shared.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a queued start may begin now.
    pub(crate) fn may_start(&self, now: Instant) -> bool {
        !self.shared.paused.load(Ordering::Acquire) && self.is_valid_at(now)
    }

    /// The requests charged to each thread.
    pub fn requests_charged(&self) -> Vec<u64> {
        self.shared.threads.iter().map(|thread| thread.charged.load(Ordering::SeqCst)).collect()
    }

    /// Whether `thread` has used at least half of its budget.
    pub fn is_half_used(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.charged.load(Ordering::Relaxed) >= thread.refill_at.load(Ordering::Relaxed)
    }

    /// The limit of each thread if it may begin `more` requests from now on. A lower limit takes
    /// effect at once, so that it holds when the worker reports it. A higher limit takes effect
    /// only in [`SendPermit::raise_limits`], after the report.
    pub fn lower_limits(&self, more: &[u64]) -> Vec<u64> {
        let limit = |(thread, more): (&ThreadBudget, &u64)| {
            let most = thread.charged.load(Ordering::SeqCst).saturating_add(*more);
            if most >= thread.limit.load(Ordering::SeqCst) {
                return most;
            }
            thread.limit.store(most, Ordering::SeqCst);
            // The thread may have begun more meanwhile: either this load sees that, or the thread
            // has seen the limit.
            most.max(thread.charged.load(Ordering::SeqCst))
        };
        self.shared.threads.iter().zip(more).map(limit).collect()
    }

    /// Sets the total limit of each thread. The caller has reported the limits.
    pub fn raise_limits(&self, most: &[u64]) {
        for (thread, most) in self.shared.threads.iter().zip(most) {
            let charged = thread.charged.load(Ordering::SeqCst);
            thread.limit.store(*most, Ordering::SeqCst);
            thread.refill_at.store(charged + most.saturating_sub(charged) / 2, Ordering::SeqCst);
        }
        self.shared.limits_raised.send_replace(());
    }

    /// Waits until the worker should raise the limits.
    pub async fn refill_requested(&self) {
        self.shared.refill_requested.notified().await;
    }

    /// Whether a request was redirected and waits for [`SendPermit::allow_redirects`].
    pub fn redirect_pending(&self) -> bool {
        self.shared.redirect_seen.load(Ordering::SeqCst)
    }

    /// Allows redirects. The caller has reported that they occur.
    pub fn allow_redirects(&self) {
        self.shared.redirects_allowed.store(true, Ordering::SeqCst);
        self.shared.limits_raised.send_replace(());
    }

    /// Called by `thread` itself: its load is over, and it sends at most `most` requests in total.
    pub(crate) fn set_final_send_limit(&self, thread: usize, most: u64) {
        self.shared.threads[thread].final_send_limit.store(most, Ordering::Relaxed);
        self.shared.final_send_limits_set.send_modify(|threads_set| *threads_set += 1);
    }

    /// Waits until every thread has set its final send limit; returns their sum.
    pub async fn final_send_limit_total(&self) -> u64 {
        let mut threads_set = self.shared.final_send_limits_set.subscribe();
        // Cannot fail: this permit holds the sender.
        let _ = threads_set.wait_for(|threads_set| *threads_set >= self.shared.threads.len()).await;
        self.shared
            .threads
            .iter()
            .map(|thread| thread.final_send_limit.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }

    /// Whether the engine may make load at `now`.
    #[inline]
    pub(crate) fn is_valid_at(&self, now: Instant) -> bool {
        let until = self.shared.valid_until.load(Ordering::Relaxed);
        until == u64::MAX || now.saturating_duration_since(self.shared.base).as_nanos() < u128::from(until)
    }

    /// Called by `thread` itself to begin a request; `false` if it may not.
    #[inline]
    pub(crate) fn try_acquire(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        let before = thread.charged.load(Ordering::Relaxed);
        // Counted before the check, so that a thread that lowers the limit meanwhile sees it.
        thread.charged.store(before + 1, Ordering::SeqCst);
        if before >= thread.limit.load(Ordering::SeqCst) || before >= thread.final_send_limit.load(Ordering::Relaxed) {
            thread.charged.store(before, Ordering::SeqCst);
            return false;
        }
        if before + 1 == thread.refill_at.load(Ordering::Relaxed) {
            self.shared.refill_requested.notify_one();
        }
        true
    }

    /// Uncounts a request of `thread` that was never sent.
    pub(crate) fn release(&self, thread: usize) {
        self.shared.threads[thread].charged.fetch_sub(1, Ordering::SeqCst);
    }

    /// The requests charged to `thread`.
    pub(crate) fn requests_charged_by(&self, thread: usize) -> u64 {
        self.shared.threads[thread].charged.load(Ordering::Relaxed)
    }

    /// Whether `thread` must wait before it can begin a request.
    #[inline]
    pub(crate) fn is_exhausted(&self, thread: usize) -> bool {
        let thread = &self.shared.threads[thread];
        thread.charged.load(Ordering::Relaxed) >= thread.limit.load(Ordering::Relaxed)
    }

    /// Waits until `thread` may begin a request, or may never begin one.
    pub(crate) async fn wait_available(&self, thread: usize) {
        let at_final_send_limit =
            || self.requests_charged_by(thread) >= self.shared.threads[thread].final_send_limit.load(Ordering::Relaxed);
        self.wait(|| !self.is_exhausted(thread) || at_final_send_limit()).await;
    }

    /// Whether requests after a redirect may be sent.
    pub fn redirects_allowed(&self) -> bool {
        self.shared.redirects_allowed.load(Ordering::Relaxed)
    }

    /// Waits until redirects are allowed, or the membership ends.
    pub(crate) async fn wait_redirects_allowed(&self) {
        self.shared.redirect_seen.store(true, Ordering::SeqCst);
        self.wait(|| self.redirects_allowed()).await;
    }

    async fn wait(&self, done: impl Fn() -> bool) {
        let mut raised = self.shared.limits_raised.subscribe();
        while !done() && self.is_valid_at(Instant::now()) {
            self.shared.refill_requested.notify_one();
            // On a timeout the loop checks the membership again.
            let _ = tokio::time::timeout(POLL_INTERVAL, raised.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(permit: &SendPermit, tries: u64) -> u64 {
        (0..tries).filter(|_| permit.try_acquire(0)).count() as u64
    }

    #[test]
    fn lowered_limit_holds_at_once_and_raised_limit_after_raise_limits() {
        let permit = SendPermit::new(1);
        assert_eq!(begun(&permit, 5), 5, "no limit was set");
        assert_eq!(permit.lower_limits(&[10]), [15]);
        assert_eq!(begun(&permit, 20), 10, "lower than none at all");
        assert_eq!(permit.lower_limits(&[3]), [18]);
        assert_eq!(begun(&permit, 20), 0);
        permit.raise_limits(&[18]);
        assert_eq!(begun(&permit, 20), 3);
        assert_eq!((permit.requests_charged(), permit.is_exhausted(0)), (vec![18], true));
    }

    #[test]
    fn pauses_after_a_moment_are_added_up() {
        let (permit, start) = (SendPermit::new(1), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // The worker applies each reading of the run record.
        for (paused, seconds) in [(false, 0), (true, 1), (true, 2), (false, 4), (false, 5), (true, 10), (false, 11)] {
            permit.set_paused_at(paused, at(seconds));
        }
        for (since, expected) in [(0, 4), (2, 3), (4, 1), (10, 1), (11, 0)] {
            assert_eq!(permit.paused_after(at(since)), Duration::from_secs(expected), "after {since} s");
        }
        permit.set_paused_at(true, at(20));
        assert!(!permit.may_start(at(21)));
        assert_eq!(permit.paused_after(at(11)), Duration::ZERO, "a pause that lasts");
    }

    #[tokio::test]
    async fn refill_is_requested_when_half_of_the_budget_is_used() {
        let permit = SendPermit::new(1);
        permit.raise_limits(&[10]);
        assert_eq!((begun(&permit, 4), permit.is_half_used(0)), (4, false));
        assert_eq!((begun(&permit, 1), permit.is_half_used(0)), (1, true));
        permit.refill_requested().await;
        // A released request does not count.
        permit.release(0);
        assert_eq!(begun(&permit, 20), 6);
    }

    #[tokio::test]
    async fn exhausted_thread_waits_until_limits_rise_or_membership_ends() {
        let permit = SendPermit::new(1);
        permit.raise_limits(&[0]);
        let waits = tokio::spawn({
            let permit = permit.clone();
            async move { permit.wait_available(0).await }
        });
        permit.refill_requested().await;
        permit.raise_limits(&[1]);
        waits.await.expect("no panic");
        assert_eq!(begun(&permit, 2), 1);
        permit.set_valid_until(Instant::now());
        permit.wait_available(0).await;
        assert_eq!(begun(&permit, 1), 0);
    }

    #[tokio::test]
    async fn first_redirect_waits_until_redirects_are_allowed() {
        let permit = SendPermit::new(1);
        let waits = tokio::spawn({
            let permit = permit.clone();
            async move { permit.wait_redirects_allowed().await }
        });
        permit.refill_requested().await;
        assert!(permit.redirect_pending() && !permit.redirects_allowed());
        permit.allow_redirects();
        waits.await.expect("no panic");
        assert!(permit.redirects_allowed());
    }

    /// One thread begins requests while another lowers and raises its limit. It never exceeds a
    /// reported limit.
    #[test]
    fn requests_never_exceed_a_reported_limit() {
        let permit = SendPermit::new(1);
        permit.raise_limits(&[100]);
        let begun_count = Arc::new(AtomicU64::new(0));
        let (sender, count) = (permit.clone(), begun_count.clone());
        let sending = std::thread::spawn(move || {
            while count.load(Ordering::SeqCst) < 200_000 {
                count.fetch_add(u64::from(sender.try_acquire(0)), Ordering::SeqCst);
            }
        });
        for round in 0u64.. {
            if sending.is_finished() {
                break;
            }
            let reported = permit.lower_limits(&[if round % 2 == 0 { 3 } else { 500 }]);
            if round % 2 == 0 {
                // Only this thread raises the limit, so the reported number is the maximum.
                std::thread::yield_now();
                assert!(begun_count.load(Ordering::SeqCst) <= reported[0]);
            }
            permit.raise_limits(&reported);
        }
        sending.join().expect("no panic");
    }
}

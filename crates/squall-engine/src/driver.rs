//! What a protocol must bring to be driven: a driver makes one thread's worth of itself, a thread makes users, a user runs
//! iterations. All of a user's life happens on one thread, so nothing here need be `Send` but the driver itself.

use squall_model::TaskIndex;
use std::{future::Future, time::Instant};

use crate::{ThreadDeadline, ThreadRecorder};

/// Requests that may yet follow others in a run in which none has.
const UNSEEN_REDIRECTS: u64 = 16;

/// A protocol, ready to make load. Shared by all threads.
pub trait Driver: Send + Sync + 'static {
    type Thread: DriverThread;

    /// Called once on each engine thread, inside its runtime, before the run starts. Register metrics here, so that the report has
    /// them in the plan's order.
    fn thread(&self, probe: ThreadRecorder) -> Result<Self::Thread, DriverError>;

    /// How many requests an iteration makes, where that is known and users make none outside of iterations. What a member of a fleet may
    /// still send when its load is over is stated by it.
    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        None
    }

    /// Runs one engine thread from its first moment to its last. A driver whose users need something of their thread (an
    /// interpreter to be attached to, hooks around the runtime's sleep) arranges it here, around `life`. One whose users run code that may
    /// not give the thread back interrupts it when the `curfew` has passed.
    fn run_thread<R>(
        &self,
        _curfew: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        life: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        life(runtime)
    }
}

/// The requests of one iteration, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestsPerIteration {
    /// That it makes by itself.
    pub direct: u64,
    /// That each of these may lead to: redirects.
    pub redirects: u64,
}

impl RequestsPerIteration {
    /// Most requests that there can be in all when `iterations` have begun, `busy` of them are not over, and `begun` requests were made.
    /// Where no request has led to another one so far, a few may yet.
    pub(crate) fn upper_bound(self, iterations: u64, busy: u64, begun: u64) -> u64 {
        let own = iterations.saturating_mul(self.direct);
        if self.redirects == 0 {
            return own;
        }
        let each = self.direct.saturating_mul(self.redirects + 1);
        let rest = begun.saturating_add(busy.saturating_mul(each)).min(iterations.saturating_mul(each));
        if begun <= own { rest.min(own + UNSEEN_REDIRECTS) } else { rest }
    }
}

/// One engine thread's share of a driver: connections, caches and buffers that its users have in common.
pub trait DriverThread: 'static {
    type User: VirtualUser;

    fn user(&self, seat: UserIdentity) -> Self::User;
}

/// One virtual user.
pub trait VirtualUser: 'static {
    /// Runs once before the first iteration. A user that cannot start is retried with back-off by the engine.
    fn start(&mut self) -> impl Future<Output = Result<(), UserStartError>> {
        async { Ok(()) }
    }

    /// Runs one task once. Records its own samples through the thread's [`ThreadRecorder`]; returns whether the task was completed, which
    /// is what `requires` of other tasks asks for.
    ///
    /// May be dropped at any await point when the run is aborted; open [`InFlightRequest`](crate::Flight)s then record themselves.
    fn iterate(&mut self, iteration: Iteration) -> impl Future<Output = bool>;

    /// Runs once after the last iteration.
    fn stop(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// A user's place in the run.
#[derive(Debug, Clone, Copy)]
pub struct UserIdentity {
    /// Unique within the run: 0, 1, 2, …
    pub number: u64,
    /// Decides the user's own random choices; differs between users, is the same for the same run seed.
    pub seed: u64,
}

/// One iteration to run.
#[derive(Debug, Clone, Copy)]
pub struct Iteration {
    /// Unique within the run for open models; counts per user for closed ones.
    pub number: u64,
    pub task: TaskIndex,
    /// When it should have started. The first request's response time counts from here.
    pub intended: Instant,
    /// When it did start.
    pub started: Instant,
}

/// Why a driver cannot make load on this thread.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DriverError(pub String);

/// Why a user could not start. The failure itself is recorded by the driver as a sample.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UserStartError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_yet_be_sent_is_what_iterations_have_not_sent() {
        let check = |own, hops, (iterations, busy, begun), expected| {
            assert_eq!(
                RequestsPerIteration { direct: own, redirects: hops }.upper_bound(iterations, busy, begun),
                expected
            );
        };
        check(1, 0, (10, 3, 10), 10);
        check(3, 0, (10, 3, 24), 30);
        // None was redirected so far; a few may be.
        check(1, 10, (10, 3, 10), 26);
        check(1, 10, (10, 0, 10), 10);
        // Some were.
        check(1, 10, (10, 3, 15), 48);
        check(1, 1, (10, 9, 15), 20);
    }
}

//! What a protocol must implement so that the engine can run it: a driver makes a part of itself
//! for each thread, a thread makes users, a user runs iterations. A user stays on one thread, so
//! only the driver itself must be `Send`.

use squall_model::TaskIndex;
use std::{future::Future, time::Instant};

use crate::{ThreadDeadline, ThreadRecorder};

/// Redirects that are still possible in a run in which no request has been redirected yet.
const UNSEEN_REDIRECTS: u64 = 16;

/// A protocol, ready to make load. All threads share it.
pub trait Driver: Send + Sync + 'static {
    type Thread: DriverThread;

    /// The engine calls this once on each of its threads, inside the thread's runtime, before the
    /// run starts. Register metrics here, so that the report lists them in the plan's order.
    fn thread(&self, recorder: ThreadRecorder) -> Result<Self::Thread, DriverError>;

    /// How many requests an iteration makes, if the driver knows and users make none outside of
    /// iterations. A worker of a fleet uses it to state how many requests it may still send when
    /// its load is over.
    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        None
    }

    /// Whether users run an `on_start`. The engine starts such users of an open model sparingly.
    fn user_start(&self) -> UserStart {
        UserStart::Free
    }

    /// Runs one engine thread from its first moment to its last. A driver whose users need
    /// something of their thread (an attached interpreter, hooks around the runtime's sleep)
    /// arranges it here, around `thread_main`. A driver whose users run code that may block the
    /// thread interrupts that code when the deadline has passed.
    fn run_thread<R>(
        &self,
        _deadline: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        thread_main: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        thread_main(runtime)
    }
}

/// What it costs to start a user of an open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserStart {
    /// Nothing: a start that finds no free user gets a new one.
    #[default]
    Free,
    /// An `on_start`, such as a login. The first users start as starts need them, further ones only
    /// while starts have waited for a free user.
    OnStart,
    /// As `OnStart`, but the first users start at once.
    OnStartAtOnce,
}

/// The most requests of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestsPerIteration {
    /// Requests that the iteration makes itself.
    pub direct: u64,
    /// Redirects that may follow each of them.
    pub redirects: u64,
}

impl RequestsPerIteration {
    /// The most requests in total when `iterations` have begun, `busy` of them have not ended, and
    /// `begun` requests were made. While no request has been redirected, it allows only a few
    /// redirects.
    pub(crate) fn upper_bound(self, iterations: u64, busy: u64, begun: u64) -> u64 {
        let direct = iterations.saturating_mul(self.direct);
        if self.redirects == 0 {
            return direct;
        }
        let each = self.direct.saturating_mul(self.redirects + 1);
        let with_redirects = begun.saturating_add(busy.saturating_mul(each)).min(iterations.saturating_mul(each));
        if begun <= direct { with_redirects.min(direct + UNSEEN_REDIRECTS) } else { with_redirects }
    }
}

/// One engine thread's part of a driver: the connections, caches and buffers that its users share.
pub trait DriverThread: 'static {
    type User: VirtualUser;

    /// Opens what the users of this thread share and what takes time, such as connections. The
    /// engine waits for it before the run starts, so that it is no part of the measured time.
    fn connect(&mut self) -> impl Future<Output = Result<(), DriverError>> {
        async { Ok(()) }
    }

    fn user(&self, identity: UserIdentity) -> Self::User;
}

/// One virtual user.
pub trait VirtualUser: 'static {
    /// Runs once before the first iteration. The engine calls it again, with back-off, until it
    /// succeeds.
    fn on_start(&mut self) -> impl Future<Output = Result<(), OnStartError>> {
        async { Ok(()) }
    }

    /// Waits for a thread of its own, if the code of `task` needs one. The engine calls it before each
    /// iteration and drops the future when the load is over; that iteration is then not begun.
    fn acquire_thread(&mut self, _task: TaskIndex) -> impl Future<Output = ()> {
        async {}
    }

    /// Runs one task once, and records its samples through the thread's [`ThreadRecorder`]. Returns
    /// whether the task was completed, which `requires` of other tasks asks for.
    ///
    /// The engine may drop the future at any await point when the run is aborted. Open
    /// [`InFlightRequest`](crate::InFlightRequest)s then record themselves.
    fn iterate(&mut self, iteration: Iteration) -> impl Future<Output = bool>;

    /// Runs once after the last iteration.
    fn on_stop(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// Identifies a user in the run.
#[derive(Debug, Clone, Copy)]
pub struct UserIdentity {
    /// Unique within the run: 0, 1, 2, …
    pub number: u64,
    /// The seed of the user's random choices. It differs between users and is the same for the same
    /// seed of the run.
    pub seed: u64,
}

/// One iteration to run.
#[derive(Debug, Clone, Copy)]
pub struct Iteration {
    /// Unique within the run for open models; counts per user for closed ones.
    pub number: u64,
    pub task: TaskIndex,
    /// When the iteration should have started. The first request's response time counts from here.
    pub intended: Instant,
    /// When it started.
    pub started: Instant,
}

/// Why a driver cannot make load.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("cannot make a client: {reason}")]
    Client { reason: String },
    /// The connections that a thread's users share cannot be opened.
    #[error("{reason}")]
    Connect { reason: String },
    /// The target of these connections does not answer, or refuses them.
    #[error("{reason}")]
    Unreachable { reason: String },
    /// A request of the plan cannot be prepared.
    #[error("{request}: {reason}")]
    Request { request: String, reason: String },
    /// A request that Python code builds cannot be sent. The reason names its file and line.
    #[error("{reason}")]
    PythonRequest { reason: String },
    #[error("cannot start asyncio: {reason}")]
    EventLoop { reason: String },
    /// The set-up hook has failed.
    #[error("set-up failed: {reason}")]
    SetUp { reason: String },
    /// A process cannot use the data of the set-up hook.
    #[error("{reason}")]
    SetUpData { reason: String },
    /// The resource pools cannot be filled.
    #[error("{reason}")]
    Pools { reason: String },
}

/// Why a user's `on_start` failed. The driver has already recorded the failure as a sample.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OnStartError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bound_allows_redirects_only_of_unfinished_iterations() {
        let check = |direct, redirects, (iterations, busy, begun), expected| {
            assert_eq!(RequestsPerIteration { direct, redirects }.upper_bound(iterations, busy, begun), expected);
        };
        check(1, 0, (10, 3, 10), 10);
        check(3, 0, (10, 3, 24), 30);
        // No request was redirected so far; a few redirects are allowed.
        check(1, 10, (10, 3, 10), 26);
        check(1, 10, (10, 0, 10), 10);
        // Some requests were redirected.
        check(1, 10, (10, 3, 15), 48);
        check(1, 1, (10, 9, 15), 20);
    }
}

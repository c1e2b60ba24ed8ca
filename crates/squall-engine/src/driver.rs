//! What a protocol must bring to be driven: a driver makes one thread's worth of itself, a thread makes users, a user runs
//! iterations. All of a user's life happens on one thread, so nothing here need be `Send` but the driver itself.

use squall_model::TaskIndex;
use std::{future::Future, time::Instant};

use crate::Probe;

/// A protocol, ready to make load. Shared by all threads.
pub trait Driver: Send + Sync + 'static {
    type Thread: DriverThread;

    /// Called once on each engine thread, inside its runtime, before the run starts. Register metrics here, so that the report has
    /// them in the plan's order.
    fn thread(&self, probe: Probe) -> Result<Self::Thread, DriverError>;

    /// Runs one engine thread from its first moment to its last. A driver whose users need something of their thread (an
    /// interpreter to be attached to, hooks around the runtime's sleep) arranges it here, around `life`.
    fn host<R>(
        &self,
        runtime: &mut tokio::runtime::Builder,
        life: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        life(runtime)
    }
}

/// One engine thread's share of a driver: connections, caches and buffers that its users have in common.
pub trait DriverThread: 'static {
    type User: VirtualUser;

    fn user(&self, seat: Seat) -> Self::User;
}

/// One virtual user.
pub trait VirtualUser: 'static {
    /// Runs once before the first iteration. A user that cannot start is retried with back-off by the engine.
    fn start(&mut self) -> impl Future<Output = Result<(), StartFailed>> {
        async { Ok(()) }
    }

    /// Runs one task once. Records its own samples through the thread's [`Probe`]; returns whether the task was completed, which
    /// is what `requires` of other tasks asks for.
    ///
    /// May be dropped at any await point when the run is aborted; open [`Flight`](crate::Flight)s then record themselves.
    fn iterate(&mut self, iteration: Iteration) -> impl Future<Output = bool>;

    /// Runs once after the last iteration.
    fn stop(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// A user's place in the run.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// Unique within the run: 0, 1, 2, …
    pub user: u64,
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
pub struct StartFailed(pub String);

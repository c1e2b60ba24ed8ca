//! What makes the load of a run on this machine: the engine of this process, or several processes
//! with an engine each. Both ship deltas and take the same commands, so `run_with_generator` does
//! not know which one it has.

use squall_engine::{
    BusyUsers, Engine, EngineGroup, EngineGroupStopHandle, EngineStopHandle, LoadOutcome, ShareAssignment,
};
use squall_metrics::{Delta, SourceId};
use squall_model::{Profile, ShareSet};
use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::local_run::RunError;

/// A prepared load generator.
pub trait LoadGenerator {
    type Stop: StopHandle;

    /// The sources of the deltas.
    fn sources(&self) -> Vec<SourceId>;

    /// Starts the load at `at`.
    fn start(&mut self, at: Instant);

    fn stop(&self) -> Self::Stop;

    /// Follows `profile` from the run time `at` on. Up to then it equals the previous profile.
    fn set_profile(&self, profile: &Profile, at: Duration);

    /// Iterations in progress, if the load is made in this process.
    fn busy_users(&self) -> Option<BusyUsers> {
        None
    }

    /// The next delta; `None` after the last delta of every source.
    fn next_delta(&mut self) -> impl Future<Output = Option<Delta>>;

    /// Waits until all parts have ended. The longest part gives the times.
    fn join(self) -> impl Future<Output = Result<GeneratorOutcome, RunError>>;
}

/// Stops a load generator.
pub trait StopHandle {
    fn drain(&self);
    fn abort(&self);
}

/// How a load generator ended.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorOutcome {
    pub end: LoadOutcome,
    /// CPU time and memory of all processes except this one.
    pub other_processes: (Duration, u64),
}

impl StopHandle for EngineStopHandle {
    fn drain(&self) {
        EngineStopHandle::drain(self);
    }

    fn abort(&self) {
        EngineStopHandle::abort(self);
    }
}

impl LoadGenerator for Engine {
    type Stop = EngineStopHandle;

    fn sources(&self) -> Vec<SourceId> {
        Engine::sources(self).to_vec()
    }

    fn start(&mut self, at: Instant) {
        Engine::start(self, at);
    }

    fn stop(&self) -> EngineStopHandle {
        Engine::stop_handle(self)
    }

    fn set_profile(&self, profile: &Profile, at: Duration) {
        self.set_assignment(ShareAssignment::new(ShareSet::ALL, profile.clone(), at));
    }

    fn busy_users(&self) -> Option<BusyUsers> {
        Some(Engine::busy_users(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        Engine::next_delta(self).await
    }

    async fn join(self) -> Result<GeneratorOutcome, RunError> {
        Ok(GeneratorOutcome { end: Engine::join(self)?, other_processes: (Duration::ZERO, 0) })
    }
}

impl StopHandle for EngineGroupStopHandle {
    fn drain(&self) {
        EngineGroupStopHandle::drain(self);
    }

    fn abort(&self) {
        EngineGroupStopHandle::abort(self);
    }
}

impl LoadGenerator for EngineGroup {
    type Stop = EngineGroupStopHandle;

    fn sources(&self) -> Vec<SourceId> {
        EngineGroup::sources(self)
    }

    fn start(&mut self, at: Instant) {
        EngineGroup::start(self, at);
    }

    fn stop(&self) -> EngineGroupStopHandle {
        EngineGroup::stop_handle(self)
    }

    fn set_profile(&self, profile: &Profile, at: Duration) {
        // The first engine makes the load; probes follow it and keep their own profile.
        self.set_assignments([ShareAssignment::new(ShareSet::ALL, profile.clone(), at)]);
    }

    fn busy_users(&self) -> Option<BusyUsers> {
        Some(EngineGroup::busy_users(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        EngineGroup::next_delta(self).await
    }

    async fn join(self) -> Result<GeneratorOutcome, RunError> {
        Ok(GeneratorOutcome { end: EngineGroup::join(self)?, other_processes: (Duration::ZERO, 0) })
    }
}

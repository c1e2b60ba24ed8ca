//! Who makes the load of a run on this machine: the engine of this process, or several processes with an engine each. Both ship deltas
//! and obey the same orders; the run does not know which it has.

use squall_engine::{EngineGroup, EngineGroupStopHandle, Engine, EngineStopHandle, InFlightIterations, LoadOutcome};
use squall_metrics::{Delta, SourceId};
use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::run::RunError;

/// The makers of a run's load, prepared.
pub trait Crew {
    type Stop: Stop;

    /// Who will send deltas.
    fn sources(&self) -> Vec<SourceId>;

    /// Lets all start at the instant `at`.
    fn start(&mut self, at: Instant);

    fn stop(&self) -> Self::Stop;

    /// What is under way in this process; nobody can look into another one.
    fn in_flight(&self) -> Option<InFlightIterations> {
        None
    }

    /// The next delta; `None` when everybody has sent their last.
    fn next_delta(&mut self) -> impl Future<Output = Option<Delta>>;

    /// Waits for everybody. The longest of them counts.
    fn join(self) -> impl Future<Output = Result<Ended, RunError>>;
}

/// Orders to a crew at work.
pub trait Stop {
    fn drain(&self);
    fn abort(&self);
}

/// How a crew's work ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub end: LoadOutcome,
    /// What other processes than this one used: CPU time and memory.
    pub elsewhere: (Duration, u64),
}

impl Stop for EngineStopHandle {
    fn drain(&self) {
        EngineStopHandle::drain(self);
    }

    fn abort(&self) {
        EngineStopHandle::abort(self);
    }
}

impl Crew for Engine {
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

    fn in_flight(&self) -> Option<InFlightIterations> {
        Some(Engine::in_flight(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        Engine::next_delta(self).await
    }

    async fn join(self) -> Result<Ended, RunError> {
        Ok(Ended { end: Engine::join(self)?, elsewhere: (Duration::ZERO, 0) })
    }
}

impl Stop for EngineGroupStopHandle {
    fn drain(&self) {
        EngineGroupStopHandle::drain(self);
    }

    fn abort(&self) {
        EngineGroupStopHandle::abort(self);
    }
}

impl Crew for EngineGroup {
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

    fn in_flight(&self) -> Option<InFlightIterations> {
        Some(EngineGroup::in_flight(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        EngineGroup::next_delta(self).await
    }

    async fn join(self) -> Result<Ended, RunError> {
        Ok(Ended { end: EngineGroup::join(self)?, elsewhere: (Duration::ZERO, 0) })
    }
}

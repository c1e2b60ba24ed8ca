//! Who makes the load of a run on this machine: the engine of this process, or several processes with an engine each. Both ship deltas
//! and obey the same orders; the run does not know which it has.

use squall_engine::{Chorus, ChorusStop, Engine, EngineStop, InFlight, ThreadEnd};
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
    fn in_flight(&self) -> Option<InFlight> {
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
    pub end: ThreadEnd,
    /// What other processes than this one used: CPU time and memory.
    pub elsewhere: (Duration, u64),
}

impl Stop for EngineStop {
    fn drain(&self) {
        EngineStop::drain(self);
    }

    fn abort(&self) {
        EngineStop::abort(self);
    }
}

impl Crew for Engine {
    type Stop = EngineStop;

    fn sources(&self) -> Vec<SourceId> {
        Engine::sources(self).to_vec()
    }

    fn start(&mut self, at: Instant) {
        Engine::start(self, at);
    }

    fn stop(&self) -> EngineStop {
        Engine::stop(self)
    }

    fn in_flight(&self) -> Option<InFlight> {
        Some(Engine::in_flight(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        Engine::next_delta(self).await
    }

    async fn join(self) -> Result<Ended, RunError> {
        Ok(Ended { end: Engine::join(self)?, elsewhere: (Duration::ZERO, 0) })
    }
}

impl Stop for ChorusStop {
    fn drain(&self) {
        ChorusStop::drain(self);
    }

    fn abort(&self) {
        ChorusStop::abort(self);
    }
}

impl Crew for Chorus {
    type Stop = ChorusStop;

    fn sources(&self) -> Vec<SourceId> {
        Chorus::sources(self)
    }

    fn start(&mut self, at: Instant) {
        Chorus::start(self, at);
    }

    fn stop(&self) -> ChorusStop {
        Chorus::stop(self)
    }

    fn in_flight(&self) -> Option<InFlight> {
        Some(Chorus::in_flight(self))
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        Chorus::next_delta(self).await
    }

    async fn join(self) -> Result<Ended, RunError> {
        Ok(Ended { end: Chorus::join(self)?, elsewhere: (Duration::ZERO, 0) })
    }
}

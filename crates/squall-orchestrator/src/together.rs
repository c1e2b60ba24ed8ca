//! Several scenarios on one timeline: an engine for each, behind one crew. What they ship is merged as the deltas of one run; each keeps
//! its own load and its own users. Decides nothing about them.

use squall_engine::{Engine, EngineStop, InFlight, ThreadEnd};
use squall_metrics::{Delta, SourceId};
use squall_model::Plan;
use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    crew::{Crew, Ended, Stop},
    run::RunError,
};

/// One scenario among several.
pub struct Voice<D> {
    pub plan: Plan,
    pub driver: D,
    /// Engine threads at most.
    pub threads: usize,
    /// It ends when those that do not follow have.
    pub follows: bool,
}

/// Engines that start, and are stopped, at once. Each needs an instance number of its own.
pub(crate) struct Together {
    engines: Vec<Engine>,
    /// Of each, whether it ends with the others.
    follows: Vec<bool>,
    /// Of each, whether it has sent its last delta.
    ended: Vec<bool>,
}

impl Together {
    pub(crate) fn new(engines: Vec<(Engine, bool)>) -> Together {
        let ended = vec![false; engines.len()];
        let (engines, follows) = engines.into_iter().unzip();
        Together { engines, follows, ended }
    }

    /// Lets the followers go once nobody is left to be followed.
    fn has_ended(&mut self, index: usize) {
        self.ended[index] = true;
        let leads = |index: usize| !self.follows[index] && !self.ended[index];
        if !(0..self.engines.len()).any(leads) {
            self.engines
                .iter()
                .zip(&self.follows)
                .filter(|(_, follows)| **follows)
                .for_each(|(one, _)| one.stop().drain());
        }
    }
}

/// Orders to all of them.
pub(crate) struct StopAll(Vec<EngineStop>);

impl Stop for StopAll {
    fn drain(&self) {
        self.0.iter().for_each(EngineStop::drain);
    }

    fn abort(&self) {
        self.0.iter().for_each(EngineStop::abort);
    }
}

impl Crew for Together {
    type Stop = StopAll;

    fn sources(&self) -> Vec<SourceId> {
        self.engines.iter().flat_map(|engine| engine.sources().to_vec()).collect()
    }

    fn start(&mut self, at: Instant) {
        self.engines.iter().for_each(|engine| engine.start(at));
    }

    fn stop(&self) -> StopAll {
        StopAll(self.engines.iter().map(Engine::stop).collect())
    }

    fn in_flight(&self) -> InFlight {
        self.engines.iter().map(Engine::in_flight).collect()
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        loop {
            // A delta per second and thread: boxes cost nothing that anybody sees.
            let alive = self.engines.iter_mut().enumerate().filter(|(index, _)| !self.ended[*index]);
            let mut waiting: Vec<_> = alive.map(|(index, engine)| (index, Box::pin(engine.next_delta()))).collect();
            if waiting.is_empty() {
                return None;
            }
            let (index, delta) = poll_fn(|cx| {
                for (index, next) in &mut waiting {
                    if let Poll::Ready(delta) = next.as_mut().poll(cx) {
                        return Poll::Ready((*index, delta));
                    }
                }
                Poll::Pending
            })
            .await;
            drop(waiting);
            match delta {
                Some(delta) => return Some(delta),
                None => self.has_ended(index),
            }
        }
    }

    async fn join(self) -> Result<Ended, RunError> {
        let mut end = ThreadEnd { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false };
        for engine in self.engines {
            let one = engine.join()?;
            end.active = end.active.max(one.active);
            end.elapsed = end.elapsed.max(one.elapsed);
            end.cut_off |= one.cut_off;
        }
        Ok(Ended { end, elsewhere: (Duration::ZERO, 0) })
    }
}

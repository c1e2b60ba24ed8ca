//! Several engines on one timeline: scenarios that run together, each with its own load and its own users. To whoever holds it, it is one
//! engine whose threads are numbered through. Decides nothing about them.

use squall_metrics::{Delta, SourceId};
use std::{
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    Driver, Engine, EngineConfig, EngineError, EngineStopHandle, InFlightIterations, LoadOutcome, ShareAssignment,
};

/// One scenario among several.
pub struct EngineSpec<D> {
    pub driver: D,
    /// Its first thread is numbered by the chorus.
    pub config: EngineConfig,
    /// It makes no load of its own, and ends when those that do not follow have.
    pub background: bool,
}

/// Engines that start, and are stopped, at once. Dropping it leaves them to themselves.
pub struct EngineGroup {
    engines: Vec<Engine>,
    /// Of each, whether it ends with the others.
    background: Vec<bool>,
    /// Of each, whether all its threads have ended.
    ended: Vec<bool>,
}

/// Orders to all of them. Cloning shares it.
#[derive(Clone)]
pub struct EngineGroupStopHandle(Vec<EngineStopHandle>);

impl EngineGroupStopHandle {
    /// As [`EngineStopHandle::drain`].
    pub fn drain(&self) {
        self.0.iter().for_each(EngineStopHandle::drain);
    }

    /// As [`EngineStopHandle::abort`].
    pub fn abort(&self) {
        self.0.iter().for_each(EngineStopHandle::abort);
    }
}

impl EngineGroup {
    /// Prepares all of them; no load is made before [`EngineGroup::start`]. A leash that they share needs a place for each thread.
    pub async fn prepare<D: Driver>(voices: Vec<EngineSpec<D>>) -> Result<EngineGroup, EngineError> {
        let mut chorus = EngineGroup { engines: Vec::new(), background: Vec::new(), ended: vec![false; voices.len()] };
        let mut first_thread = 0;
        for EngineSpec { driver, mut config, background: follows } in voices {
            config.first_thread = first_thread;
            config.recorder.background = follows;
            first_thread += config.threads.max(1) as u32;
            match Engine::prepare(driver, config).await {
                Ok(engine) => chorus.engines.push(engine),
                Err(error) => {
                    chorus.stop_handle().abort();
                    return Err(error);
                }
            }
            chorus.background.push(follows);
        }
        Ok(chorus)
    }

    /// Lets all start at the instant `at`.
    pub fn start(&self, at: Instant) {
        self.engines.iter().for_each(|engine| engine.start(at));
    }

    /// As [`Engine::set_assignment`], for each of them its own.
    pub fn set_assignments(&self, duties: impl IntoIterator<Item = ShareAssignment>) -> Vec<Duration> {
        self.engines.iter().zip(duties).map(|(engine, duty)| engine.set_assignment(duty)).collect()
    }

    pub fn stop_handle(&self) -> EngineGroupStopHandle {
        EngineGroupStopHandle(self.engines.iter().map(Engine::stop_handle).collect())
    }

    /// How many iterations are under way, at any moment.
    pub fn in_flight(&self) -> InFlightIterations {
        self.engines.iter().map(Engine::in_flight).collect()
    }

    /// As [`Engine::load_end`], of those that others follow.
    pub fn load_end(&self) -> Duration {
        let led = self.engines.iter().zip(&self.background).filter(|(_, follows)| !**follows);
        led.map(|(engine, _)| engine.load_end()).max().unwrap_or_default()
    }

    /// Who will send deltas.
    pub fn sources(&self) -> Vec<SourceId> {
        self.engines.iter().flat_map(|engine| engine.sources().to_vec()).collect()
    }

    /// The next delta; `None` when all have ended. One that fails ends the others.
    pub async fn next_delta(&mut self) -> Option<Delta> {
        loop {
            if self.ended.iter().all(|ended| *ended) {
                return None;
            }
            // Asked in turn: a delta per second and thread is so little that the order does not matter.
            let (engines, ended) = (&mut self.engines, &self.ended);
            let (index, delta) = poll_fn(|cx| {
                for (index, engine) in engines.iter_mut().enumerate().filter(|(index, _)| !ended[*index]) {
                    if let Poll::Ready(delta) = engine.poll_delta(cx) {
                        return Poll::Ready((index, delta));
                    }
                }
                Poll::Pending
            })
            .await;
            match delta {
                Some(delta) => return Some(delta),
                None => self.on_engine_ended(index),
            }
        }
    }

    /// As [`Engine::failure`], of the first that has one.
    pub fn failure(&self) -> Option<&str> {
        self.engines.iter().find_map(Engine::failure)
    }

    /// Lets the followers go once nobody is left to be followed.
    fn on_engine_ended(&mut self, index: usize) {
        self.ended[index] = true;
        if self.engines[index].failure().is_some() {
            return self.stop_handle().abort();
        }
        let leads = |index: usize| !self.background[index] && !self.ended[index];
        if !(0..self.engines.len()).any(leads) {
            let followers = self.engines.iter().zip(&self.background).filter(|(_, follows)| **follows);
            followers.for_each(|(engine, _)| engine.stop_handle().drain());
        }
    }

    /// Waits for all threads. The longest of them counts.
    pub fn join(self) -> Result<LoadOutcome, EngineError> {
        let mut whole = LoadOutcome { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false };
        for (engine, follows) in self.engines.into_iter().zip(self.background) {
            let end = engine.join()?;
            if !follows {
                whole.active = whole.active.max(end.active);
            }
            whole.elapsed = whole.elapsed.max(end.elapsed);
            whole.cut_off |= end.cut_off;
        }
        Ok(whole)
    }
}

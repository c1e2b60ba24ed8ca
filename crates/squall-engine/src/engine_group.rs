//! Several engines on one timeline: scenarios that run together, each with its own load and users.
//! The caller uses the group like one engine, with threads numbered from 0. It decides nothing
//! about the load.

use squall_metrics::{Delta, SourceId};
use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{BusyUsers, Driver, Engine, EngineConfig, EngineError, EngineStopHandle, LoadOutcome, ShareAssignment};

/// One scenario of a group.
pub struct EngineSpec<D> {
    pub driver: D,
    /// The group sets its `first_thread`.
    pub config: EngineConfig,
    /// Whether it makes no load of its own and ends when all other engines have ended.
    pub background: bool,
}

/// Engines that start and stop together. Dropping the group does not wait for them.
pub struct EngineGroup {
    engines: Vec<Engine>,
    /// For each engine, whether it ends with the others.
    background: Vec<bool>,
    /// For each engine, whether all its threads have ended.
    ended: Vec<bool>,
}

/// Stops all engines of a group. Clones stop the same group.
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
    /// Prepares all engines; no load is made before [`EngineGroup::start`]. A send permit that
    /// they share needs an entry for each thread of the group.
    pub async fn prepare<D: Driver>(specs: Vec<EngineSpec<D>>) -> Result<EngineGroup, EngineError> {
        let mut group = EngineGroup { engines: Vec::new(), background: Vec::new(), ended: vec![false; specs.len()] };
        let mut first_thread = 0;
        for EngineSpec { driver, mut config, background } in specs {
            config.first_thread = first_thread;
            config.recorder.background = background;
            first_thread += config.threads.max(1) as u32;
            match Engine::prepare(driver, config).await {
                Ok(engine) => group.engines.push(engine),
                Err(error) => {
                    group.stop_handle().abort();
                    return Err(error);
                }
            }
            group.background.push(background);
        }
        Ok(group)
    }

    /// Starts all engines at the instant `at`.
    pub fn start(&self, at: Instant) {
        self.engines.iter().for_each(|engine| engine.start(at));
    }

    /// As [`Engine::set_assignment`], with one assignment for each engine.
    pub fn set_assignments(&self, assignments: impl IntoIterator<Item = ShareAssignment>) -> Vec<Duration> {
        self.engines.iter().zip(assignments).map(|(engine, assignment)| engine.set_assignment(assignment)).collect()
    }

    pub fn stop_handle(&self) -> EngineGroupStopHandle {
        EngineGroupStopHandle(self.engines.iter().map(Engine::stop_handle).collect())
    }

    /// The number of iterations in progress, for reading at any time.
    pub fn busy_users(&self) -> BusyUsers {
        self.engines.iter().map(Engine::busy_users).collect()
    }

    /// As [`Engine::take_user_changes`], of the first engine.
    pub fn take_user_changes(&self) -> BTreeMap<u64, bool> {
        self.engines.first().map(Engine::take_user_changes).unwrap_or_default()
    }

    /// As [`Engine::load_end`], without background engines.
    pub fn load_end(&self) -> Duration {
        let foreground = self.engines.iter().zip(&self.background).filter(|(_, background)| !**background);
        foreground.map(|(engine, _)| engine.load_end()).max().unwrap_or_default()
    }

    /// The sources of the group's deltas.
    pub fn sources(&self) -> Vec<SourceId> {
        self.engines.iter().flat_map(|engine| engine.sources().to_vec()).collect()
    }

    /// The next delta; `None` when all engines have ended. An engine that fails ends the others.
    pub async fn next_delta(&mut self) -> Option<Delta> {
        loop {
            if self.ended.iter().all(|ended| *ended) {
                return None;
            }
            // Always polled in the same order: with one delta per second and thread, no engine can
            // starve another.
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

    /// As [`Engine::failure`], of the first engine that has one.
    pub fn failure(&self) -> Option<&str> {
        self.engines.iter().find_map(Engine::failure)
    }

    /// Drains the background engines once all other engines have ended.
    fn on_engine_ended(&mut self, index: usize) {
        self.ended[index] = true;
        if self.engines[index].failure().is_some() {
            return self.stop_handle().abort();
        }
        let in_foreground = |index: usize| !self.background[index] && !self.ended[index];
        if !(0..self.engines.len()).any(in_foreground) {
            let background_engines = self.engines.iter().zip(&self.background).filter(|(_, background)| **background);
            background_engines.for_each(|(engine, _)| engine.stop_handle().drain());
        }
    }

    /// Waits for all threads. Returns the longest times of any thread; background engines do not
    /// count as active.
    pub fn join(self) -> Result<LoadOutcome, EngineError> {
        let mut all = LoadOutcome::NONE;
        for (engine, background) in self.engines.into_iter().zip(self.background) {
            let mut outcome = engine.join()?;
            if background {
                outcome.active = Duration::ZERO;
            }
            all.include(outcome);
        }
        Ok(all)
    }
}

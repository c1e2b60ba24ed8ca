//! What a fleet should be doing: the desired state of one run, as every worker reads it. Changed only by replacing it whole.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

use crate::{Profile, ProfileError, ProfileStage, StopReason};

/// How long a paused run waits for somebody to resume it.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// The counter from which a fleet draws the iterations of a closed run that has so many and no more.
pub const ITERATIONS_COUNTER: &str = "iterations";

/// The desired state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// This run and no other: a store that was restarted empty counts its epochs from the beginning again.
    #[serde(default)]
    pub run: String,
    /// Where the plan with all it needs is kept, by its content.
    pub bundle: String,
    /// The load over time; changed by those who steer the run.
    pub profile: Profile,
    /// When all start, in milliseconds of the store's clock; `None` while workers prepare.
    pub start_at_ms: Option<u64>,
    /// It is several scenarios with a load each, so that there is no one level to change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Workers that were there at the beginning.
    pub expected: Vec<String>,
    /// By when they must be ready, in milliseconds of the store's clock.
    pub ready_by_ms: u64,
    /// What was left to do when the run was paused.
    #[serde(default)]
    pub paused: Option<Vec<ProfileStage>>,
    #[serde(default)]
    pub stop: Option<RunStopRequest>,
    /// Who was told to set the run up, where the scenario does. Nobody is told twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up: Option<HookAssignment>,
    /// Who was told to tear it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tear_down: Option<HookAssignment>,
    /// Parameters for the scenario, by name.
    #[serde(default)]
    pub params: BTreeMap<String, serde_json::Value>,
}

/// A worker that was told to do something once for the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookAssignment {
    pub worker: String,
    /// Which life of it: one that was restarted knows nothing of the order.
    pub instance: u64,
}

/// Why and how a run is to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStopRequest {
    pub reason: StopReason,
    /// Cut off what is under way.
    pub abort: bool,
    /// In milliseconds of the store's clock.
    pub asked_at_ms: u64,
    /// For people, when something went wrong.
    #[serde(default)]
    pub message: Option<String>,
}

/// Why a run cannot be changed like this.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunChangeError {
    #[error("the test is paused already")]
    PausedAlready,
    #[error("the test is not paused")]
    NotPaused,
    #[error("the test is paused: resume it before its load is changed")]
    Paused,
    #[error(
        "several scenarios run together, each with its own load: there is no one level to change. Stop the test, or run one of them"
    )]
    MultipleScenarios,
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl RunSpec {
    /// Run `run` of the plan that is kept as `bundle`, as it is when nobody has been asked for anything yet.
    pub fn new(run: impl Into<String>, bundle: impl Into<String>, profile: Profile) -> RunSpec {
        RunSpec {
            run: run.into(),
            bundle: bundle.into(),
            profile,
            start_at_ms: None,
            several: false,
            expected: Vec::new(),
            ready_by_ms: 0,
            paused: None,
            stop: None,
            set_up: None,
            tear_down: None,
            params: BTreeMap::new(),
        }
    }

    /// Whether it was to end because it is over.
    pub fn is_complete(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.reason == StopReason::Completed && !stop.abort)
    }

    /// When the load is to end, seen at `at`: of a paused run as if it were resumed then.
    pub fn planned_end(&self, at: Duration) -> Duration {
        match &self.paused {
            Some(rest) => at + rest.iter().map(|stage| stage.duration).sum::<Duration>(),
            None => self.profile.duration(),
        }
    }

    /// The level from `at` on, until the planned end.
    pub fn set_level(&mut self, at: Duration, level: f64) -> Result<(), RunChangeError> {
        self.ramp_level(at, level, Duration::ZERO)
    }

    /// From `at` on towards `level`, reached after `ramp` and kept until the planned end, which may come first.
    pub fn ramp_level(&mut self, at: Duration, level: f64, ramp: Duration) -> Result<(), RunChangeError> {
        if self.paused.is_some() {
            return Err(RunChangeError::Paused);
        }
        let left = self.profile.duration().saturating_sub(at);
        let rising = ramp.min(left);
        let from = self.profile.level(at);
        let share = if ramp.is_zero() { 1.0 } else { rising.as_secs_f64() / ramp.as_secs_f64() };
        let tail = [
            ProfileStage { duration: rising, from, to: from + (level - from) * share },
            ProfileStage { duration: left - rising, from: level, to: level },
        ];
        self.profile = self.profile.replace_tail(at, &tail)?;
        Ok(())
    }

    /// No load from `at` on, until it is resumed.
    pub fn pause(&mut self, at: Duration) -> Result<(), RunChangeError> {
        if self.paused.is_some() {
            return Err(RunChangeError::PausedAlready);
        }
        let rest = self.profile.tail(at);
        self.profile = self.profile.replace_tail(at, &[ProfileStage { duration: MAX_PAUSE, from: 0.0, to: 0.0 }])?;
        self.paused = Some(rest);
        Ok(())
    }

    /// From `at` on everything that was left to do at the pause.
    pub fn resume(&mut self, at: Duration) -> Result<(), RunChangeError> {
        let rest = self.paused.take().ok_or(RunChangeError::NotPaused)?;
        self.profile = self.profile.replace_tail(at, &rest)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn order() -> RunSpec {
        RunSpec::new("r", "b", Profile::constant(100.0, S(10)).unwrap())
    }

    #[test]
    fn a_pause_takes_nothing_away() {
        let mut order = order();
        order.pause(S(4)).unwrap();
        assert_eq!((order.profile.level(S(3)), order.profile.level(S(100))), (100.0, 0.0));
        assert_eq!((order.planned_end(S(4)), order.planned_end(S(9))), (S(10), S(15)), "as if it were resumed then");
        assert_eq!(order.pause(S(5)), Err(RunChangeError::PausedAlready));
        assert_eq!(order.set_level(S(5), 9.0), Err(RunChangeError::Paused));
        order.resume(S(20)).unwrap();
        assert_eq!((order.profile.duration(), order.profile.area(S(26))), (S(26), 1000.0));
        assert_eq!(order.resume(S(21)), Err(RunChangeError::NotPaused));
    }

    #[test]
    fn a_new_level_lasts_until_the_planned_end() {
        let mut order = order();
        order.set_level(S(5), 300.0).unwrap();
        assert_eq!((order.profile.duration(), order.profile.area(S(10))), (S(10), 2000.0));
    }

    #[test]
    fn a_new_level_may_be_reached_slowly() {
        let mut order = order();
        order.ramp_level(S(4), 300.0, S(2)).unwrap();
        assert_eq!([4, 5, 6, 9].map(|at| order.profile.level(S(at))), [100.0, 200.0, 300.0, 300.0]);
        assert_eq!(order.profile.duration(), S(10));
        // A ramp that is longer than the run gets as far as it gets.
        order.ramp_level(S(8), 0.0, S(4)).unwrap();
        assert_eq!((order.profile.duration(), order.profile.level(S(9))), (S(10), 225.0));
    }
}

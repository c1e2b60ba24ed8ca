//! What a fleet should do: the desired state of one run, which every worker reads. The leader and
//! clients change it only by replacing it as a whole.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

use crate::{
    AcceptedChange, HIGHEST_LEVEL, LevelStep, LevelUnit, LoadChange, Profile, ProfileError, ProfileStage, StopReason,
    protocol::ProtocolVersion,
};

/// How long a run may stay paused.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// The counter from which a fleet takes the iterations of a closed run with an iteration limit.
pub const ITERATIONS_COUNTER: &str = "iterations";

/// The desired state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The version of the messages between the leader and the workers of this run.
    #[serde(default = "ProtocolVersion::unnamed")]
    pub protocol: ProtocolVersion,
    /// Identifies the run. The epoch is not enough: a store that restarts empty counts epochs from
    /// 1 again.
    #[serde(default, rename = "run")]
    pub run_id: String,
    /// The key of the bundle in the store, by its content.
    pub bundle: String,
    /// The load over time. Commands on the run change it.
    pub profile: Profile,
    /// When all workers start, in milliseconds of the store's clock; `None` while they prepare.
    pub start_at_ms: Option<u64>,
    /// Whether several scenarios run with a load each, so that no single level can be changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// The workers that were there at the beginning.
    pub expected: Vec<String>,
    /// By when they must be ready, in milliseconds of the store's clock.
    pub ready_by_ms: u64,
    /// The rest of the profile when the run was paused.
    #[serde(default)]
    pub paused: Option<Vec<ProfileStage>>,
    #[serde(default)]
    pub stop: Option<RunStopRequest>,
    /// What was changed in the load since the start, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<AcceptedChange>,
    /// The worker that runs set-up, if the scenario has it. It is assigned only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up: Option<HookAssignment>,
    /// The worker that runs tear-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tear_down: Option<HookAssignment>,
    /// Parameters for the scenario, by name.
    #[serde(default)]
    pub params: BTreeMap<String, serde_json::Value>,
}

/// A worker that does something once for the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookAssignment {
    pub worker: String,
    /// Its instance: a restarted worker does not know of the assignment.
    pub instance: u64,
}

/// Why and how a run must end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStopRequest {
    pub reason: StopReason,
    /// Whether to abort iterations in progress.
    pub abort: bool,
    /// In milliseconds of the store's clock.
    pub asked_at_ms: u64,
    /// A message for people, when something failed.
    #[serde(default)]
    pub message: Option<String>,
}

/// Why the text of a run's specification cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunSpecError {
    #[error(
        "the run has fleet protocol {found} and this program has {}: use the same release of squall for the command \
         line, the orchestrator and the workers",
        ProtocolVersion::CURRENT
    )]
    OtherProtocol { found: ProtocolVersion },
    #[error(transparent)]
    Malformed(serde_json::Error),
}

/// The part of a [`RunSpec`] that every version has.
#[derive(Deserialize)]
struct RunSpecHeader {
    #[serde(default = "ProtocolVersion::unnamed")]
    protocol: ProtocolVersion,
}

/// Why a run cannot be changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunChangeError {
    #[error("the test is paused already")]
    PausedAlready,
    #[error("the test is not paused")]
    NotPaused,
    #[error("the test is paused: resume it before its load is changed")]
    Paused,
    #[error(
        "several scenarios run together, each with its own load, so no single level can be changed: stop the test, or run one of them"
    )]
    MultipleScenarios,
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl RunSpec {
    /// The run `run_id` of the plan in `bundle`, before any command.
    pub fn new(run_id: impl Into<String>, bundle: impl Into<String>, profile: Profile) -> RunSpec {
        RunSpec {
            protocol: ProtocolVersion::CURRENT,
            run_id: run_id.into(),
            bundle: bundle.into(),
            profile,
            start_at_ms: None,
            several: false,
            expected: Vec::new(),
            ready_by_ms: 0,
            paused: None,
            stop: None,
            changes: Vec::new(),
            set_up: None,
            tear_down: None,
            params: BTreeMap::new(),
        }
    }

    /// The text in the run record.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a run spec is text and numbers")
    }

    /// Reads what [`RunSpec::encode`] wrote. Refuses other protocol versions, whatever else they hold.
    pub fn decode(text: &str) -> Result<RunSpec, RunSpecError> {
        let header: RunSpecHeader = serde_json::from_str(text).map_err(RunSpecError::Malformed)?;
        match header.protocol.is_current() {
            true => serde_json::from_str(text).map_err(RunSpecError::Malformed),
            false => Err(RunSpecError::OtherProtocol { found: header.protocol }),
        }
    }

    /// Whether the run ended by itself.
    pub fn is_complete(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.reason == StopReason::Completed && !stop.abort)
    }

    /// Whether the run was asked to end before the planned end of its load.
    pub fn is_ended_early(&self) -> bool {
        let (Some(stop), Some(start_at_ms)) = (&self.stop, self.start_at_ms) else { return false };
        let asked_at = Duration::from_millis(stop.asked_at_ms.saturating_sub(start_at_ms));
        asked_at < self.planned_end(asked_at)
    }

    /// When the load should end. For a paused run, as if it were resumed at `at`.
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

    /// From `at` on towards `level`, reached after `ramp` and kept until the planned end, which may
    /// come first.
    pub fn ramp_level(&mut self, at: Duration, level: f64, ramp: Duration) -> Result<(), RunChangeError> {
        if self.paused.is_some() {
            return Err(RunChangeError::Paused);
        }
        let left = self.profile.duration().saturating_sub(at);
        let rising = ramp.min(left);
        let from = self.profile.level(at);
        let fraction = if ramp.is_zero() { 1.0 } else { rising.as_secs_f64() / ramp.as_secs_f64() };
        let tail = [
            ProfileStage { duration: rising, from, to: from + (level - from) * fraction },
            ProfileStage { duration: left - rising, from: level, to: level },
        ];
        self.profile = self.profile.replace_tail(at, &tail)?;
        self.record_change((at, ramp), LoadChange::Level { before: from, now: level });
        Ok(())
    }

    /// One step up or down from `at` on, until the planned end. Returns the previous and the new level.
    pub fn step_level(
        &mut self,
        at: Duration,
        (step, unit): (LevelStep, LevelUnit),
    ) -> Result<(f64, f64), RunChangeError> {
        let before = self.profile.level(at);
        let level = step.apply(before, unit).min(HIGHEST_LEVEL);
        self.set_level(at, level).map(|()| (before, level))
    }

    /// No load from `at` on, until it is resumed.
    pub fn pause(&mut self, at: Duration) -> Result<(), RunChangeError> {
        if self.paused.is_some() {
            return Err(RunChangeError::PausedAlready);
        }
        let rest = self.profile.tail(at);
        self.profile = self.profile.replace_tail(at, &[ProfileStage { duration: MAX_PAUSE, from: 0.0, to: 0.0 }])?;
        self.paused = Some(rest);
        self.record_change((at, Duration::ZERO), LoadChange::Paused);
        Ok(())
    }

    /// The level that a resume restores; only of a paused run.
    pub fn resumes_at(&self) -> Option<f64> {
        Some(self.paused.as_ref()?.first()?.from)
    }

    /// The profile of a run that ended at `end`: without the rest of a pause.
    pub fn profile_until(&self, end: Duration) -> Profile {
        let resumed = self.paused.as_ref().and_then(|rest| self.profile.replace_tail(end, rest).ok());
        resumed.unwrap_or_else(|| self.profile.clone())
    }

    /// From `at` on the rest of the profile that the pause has kept.
    pub fn resume(&mut self, at: Duration) -> Result<(), RunChangeError> {
        let rest = self.paused.take().ok_or(RunChangeError::NotPaused)?;
        self.profile = self.profile.replace_tail(at, &rest)?;
        let level = self.profile.level(at);
        self.record_change((at, Duration::ZERO), LoadChange::Resumed { level });
        Ok(())
    }

    /// The writer of a run record replaces the number of the change by the record's revision.
    fn record_change(&mut self, (at, ramp): (Duration, Duration), change: LoadChange) {
        let (at_ms, ramp_ms) = (at.as_millis() as u64, ramp.as_millis() as u64);
        let revision = self.changes.len() as u64 + 1;
        self.changes.push(AcceptedChange { at_ms, ramp_ms, revision, change });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn spec() -> RunSpec {
        RunSpec::new("r", "b", Profile::constant(100.0, S(10)).unwrap())
    }

    #[test]
    fn spec_has_golden_json_and_decodes_back() {
        let golden = r#"{"protocol":1,"run":"r","bundle":"b","profile":{"stages":[{"duration":{"secs":10,"nanos":0},"from":100.0,"to":100.0}]},"start_at_ms":null,"expected":[],"ready_by_ms":0,"paused":null,"stop":null,"params":{}}"#;
        assert_eq!(spec().encode(), golden);
        assert_eq!(RunSpec::decode(golden).unwrap(), spec());
        assert_eq!(RunSpec::decode(&golden.replace(r#""protocol":1,"#, "")).unwrap(), spec(), "a spec without version");
    }

    #[test]
    fn spec_of_another_protocol_version_is_refused_with_both_versions() {
        let error = RunSpec::decode(r#"{"protocol":2,"tasks":"of a later version"}"#).unwrap_err();
        assert!(matches!(error, RunSpecError::OtherProtocol { .. }), "{error}");
        assert!(error.to_string().starts_with("the run has fleet protocol 2 and this program has 1: use"), "{error}");
        assert!(matches!(RunSpec::decode(r#"{"protocol":1,"run":7}"#), Err(RunSpecError::Malformed(_))));
    }

    #[test]
    fn paused_and_resumed_run_keeps_its_load() {
        let mut spec = spec();
        spec.pause(S(4)).unwrap();
        assert_eq!((spec.profile.level(S(3)), spec.profile.level(S(100))), (100.0, 0.0));
        assert_eq!((spec.planned_end(S(4)), spec.planned_end(S(9))), (S(10), S(15)), "as if it were resumed then");
        assert_eq!(spec.pause(S(5)), Err(RunChangeError::PausedAlready));
        assert_eq!(spec.set_level(S(5), 9.0), Err(RunChangeError::Paused));
        spec.resume(S(20)).unwrap();
        assert_eq!((spec.profile.duration(), spec.profile.area(S(26))), (S(26), 1000.0));
        assert_eq!(spec.resume(S(21)), Err(RunChangeError::NotPaused));
    }

    #[test]
    fn changes_of_the_load_are_kept_in_the_spec_and_refused_ones_are_not() {
        let mut spec = spec();
        spec.ramp_level(S(2), 150.0, S(1)).unwrap();
        spec.pause(S(4)).unwrap();
        spec.pause(S(5)).unwrap_err();
        spec.set_level(S(5), 9.0).unwrap_err();
        spec.resume(S(6)).unwrap();
        let decoded = RunSpec::decode(&spec.encode()).unwrap();
        let changes: Vec<_> = decoded.changes.iter().map(|one| (one.at_ms, one.ramp_ms, one.change)).collect();
        let level = LoadChange::Level { before: 100.0, now: 150.0 };
        let expected =
            [(2000, 1000, level), (4000, 0, LoadChange::Paused), (6000, 0, LoadChange::Resumed { level: 150.0 })];
        assert_eq!(changes, expected);
    }

    #[test]
    fn new_level_lasts_until_the_planned_end() {
        let mut spec = spec();
        spec.set_level(S(5), 300.0).unwrap();
        assert_eq!((spec.profile.duration(), spec.profile.area(S(10))), (S(10), 2000.0));
    }

    #[test]
    fn run_that_ends_in_a_pause_is_reported_without_the_pause() {
        let mut spec = spec();
        spec.pause(S(4)).unwrap();
        assert_eq!((spec.resumes_at(), spec.profile_until(S(7)).duration()), (Some(100.0), S(13)));
        spec.resume(S(8)).unwrap();
        assert_eq!((spec.resumes_at(), spec.profile_until(S(9))), (None, spec.profile.clone()));
    }

    #[test]
    fn step_changes_the_level_until_the_planned_end() {
        let mut spec = spec();
        assert_eq!(spec.step_level(S(5), (LevelStep::Up, LevelUnit::Rate)), Ok((100.0, 110.0)));
        assert_eq!(spec.step_level(S(6), (LevelStep::Up, LevelUnit::Rate)), Ok((110.0, 120.0)));
        assert_eq!((spec.profile.duration(), spec.profile.area(S(10))), (S(10), 500.0 + 110.0 + 4.0 * 120.0));
        spec.pause(S(7)).unwrap();
        assert_eq!(spec.step_level(S(8), (LevelStep::Down, LevelUnit::Rate)), Err(RunChangeError::Paused));
    }

    #[test]
    fn new_level_is_reached_after_its_ramp() {
        let mut spec = spec();
        spec.ramp_level(S(4), 300.0, S(2)).unwrap();
        assert_eq!([4, 5, 6, 9].map(|at| spec.profile.level(S(at))), [100.0, 200.0, 300.0, 300.0]);
        assert_eq!(spec.profile.duration(), S(10));
        // A ramp longer than the run does not reach its level.
        spec.ramp_level(S(8), 0.0, S(4)).unwrap();
        assert_eq!((spec.profile.duration(), spec.profile.level(S(9))), (S(10), 225.0));
    }
}

//! The load of a run on this machine, which a person may change: pause, resume, raise, lower. The
//! rules are those of a fleet ([`RunSpec`]). It makes no load and reads no clock: `local_run` passes
//! the profile to the load generator.

use squall_model::{FleetEvent, LoadChange, Plan, Profile, RunChangeError, RunSpec};
use std::time::Duration;

use crate::run_control::LoadCommand;

/// A change takes effect after this delay, when every process of the run has received it.
const CHANGE_DELAY: Duration = Duration::from_millis(100);

/// Why a load command was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadChangeError {
    #[error("the load of the run is over")]
    LoadOver,
    #[error(transparent)]
    Refused(#[from] RunChangeError),
}

/// The plan of a run with its current load.
pub(crate) struct LiveLoad {
    /// Its profile is the current one.
    pub(crate) plan: Plan,
    spec: RunSpec,
}

impl LiveLoad {
    /// `several` scenarios have a load each, so that no single level can be changed.
    pub(crate) fn new(plan: &Plan, several: bool) -> LiveLoad {
        let spec = RunSpec { several, ..RunSpec::new("", "", plan.load.model.profile().clone()) };
        LiveLoad { plan: plan.clone(), spec }
    }

    /// Carries out `command`, given `elapsed` after the start of the run. Returns what changed and
    /// from when on.
    pub(crate) fn apply(
        &mut self,
        command: LoadCommand,
        elapsed: Duration,
    ) -> Result<(LoadChange, Duration), LoadChangeError> {
        // Whole milliseconds, because the report prints the length of the load.
        let at = Duration::from_millis((elapsed + CHANGE_DELAY).as_millis() as u64);
        if self.spec.several {
            return Err(RunChangeError::MultipleScenarios.into());
        }
        if at >= self.spec.profile.duration() {
            return Err(LoadChangeError::LoadOver);
        }
        let change = match command {
            LoadCommand::Pause => self.spec.pause(at).map(|()| LoadChange::Paused)?,
            LoadCommand::Resume => {
                let level = self.spec.resumes_at().unwrap_or_default();
                self.spec.resume(at).map(|()| LoadChange::Resumed { level })?
            }
            LoadCommand::Step(step) => {
                let (before, now) = self.spec.step_level(at, (step, self.plan.load.model.unit()))?;
                LoadChange::Level { before, now }
            }
        };
        self.plan.load.model.set_profile(self.spec.profile.clone());
        Ok((change, at))
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.spec.profile
    }

    /// When the load should end. Of a paused run, as if it were resumed at `at`.
    pub(crate) fn planned_end(&self, at: Duration) -> Duration {
        self.spec.planned_end(at)
    }

    /// The level that a resume restores; only of a paused run.
    pub(crate) fn resumes_at(&self) -> Option<f64> {
        self.spec.resumes_at()
    }

    /// The changes so far as events.
    pub(crate) fn events(&self) -> Vec<FleetEvent> {
        let unit = self.plan.load.model.unit();
        self.spec.changes.iter().map(|change| change.event(unit)).collect()
    }

    /// The plan of a run whose load ended at `end`, for its report.
    pub(crate) fn into_plan(mut self, end: Duration) -> Plan {
        self.plan.load.model.set_profile(self.spec.profile_until(end));
        self.plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_model::{Arrivals, LevelStep, Load, LoadModel};

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn live_load(several: bool) -> LiveLoad {
        let rate = Profile::constant(100.0, S(10)).expect("a profile");
        let load = Load {
            model: LoadModel::Open { rate, arrivals: Arrivals::Even },
            iterations: None,
            warm_up: Duration::ZERO,
        };
        let (name, target) = (String::new(), String::new());
        LiveLoad::new(&Plan { name, target, load, tasks: vec![], thresholds: vec![], seed: 0 }, several)
    }

    #[test]
    fn paused_and_raised_load_keeps_its_duration_under_load() {
        let mut load = live_load(false);
        assert_eq!(load.apply(LoadCommand::Pause, S(2)).unwrap().0, LoadChange::Paused);
        assert_eq!((load.resumes_at(), load.planned_end(S(4))), (Some(100.0), S(4) + S(10) - S(2) - CHANGE_DELAY));
        assert_eq!(load.apply(LoadCommand::Resume, S(4)).unwrap().0, LoadChange::Resumed { level: 100.0 });
        assert_eq!(load.planned_end(S(5)), S(12));
        let (change, at) = load.apply(LoadCommand::Step(LevelStep::Up), S(6)).unwrap();
        assert_eq!((change, at), (LoadChange::Level { before: 100.0, now: 110.0 }, S(6) + CHANGE_DELAY));
        assert_eq!((load.profile().level(S(7)), load.plan.load.model.profile()), (110.0, load.profile()));
        let events: Vec<(f64, String)> = load.events().into_iter().map(|event| (event.t_s, event.text)).collect();
        let expected = [(2.1, "load paused"), (4.1, "load resumed at 100/s"), (6.1, "rate 100 → 110/s")];
        assert_eq!(events, expected.map(|(t_s, text)| (t_s, text.to_owned())));
    }

    #[test]
    fn command_that_cannot_be_carried_out_changes_nothing() {
        let mut load = live_load(false);
        let refused = |result: Result<_, LoadChangeError>| result.unwrap_err().to_string();
        assert!(refused(load.apply(LoadCommand::Resume, S(2))).contains("not paused"));
        assert!(refused(load.apply(LoadCommand::Pause, S(10))).contains("is over"));
        assert_eq!(load.profile().duration(), S(10));
        assert!(refused(live_load(true).apply(LoadCommand::Pause, S(2))).contains("several scenarios"));
    }
}

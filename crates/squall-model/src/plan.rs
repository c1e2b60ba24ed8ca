//! The plan of a run: what every face of Squall (URL, TOML, Python, CQL) is turned into before anything is sent. It carries
//! what the engine and the report need; what a task does is the driver's own.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Load, Pause, Threshold};

/// A validated run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub name: String,
    /// What is under test, as shown to people.
    pub target: String,
    pub load: Load,
    pub tasks: Vec<TaskSpec>,
    pub thresholds: Vec<Threshold>,
    /// Decides every random choice of the run; the same seed gives the same order of tasks.
    pub seed: u64,
}

/// Position of a task in [`Plan::tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskIndex(pub usize);

/// What the engine must know of a task to choose it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    pub name: String,
    /// Share of iterations relative to the other tasks; above 0.
    pub weight: f64,
    /// Tasks that the same user must have completed before.
    pub requires: Vec<TaskIndex>,
    /// Least distance between two starts of this task by the same user.
    pub every: Option<TaskInterval>,
}

/// A distance in time, fixed or drawn anew each time.
pub type TaskInterval = Pause;

impl TaskSpec {
    /// A task of weight 1 without conditions.
    pub fn new(name: impl Into<String>) -> TaskSpec {
        TaskSpec { name: name.into(), weight: 1.0, requires: Vec::new(), every: None }
    }

    /// Whether a user may always run this task, whatever it has done before.
    pub fn is_unconditional(&self) -> bool {
        self.requires.is_empty() && self.every.is_none()
    }
}

impl Plan {
    /// The target, unless the name says it already, as that of a URL does.
    pub fn distinct_target(&self) -> Option<&str> {
        Some(self.target.as_str()).filter(|target| !target.is_empty() && !self.name.starts_with(target))
    }

    /// How long the profile lasts.
    pub fn duration(&self) -> Duration {
        self.load.model.profile().duration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrivals, LoadModel, Profile};

    #[test]
    fn a_target_is_told_apart_from_a_name_that_has_it() {
        let rate = Profile::constant(1.0, Duration::from_secs(1)).expect("a profile");
        let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let (tasks, thresholds) = (Vec::new(), Vec::new());
        let mut plan = Plan { name: "shop".into(), target: "http://h:1".into(), load, tasks, thresholds, seed: 0 };
        assert_eq!(plan.distinct_target(), Some("http://h:1"));
        plan.name = "http://h:1/health".into();
        assert_eq!(plan.distinct_target(), None);
    }
}

//! The plan of a run: what every kind of scenario (URL, TOML, Python) is compiled to before any
//! request. It holds what the engine and the report need; the driver knows what a task does.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Load, Pause, Threshold};

/// A validated run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub name: String,
    /// The target, as shown to people.
    pub target: String,
    pub load: Load,
    pub tasks: Vec<TaskSpec>,
    pub thresholds: Vec<Threshold>,
    /// Decides all random choices of the run. The same seed gives the same order of tasks.
    pub seed: u64,
}

/// The index of a task in [`Plan::tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskIndex(pub usize);

/// What the engine needs to choose a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    pub name: String,
    /// The task's part of all iterations, relative to other tasks; above 0.
    pub weight: f64,
    /// Tasks that the same user must complete first.
    pub requires: Vec<TaskIndex>,
    /// The least time between two starts of this task by the same user.
    pub every: Option<TaskInterval>,
}

/// An interval, fixed or random.
pub type TaskInterval = Pause;

impl TaskSpec {
    /// A task of weight 1 without conditions.
    pub fn new(name: impl Into<String>) -> TaskSpec {
        TaskSpec { name: name.into(), weight: 1.0, requires: Vec::new(), every: None }
    }

    /// Whether a user may run this task at any time.
    pub fn is_unconditional(&self) -> bool {
        self.requires.is_empty() && self.every.is_none()
    }
}

impl Plan {
    /// The target, unless the plan's name already contains it, as for a URL.
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
    fn target_is_distinct_unless_the_name_contains_it() {
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

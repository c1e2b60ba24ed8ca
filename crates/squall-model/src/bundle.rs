//! A plan with everything that a worker needs to carry it out, as one JSON text in the store.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{EngineLimits, Load, Plan};

/// A plan for the workers of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// What the engine and the report must know.
    pub plan: Plan,
    /// The words of the command line that made the plan, without the program and the command.
    pub arguments: Vec<String>,
    /// The files that the scenario reads, in Base64, by the name that the plan uses.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The environment variables that the scenario reads.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub limits: EngineLimits,
    /// Whether the scenario has set-up and tear-down hooks, which run once in the fleet.
    #[serde(default)]
    pub hooks: bool,
    /// The loads of the scenarios that run together; the plan's load is their sum. Empty for one
    /// scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Load>,
}

impl Bundle {
    /// Whether it has more than one scenario.
    pub fn has_multiple_scenarios(&self) -> bool {
        !self.together.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadModel, Pause, Profile, TaskSpec};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn bundle() -> Value {
        let users = Profile::constant(5.0, Duration::from_secs(60)).unwrap();
        let pause = Pause::Between(Duration::ZERO, Duration::from_secs(1));
        let load = Load { model: LoadModel::Closed { users, pause }, iterations: None, warm_up: Duration::ZERO };
        let tasks = vec![TaskSpec { every: Some(Pause::NONE), ..TaskSpec::new("a") }];
        let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
        let (grace, slack) = (Duration::from_secs(1), Duration::ZERO);
        let limits = EngineLimits { threads: None, max_users: 9, grace, slack, late_after: slack, phases: false };
        let bundle = Bundle {
            plan,
            arguments: Vec::new(),
            files: [].into(),
            env: [].into(),
            limits,
            hooks: false,
            together: Vec::new(),
        };
        serde_json::to_value(bundle).unwrap()
    }

    #[test]
    fn unknown_fields_of_a_bundle_are_refused_at_every_depth() {
        serde_json::from_value::<Bundle>(bundle()).unwrap();
        for place in [
            "",
            "/plan",
            "/plan/load",
            "/plan/load/model/Closed",
            "/plan/load/model/Closed/users",
            "/plan/tasks/0",
            "/limits",
        ] {
            let mut bundle = bundle();
            let object = bundle.pointer_mut(place).and_then(Value::as_object_mut).expect(place);
            object.insert("extra".to_owned(), json!(1));
            let refused = serde_json::from_value::<Bundle>(bundle).expect_err(place).to_string();
            assert!(refused.contains("unknown field `extra`"), "{place}: {refused}");
        }
    }

    /// A leader adds to these times; an overflow would end it and each leader after it.
    #[test]
    fn durations_that_could_overflow_are_refused() {
        let longest = json!({"secs": u64::MAX, "nanos": 0});
        for place in [
            "/limits/grace",
            "/limits/slack",
            "/limits/late_after",
            "/plan/load/warm_up",
            "/plan/load/model/Closed/pause/Between/0",
            "/plan/load/model/Closed/pause/Between/1",
            "/plan/tasks/0/every/Fixed",
            "/plan/load/model/Closed/users/stages/0/duration",
        ] {
            let mut bundle = bundle();
            *bundle.pointer_mut(place).expect(place) = longest.clone();
            let refused = serde_json::from_value::<Bundle>(bundle).expect_err(place).to_string();
            assert!(refused.contains("hundred years"), "{place}: {refused}");
        }
    }
}

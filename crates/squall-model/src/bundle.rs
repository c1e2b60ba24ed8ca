//! The bundle of a fleet run: the plan, the scenario's settings and every file a worker needs, as one
//! JSON document in the store. It opens no scenario: squall-cli builds bundles and opens them on
//! workers; the leader and the API read only the plan.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

use crate::{EngineLimits, Load, Plan};

/// What a fleet needs to run a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// First, so that a newer bundle is refused for its version and not for an unknown field. The
    /// alias is the field of version 1, which had no version.
    #[serde(alias = "arguments")]
    pub version: BundleVersion,
    /// What the engine and the report need.
    pub plan: Plan,
    /// How a worker loads the scenario.
    pub settings: EncodedSettings,
    /// Parameters of the scenario by name: `--param` and those of the request that starts the test.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// The files that the scenario reads, by the name it uses; in Base64.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The environment variables that the scenario reads.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The limits of each worker.
    pub limits: EngineLimits,
    /// Whether the scenario has set-up and tear-down hooks, which run once in the fleet.
    #[serde(default)]
    pub hooks: bool,
    /// The loads of scenarios that run together; the plan's load is their sum. Empty for one
    /// scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Load>,
    /// By which the API judges the finished run.
    #[serde(default, skip_serializing_if = "ScheduleRule::is_default")]
    pub schedule_rule: ScheduleRule,
}

/// Whether a run that did not make its planned load can pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleRule {
    /// `--strict`: no start may be missing, and the generator must have kept its schedule.
    Strict,
    /// At least 99 % of the planned starts must have been made.
    #[default]
    MostStarts,
    /// `--allow-missing`.
    AllowMissing,
}

impl ScheduleRule {
    fn is_default(&self) -> bool {
        *self == ScheduleRule::default()
    }
}

impl Bundle {
    /// A bundle of one scenario without settings, parameters, files and hooks.
    pub fn new(plan: Plan, limits: EngineLimits) -> Bundle {
        Bundle {
            version: BundleVersion,
            plan,
            settings: EncodedSettings::default(),
            params: BTreeMap::new(),
            files: BTreeMap::new(),
            env: BTreeMap::new(),
            limits,
            hooks: false,
            together: Vec::new(),
            schedule_rule: ScheduleRule::default(),
        }
    }

    /// Whether it is more than one scenario.
    pub fn has_multiple_scenarios(&self) -> bool {
        !self.together.is_empty()
    }
}

/// The version of the bundle's format. Only the version that this build writes can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BundleVersion;

impl BundleVersion {
    /// Version 1 carried the words of the command line in `arguments`.
    pub const CURRENT: u64 = 2;
}

impl Serialize for BundleVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(BundleVersion::CURRENT)
    }
}

impl<'de> Deserialize<'de> for BundleVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BundleVersion, D::Error> {
        deserializer.deserialize_any(VersionVisitor)
    }
}

struct VersionVisitor;

impl<'de> Visitor<'de> for VersionVisitor {
    type Value = BundleVersion;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bundle version {}", BundleVersion::CURRENT)
    }

    fn visit_u64<E: Error>(self, version: u64) -> Result<BundleVersion, E> {
        match version == BundleVersion::CURRENT {
            true => Ok(BundleVersion),
            false => Err(version_error(version)),
        }
    }

    /// The `arguments` of version 1.
    fn visit_seq<A: SeqAccess<'de>>(self, mut arguments: A) -> Result<BundleVersion, A::Error> {
        while arguments.next_element::<IgnoredAny>()?.is_some() {}
        Err(version_error(1))
    }
}

fn version_error<E: Error>(found: u64) -> E {
    E::custom(format!(
        "the bundle has version {found}, this Squall reads version {}: use the same release of squall for the \
         command line, the orchestrator and the workers",
        BundleVersion::CURRENT
    ))
}

/// The settings of a scenario, encoded by squall-cli. The leader and the API pass them on unread.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EncodedSettings(Value);

impl EncodedSettings {
    /// Fails if `settings` cannot be written as JSON, for example a path that is not UTF-8.
    pub fn encode(settings: &impl Serialize) -> Result<EncodedSettings, serde_json::Error> {
        serde_json::to_value(settings).map(EncodedSettings)
    }

    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.0)
    }
}

/// Shows nothing: the settings may hold passwords and tokens.
impl fmt::Debug for EncodedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodedSettings(…)")
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
        let limits = EngineLimits { max_users: 9, grace, slack, late_after: slack, ..EngineLimits::default() };
        let bundle = Bundle::new(plan, limits);
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

    #[test]
    fn bundles_of_other_versions_are_refused_with_both_versions() {
        let mut newer = bundle();
        newer["version"] = json!(3);
        let mut older = bundle();
        let fields = older.as_object_mut().unwrap();
        fields.remove("version");
        fields.remove("settings");
        fields.insert("arguments".to_owned(), json!(["shop.toml", "--rate", "50"]));
        for (bundle, version) in [(newer, 3), (older, 1)] {
            let error = serde_json::from_value::<Bundle>(bundle).unwrap_err().to_string();
            let expected = format!("the bundle has version {version}, this Squall reads version 2");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn debug_output_of_a_bundle_hides_the_settings() {
        let mut bundle: Bundle = serde_json::from_value(bundle()).unwrap();
        bundle.settings = EncodedSettings::encode(&json!({"bearer": "secret"})).unwrap();
        assert!(!format!("{bundle:?}").contains("secret"));
    }
}

//! The part of a bundle that describes a run of `squall cql`: the words of cassandra-stress, and what its
//! connection files contained. A worker makes a driver of it. It connects to nothing.

use serde::{Deserialize, Serialize};
use squall_cql::{
    CqlCommand, CqlDriver, DatabaseTarget, DriverWork, NodeAddress, StressOperation, StressSettings, UserProfile,
    Workload, parse_command_line,
};
use squall_engine::PlannedScenario;
use squall_model::{Bundle, EncodedSettings};
use squall_worker::{OpenBundleError, RunnableBundle};

use crate::{any_driver::AnyDriver, exit::CliError};

/// What a worker needs besides the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CqlSource {
    words: Vec<String>,
    nodes: Vec<BundledNode>,
    user: Option<String>,
    password: Option<String>,
    /// The files of `profile=`, in its order.
    profiles: Vec<ProfileFile>,
}

/// A user profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileFile {
    /// As typed, for messages.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The operations of a command, with the profiles of `profile=`. Fails with a message.
pub(crate) fn workload(operation: &StressOperation, profiles: &[ProfileFile]) -> Result<Workload, String> {
    let parse = |file: &ProfileFile| UserProfile::parse(&file.path, &file.text).map_err(|error| error.to_string());
    let profiles = profiles.iter().map(parse).collect::<Result<_, _>>()?;
    Workload::new(operation, profiles).map_err(|error| error.to_string())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundledNode {
    host: String,
    port: Option<u16>,
}

/// The settings of a bundle of `squall cql`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CqlBundleSettings {
    cql: CqlSource,
}

impl CqlSource {
    /// `settings` and `nodes` are what `words` and the files that they name say.
    pub(crate) fn new(
        words: &[String],
        settings: &StressSettings,
        nodes: &[NodeAddress],
        profiles: Vec<ProfileFile>,
    ) -> CqlSource {
        let node = |node: &NodeAddress| BundledNode { host: node.host.clone(), port: node.port };
        CqlSource {
            words: words.to_vec(),
            nodes: nodes.iter().map(node).collect(),
            user: settings.mode.user.clone(),
            password: settings.mode.password.clone(),
            profiles,
        }
    }

    pub(crate) fn encode(self) -> Result<EncodedSettings, CliError> {
        EncodedSettings::encode(&CqlBundleSettings { cql: self })
            .map_err(|error| CliError::new(format!("the settings of the run cannot be sent to workers: {error}")))
    }

    /// `None` if the bundle is of `squall run`.
    pub(super) fn of(bundle: &Bundle) -> Option<CqlSource> {
        bundle.settings.decode().ok().map(|settings: CqlBundleSettings| settings.cql)
    }

    /// The driver of this worker.
    pub(super) fn open<D: squall_engine::Driver>(
        self,
        bundle: &Bundle,
    ) -> Result<RunnableBundle<AnyDriver<D>>, OpenBundleError> {
        let mut settings = match parse_command_line(&self.words) {
            Ok(CqlCommand::Stress(settings)) => *settings,
            _ => return Err(OpenBundleError::OtherTasks),
        };
        // The files that the words name are on the machine that started the run.
        (settings.mode.user, settings.mode.password) = (self.user, self.password);
        let node = |node: BundledNode| NodeAddress { host: node.host, port: node.port };
        let nodes: Vec<NodeAddress> = self.nodes.into_iter().map(node).collect();
        let target = DatabaseTarget::new(&settings, &nodes);
        let work = DriverWork {
            workload: workload(&settings.command.operation, &self.profiles).map_err(|_| OpenBundleError::OtherTasks)?,
            partitions: bundle.plan.load.iterations,
            engine_threads: bundle.limits.threads.unwrap_or(1),
        };
        let (driver, shared_counters) = CqlDriver::for_worker(&settings, &target, work);
        let (plan, driver) = (bundle.plan.clone(), AnyDriver::Cql(driver));
        let scenarios = vec![PlannedScenario { plan, driver, threads: None, background: false }];
        Ok(RunnableBundle { scenarios, pools: Vec::new(), shared_counters, hooks: None })
    }
}

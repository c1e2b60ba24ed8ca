//! A plan with everything a worker needs to carry it out, as one text that travels through the store.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

use crate::Plan;

/// A plan on its way to the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// What the engine and the report must know.
    pub plan: Plan,
    /// The words of the command line that made the plan, without the program and the command.
    pub arguments: Vec<String>,
    /// The files that were read for it, by the name the plan uses; in Base64.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The environment variables that were read for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    /// Whether the scenario sets a run up and tears it down, once in the fleet.
    #[serde(default)]
    pub hooks: bool,
}

/// How each worker carries a plan out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Engine threads of each worker; by default one per core.
    pub threads: Option<usize>,
    /// Most users an open model may bring in on each worker.
    pub max_users: usize,
    pub grace: Duration,
    pub slack: Duration,
    pub late_after: Duration,
    pub phases: bool,
}

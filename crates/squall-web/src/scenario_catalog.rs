//! The scenarios that a person can start from the web UI: what a catalog must do, what a person asks
//! for, and what comes out. It opens no file: squall-cli implements the catalog with the code of
//! `squall test start`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_model::Bundle;
use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{StartableParam, requests::ApiRequestBody};

/// Scenarios by name. Every method may block.
pub trait ScenarioCatalog: Send + Sync {
    /// The names of all scenarios, in the order in which a person sees them.
    fn names(&self) -> Result<Vec<String>, CatalogError>;

    /// What a form for the scenario needs.
    fn describe(&self, name: &str) -> Result<ScenarioDescription, CatalogError>;

    /// Checks the order as the command line would, and builds the run.
    fn build(&self, name: &str, order: &StartOrder) -> Result<OrderedRun, CatalogError>;
}

/// A catalog that the server shares with its requests.
#[derive(Clone)]
pub struct SharedCatalog(pub Arc<dyn ScenarioCatalog>);

impl fmt::Debug for SharedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedCatalog(…)")
    }
}

/// Why a catalog refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    #[error("there is no scenario `{0}`; GET /api/v1/scenarios lists them")]
    Unknown(String),
    /// The message of the command line.
    #[error("{message}")]
    Refused {
        message: String,
        /// The field of the order that the message is about.
        field: Option<String>,
    },
}

/// What a form for a scenario needs.
#[derive(Debug, Clone)]
pub struct ScenarioDescription {
    pub params: Vec<StartableParam>,
    /// Whether the scenario accepts parameters that are not listed.
    pub accepts_any_param: bool,
    /// Whether the scenario or a flag names a target.
    pub has_target: bool,
    /// The run without any change of the form.
    pub bundle: Bundle,
}

/// A run that was built and not started.
#[derive(Debug, Clone)]
pub struct OrderedRun {
    pub bundle: Bundle,
    /// The plan in words, as `--check` prints it.
    pub description: String,
    /// The same run from the command line.
    pub command: String,
}

/// `POST /api/v1/scenarios/{name}/check` and `/start`. What is left out stays as the scenario has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StartOrder {
    #[serde(default)]
    pub target: Option<String>,
    /// Closed load. The values of the load are texts as on the command line: `50`, `90/m`, `5m`.
    #[serde(default)]
    pub users: Option<String>,
    /// Open load.
    #[serde(default)]
    pub rate: Option<String>,
    #[serde(default)]
    pub duration: Option<String>,
    #[serde(default)]
    pub ramp_up: Option<String>,
    /// Added to those of the scenario.
    #[serde(default)]
    pub thresholds: Vec<String>,
    #[serde(default)]
    pub params: BTreeMap<String, Value>,
}

impl ApiRequestBody for StartOrder {
    const OPTIONAL: bool = true;
}

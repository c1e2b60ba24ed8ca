//! The run behind a result file: plan, facts and merged histograms, from which every report can be
//! rendered again. The other fields of the file hold rounded numbers and no histograms. This module
//! renders nothing; `squall report` and `squall test start --wait` call it.
//!
//! The text is two parts in base64 with a dot between them: plan and facts as JSON, and the view.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use squall_metrics::{RunView, WireError};
use squall_model::{Plan, RunFacts};
use std::borrow::Cow;

use super::ResultFile;
use crate::{InterruptionRule, ReportInput, RunVerdict, ScheduleRule};

/// A run that was read from a result file.
#[derive(Debug)]
pub struct RecordedRun {
    plan: Plan,
    view: RunView,
    facts: RunFacts,
    schedule_rule: ScheduleRule,
    interruption_rule: InterruptionRule,
    command: Option<String>,
    version: String,
}

/// Why a result file cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RestoreRunError {
    #[error("the result has no histograms, which reports show: version {version} of Squall did not store them")]
    NotRecorded { version: String },
    #[error("the field `recorded` was changed or cut off")]
    Damaged,
    #[error("the field `recorded` is from version {version} of Squall, which this version cannot read")]
    Settings {
        version: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("the field `recorded` has no readable histograms")]
    View(#[source] WireError),
}

#[derive(Serialize, Deserialize)]
struct RecordedSettings<'a> {
    plan: Cow<'a, Plan>,
    facts: Cow<'a, RunFacts>,
}

/// `run` as text for the result file.
pub(super) fn encode(run: &ReportInput<'_>) -> String {
    let settings = RecordedSettings { plan: Cow::Borrowed(run.plan), facts: Cow::Borrowed(run.facts) };
    let settings = serde_json::to_vec(&settings).expect("every field has a JSON form");
    format!("{}.{}", STANDARD.encode(settings), STANDARD.encode(run.view.save()))
}

impl RecordedRun {
    /// The run whose result is `file`.
    pub fn restore(file: &ResultFile) -> Result<RecordedRun, RestoreRunError> {
        let version = || file.version.clone();
        let text = file.recorded.as_ref().ok_or_else(|| RestoreRunError::NotRecorded { version: version() })?;
        let (settings, view) = text.split_once('.').ok_or(RestoreRunError::Damaged)?;
        let decode = |part: &str| STANDARD.decode(part).map_err(|_| RestoreRunError::Damaged);
        let settings: RecordedSettings<'_> = serde_json::from_slice(&decode(settings)?)
            .map_err(|cause| RestoreRunError::Settings { version: version(), cause })?;
        Ok(RecordedRun {
            plan: settings.plan.into_owned(),
            facts: settings.facts.into_owned(),
            view: RunView::restore(&decode(view)?).map_err(RestoreRunError::View)?,
            schedule_rule: match (file.run.strict, file.run.allow_missing) {
                (true, _) => ScheduleRule::Strict,
                (false, true) => ScheduleRule::AllowMissing,
                (false, false) => ScheduleRule::MostStarts,
            },
            interruption_rule: match (file.verdict, file.exit_code) {
                (RunVerdict::Interrupted, 0) => InterruptionRule::Succeeds,
                _ => InterruptionRule::Fails,
            },
            command: file.run.command.clone(),
            version: version(),
        })
    }

    /// The run as every renderer takes it.
    pub fn report_input(&self) -> ReportInput<'_> {
        ReportInput {
            plan: &self.plan,
            view: &self.view,
            facts: &self.facts,
            schedule_rule: self.schedule_rule,
            interruption_rule: self.interruption_rule,
            command: self.command.as_deref(),
            version: &self.version,
        }
    }
}

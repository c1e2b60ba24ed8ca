//! A scenario with every name resolved and every text compiled: what the driver runs. Immutable, shared by all threads.

use squall_http::Connector;
use squall_metrics::MetricKey;
use squall_model::Pause;
use std::time::Duration;

use crate::{
    check::{ResponseChecks, ValueExtractor},
    data::DataTable,
    template::{ColumnRef, Template},
};

#[derive(Debug)]
pub(crate) struct CompiledScenario {
    pub(crate) connector: Connector,
    pub(crate) data: Vec<DataTable>,
    /// The variables of a user.
    pub(crate) slots: Vec<VariableSlot>,
    /// Runs once for each user; has no steps if there is nothing to do.
    pub(crate) on_start: CompiledFlow,
    /// In the plan's order.
    pub(crate) tasks: Vec<CompiledFlow>,
    /// Where starts are numbered over all users, as in an open load, what an iteration draws depends on its number and this seed; elsewhere
    /// on its user's seed and its number of that user's.
    pub(crate) open_model_seed: Option<u64>,
    /// What thresholds can name, for people.
    pub(crate) metric_names: Vec<String>,
    /// What `--param` can set, with the values as they were written.
    pub(crate) declared_variables: Vec<(String, serde_json::Value)>,
}

/// A variable of which every user has its own.
#[derive(Debug)]
pub(crate) struct VariableSlot {
    pub(crate) name: String,
    /// Its value when the user comes to life; without one it must be extracted first.
    pub(crate) initial: Option<Template>,
    /// That value is a number or a truth.
    pub(crate) literal: bool,
}

/// Requests in order.
#[derive(Debug, Default)]
pub(crate) struct CompiledFlow {
    /// Names of the spans that are recorded around the whole flow.
    pub(crate) spans: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<CompiledStep>,
    /// Data sources of which it needs a row.
    pub(crate) data: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct CompiledStep {
    pub(crate) metric: MetricKey,
    /// Consecutive steps of one group are timed together.
    pub(crate) group: Option<String>,
    /// Wait after it.
    pub(crate) think: Option<Pause>,
    pub(crate) continue_on_failure: bool,
    pub(crate) request: CompiledRequest,
    pub(crate) checks: ResponseChecks,
    pub(crate) extracts: Vec<ValueExtractor>,
}

#[derive(Debug)]
pub(crate) struct CompiledRequest {
    /// The request itself if nothing changes, else its constant part.
    pub(crate) constant: squall_http::HttpRequest,
    pub(crate) template: Option<RequestTemplate>,
    /// Method and path as written, for people.
    pub(crate) display_text: String,
}

/// What is rendered anew each time.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    pub(crate) path: Template,
    /// Scheme and authority; taken off the front of a path that begins with it.
    pub(crate) origin: String,
    pub(crate) headers: Vec<HeaderTemplate>,
    /// `None` sends the constant one.
    pub(crate) body: Option<Template>,
}

#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    pub(crate) name: String,
    pub(crate) value: Template,
    pub(crate) encoding: HeaderEncoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderEncoding {
    Plain,
    /// `user:password` becomes `Basic …`.
    Basic,
}

impl CompiledStep {
    pub(crate) fn needs_body(&self) -> bool {
        self.checks.needs_body() || self.extracts.iter().any(ValueExtractor::needs_body)
    }

    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        if let Some(dynamic) = &self.request.template {
            dynamic.path.columns_used(used);
            dynamic.headers.iter().for_each(|header| header.value.columns_used(used));
            dynamic.body.iter().for_each(|body| body.columns_used(used));
        }
        self.checks.columns_used(used);
    }
}

//! Builds tasks: names, weights, conditions and steps. Requests are built in `request`.

use squall_metrics::{MetricKey, MetricKind};
use squall_model::{Pause, TaskIndex, TaskSpec};
use std::collections::{BTreeMap, HashMap};

use super::{
    ScenarioBuilder,
    cql::BuiltStep,
    request::RequestDefaults,
    value::{pause, positive_duration},
};
use crate::{
    Sourced,
    compiled_scenario::{CompiledBrowserStep, CompiledFlow, CompiledStep, FlowStep},
    error::{SourceLocation, did_you_mean},
    read::{RawRequest, RawScenario, RawStep, RawTask, TaskKind},
};

/// The settings that the steps of a task inherit.
pub(super) struct InheritedSettings<'r> {
    pub(super) group: Option<&'r str>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) think: Option<Pause>,
    pub(super) continue_on_failure: bool,
}

impl ScenarioBuilder<'_, '_> {
    pub(super) fn tasks(&mut self, raw: &RawScenario, defaults: &RequestDefaults) -> Vec<(TaskSpec, CompiledFlow)> {
        if raw.tasks.is_empty() {
            let hint = "add [[task]] with a name and get = \"/path\"";
            self.problems.add_with_hint(&SourceLocation::Unknown, "the scenario has no task", hint);
        }
        let indexes = self.task_indexes(&raw.tasks);
        let tasks = raw.tasks.iter().map(|task| self.task(task, &indexes, defaults)).collect::<Vec<_>>();
        self.reject_cycles(&raw.tasks, &tasks);
        tasks
    }

    /// The steps that each user runs once.
    pub(super) fn on_start(&mut self, raw: &RawScenario, defaults: &RequestDefaults) -> CompiledFlow {
        let nothing = InheritedSettings { group: None, tags: BTreeMap::new(), think: None, continue_on_failure: false };
        let steps = self.steps("on_start", &raw.on_start, &nothing, defaults);
        build_flow(Vec::new(), None, FlowSteps::InOrder(steps))
    }

    /// The index of each task by its name. Reports missing and repeated names.
    fn task_indexes<'r>(&mut self, tasks: &'r [RawTask]) -> HashMap<&'r str, usize> {
        let mut indexes = HashMap::new();
        for (index, task) in tasks.iter().enumerate() {
            match &task.name {
                None => self.problems.add_with_hint(&task.location, "a task needs a name", "add name = \"browse\""),
                Some(name) if name.value.trim().is_empty() => {
                    self.problems.add(&name.location, "a task's name cannot be empty");
                }
                Some(name) => {
                    if indexes.insert(name.value.as_str(), index).is_some() {
                        self.problems.add_with_hint(
                            &name.location,
                            format!("there is already a task called `{}`", name.value),
                            "give each task a name of its own",
                        );
                    }
                }
            }
        }
        indexes
    }

    fn task(
        &mut self,
        raw: &RawTask,
        indexes: &HashMap<&str, usize>,
        defaults: &RequestDefaults,
    ) -> (TaskSpec, CompiledFlow) {
        let name = raw.name.as_ref().map_or("", |name| name.value.as_str());
        let spec = TaskSpec {
            name: name.to_owned(),
            weight: self.weight(raw),
            requires: raw.requires.iter().filter_map(|required| self.required_task(required, indexes)).collect(),
            every: raw.every.as_ref().and_then(|every| pause(every, self.problems)),
        };
        let timeout = raw.timeout.as_ref().and_then(|given| positive_duration(given, self.problems));
        let group = raw.group.as_ref().map(|group| group.value.as_str());
        let inherited = InheritedSettings {
            group,
            tags: raw.tags.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect(),
            think: raw.think.as_ref().and_then(|think| pause(think, self.problems)),
            continue_on_failure: raw.continue_on_failure,
        };
        let mut spans: Vec<String> = Vec::new();
        let steps = if raw.kind == TaskKind::Browser {
            if !raw.steps.is_empty() {
                spans.push(name.to_owned());
            }
            FlowSteps::Browser(self.browser_steps(name, raw, &inherited, defaults))
        } else {
            FlowSteps::InOrder(self.ordered_steps(name, raw, &inherited, defaults, &mut spans))
        };
        if let Some(group) = group.filter(|group| !spans.iter().any(|span| span == group)) {
            spans.push(group.to_owned());
        }
        (spec, build_flow(spans, timeout, steps))
    }

    fn ordered_steps(
        &mut self,
        name: &str,
        raw: &RawTask,
        inherited: &InheritedSettings<'_>,
        defaults: &RequestDefaults,
        spans: &mut Vec<String>,
    ) -> Vec<BuiltStep> {
        if raw.kind == TaskKind::Cql && raw.steps.is_empty() {
            return self.inline_statement(name, raw, inherited).into_iter().collect();
        }
        match (&raw.request, raw.steps.as_slice()) {
            (Some(request), []) => {
                let step = self.step(name, request, &raw.location, inherited, defaults);
                step.map(|step| BuiltStep::Request(Box::new(step))).into_iter().collect()
            }
            (None, []) => {
                let hint = "add get = \"/path\", or a [[task.step]] for each request of a flow";
                self.problems.add_with_hint(&raw.location, format!("the task `{name}` has no request"), hint);
                Vec::new()
            }
            (request, steps) => {
                if request.is_some() || raw.cql.is_some() {
                    let hint = "move the request into a [[task.step]] of its own";
                    self.problems.add_with_hint(
                        &raw.location,
                        format!("the task `{name}` has a request and steps"),
                        hint,
                    );
                }
                spans.push(name.to_owned());
                self.steps(name, steps, inherited, defaults)
            }
        }
    }

    fn weight(&mut self, raw: &RawTask) -> f64 {
        match &raw.weight {
            None => 1.0,
            Some(weight) if weight.value.is_finite() && weight.value > 0.0 && weight.value <= 1e9 => weight.value,
            Some(weight) => {
                let many = weight.value.is_finite() && weight.value.abs() >= 1e16;
                let shown = if many { format!("{:e}", weight.value) } else { weight.value.to_string() };
                let message = format!("a weight of {shown} is not possible");
                self.problems.add_with_hint(
                    &weight.location,
                    message,
                    "give a number above 0, 1e9 at most, or remove the task",
                );
                1.0
            }
        }
    }

    fn required_task(&mut self, required: &Sourced<String>, indexes: &HashMap<&str, usize>) -> Option<TaskIndex> {
        let found = indexes.get(required.value.as_str());
        if found.is_none() {
            let hint = match did_you_mean(&required.value, indexes.keys().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => "name another task of this scenario".to_owned(),
            };
            self.problems.add_with_hint(&required.location, format!("there is no task `{}`", required.value), hint);
        }
        found.map(|index| TaskIndex(*index))
    }

    /// Reports tasks that require themselves, because they never run.
    fn reject_cycles(&mut self, raw: &[RawTask], tasks: &[(TaskSpec, CompiledFlow)]) {
        // Marks tasks whose requirements can all run. The rest require themselves or a task that does.
        let mut ready = vec![false; tasks.len()];
        while let Some(next) = (0..tasks.len())
            .find(|index| !ready[*index] && tasks[*index].0.requires.iter().all(|required| ready[required.0]))
        {
            ready[next] = true;
        }
        for (index, (spec, _)) in tasks.iter().enumerate().filter(|(index, _)| !ready[*index]) {
            let in_cycle = requires_transitively(tasks, index, index);
            if let Some(first) = raw[index].requires.first().filter(|_| in_cycle) {
                self.problems.add_with_hint(
                    &first.location,
                    format!("`{}` can never run, because it requires itself in the end", spec.name),
                    "break the circle of `requires`",
                );
            }
        }
    }

    fn steps(
        &mut self,
        flow: &str,
        raw: &[RawStep],
        inherited: &InheritedSettings<'_>,
        defaults: &RequestDefaults,
    ) -> Vec<BuiltStep> {
        let mut names: Vec<String> = Vec::new();
        let mut steps = Vec::new();
        for (index, raw) in raw.iter().enumerate() {
            let name = step_name(raw, index);
            if names.contains(&name) {
                let location = raw.name.as_ref().map_or(&raw.location, |name| &name.location);
                self.problems.add(location, format!("`{flow}` already has a step called `{name}`"));
            }
            if raw.request.is_none() && raw.cql.is_none() {
                let hint = "add get = \"/path\" (or post, put, patch, delete, head, options), or statement = \"…\"";
                self.problems.add_with_hint(&raw.location, format!("the step `{name}` has no request"), hint);
                continue;
            }
            let think = raw.think.as_ref().map(|think| pause(think, self.problems));
            let inherited = InheritedSettings {
                group: raw.group.as_ref().map(|group| group.value.as_str()).or(inherited.group),
                tags: inherited.tags.clone(),
                think: think.unwrap_or(inherited.think),
                continue_on_failure: raw.continue_on_failure || inherited.continue_on_failure,
            };
            let (metric, location) = (format!("{flow}/{name}"), &raw.location);
            let group = raw.group.as_ref().map(|group| group.value.clone());
            if let Some(request) = &raw.request {
                let step = self.step(&metric, request, location, &inherited, defaults);
                steps.extend(step.map(|step| BuiltStep::Request(Box::new(CompiledStep { group, ..step }))));
            } else if let Some(statement) = &raw.cql {
                steps.extend(self.statement(&metric, statement, location, &inherited, group));
            }
            names.push(name);
        }
        steps
    }

    fn step(
        &mut self,
        metric: &str,
        raw: &RawRequest,
        location: &SourceLocation,
        inherited: &InheritedSettings<'_>,
        defaults: &RequestDefaults,
    ) -> Option<CompiledStep> {
        let request = self.request(raw, location, defaults);
        let checks = raw.expect.as_ref().map(|expect| self.checks(expect)).unwrap_or_default();
        let extracts = raw.extract.iter().filter_map(|(name, extract)| self.extract(name, extract)).collect();
        Some(CompiledStep {
            metric: MetricKey {
                name: metric.to_owned(),
                kind: MetricKind::Request,
                group: inherited.group.map(str::to_owned),
                tags: inherited.tags.clone(),
            },
            group: None,
            think: inherited.think.filter(|think| !think.is_none()),
            continue_on_failure: inherited.continue_on_failure,
            request: request?,
            checks,
            extracts,
        })
    }
}

/// The steps of a flow.
enum FlowSteps {
    InOrder(Vec<BuiltStep>),
    Browser(Vec<CompiledBrowserStep>),
}

fn build_flow(spans: Vec<String>, timeout: Option<std::time::Duration>, steps: FlowSteps) -> CompiledFlow {
    let mut flow = CompiledFlow { spans, timeout, ..CompiledFlow::default() };
    match steps {
        FlowSteps::Browser(steps) => flow.browser_steps = steps,
        FlowSteps::InOrder(steps) => steps.into_iter().for_each(|step| match step {
            BuiltStep::Request(step) => {
                flow.order.push(FlowStep::Request(flow.steps.len()));
                flow.steps.push(*step);
            }
            BuiltStep::Statement(statement) => {
                flow.order.push(FlowStep::Statement(flow.statements.len()));
                flow.statements.push(*statement);
            }
        }),
    }
    let mut used = Vec::new();
    flow.columns_used(&mut used);
    for column in used {
        if !flow.data.contains(&column.data) {
            flow.data.push(column.data);
        }
    }
    flow
}

/// The name of a step; its number if it has none.
pub(super) fn step_name(step: &RawStep, index: usize) -> String {
    step.name.as_ref().map_or_else(|| (index + 1).to_string(), |name| name.value.clone())
}

/// Whether following `requires` from `from` leads to `to`.
fn requires_transitively(tasks: &[(TaskSpec, CompiledFlow)], from: usize, to: usize) -> bool {
    let mut seen = vec![false; tasks.len()];
    let mut open = vec![from];
    while let Some(index) = open.pop() {
        for required in &tasks[index].0.requires {
            if required.0 == to {
                return true;
            }
            if !std::mem::replace(&mut seen[required.0], true) {
                open.push(required.0);
            }
        }
    }
    false
}

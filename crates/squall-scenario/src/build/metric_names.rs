//! Lists the names of all metrics of a scenario and rejects names with two meanings. It reads the raw
//! scenario, so that a task with another mistake still has its metrics.

use std::collections::{HashMap, hash_map::Entry};

use super::{browser::PAGE_FIGURES, cql::ROW_COUNT, tasks::step_name};
use crate::{
    error::{ProblemList, SourceLocation},
    read::{RawScenario, RawStep, RawTask, TaskKind},
};

/// What a metric's name means.
#[derive(Clone, PartialEq)]
enum MetricMeaning<'r> {
    Task(&'r str),
    Step { flow: &'r str, name: String },
    Redirects(String),
    PageFigure(String),
    RowCount(String),
    Group(&'r str),
}

impl MetricMeaning<'_> {
    fn describe(&self) -> String {
        match self {
            MetricMeaning::Task(name) => format!("the task `{name}`"),
            MetricMeaning::Step { flow, name } => format!("the step `{name}` of `{flow}`"),
            MetricMeaning::Redirects(name) => format!("the redirects of `{name}`"),
            MetricMeaning::PageFigure(name) => format!("a figure of the page of `{name}`"),
            MetricMeaning::RowCount(name) => format!("the rows of `{name}`"),
            MetricMeaning::Group(name) => format!("the group `{name}`"),
        }
    }
}

#[derive(Default)]
struct MetricNames<'r> {
    order: Vec<String>,
    meanings: HashMap<String, MetricMeaning<'r>>,
}

/// Every name once. A name with two meanings is rejected: both would be counted as one metric, or a
/// threshold could mean either.
pub(super) fn metric_names(raw: &RawScenario, problems: &mut ProblemList<'_>) -> Vec<String> {
    let mut names = MetricNames::default();
    let mut spans = Vec::new();
    for task in &raw.tasks {
        let Some(flow) = &task.name else { continue };
        let (name, meaning) = (flow.value.clone(), MetricMeaning::Task(&flow.value));
        match task.kind {
            // The figures are those of its steps.
            TaskKind::Browser if !task.steps.is_empty() => names.add(name, meaning, &flow.location, problems),
            kind => names.request(name, meaning, kind, &flow.location, problems),
        }
        names.steps(&flow.value, &task.steps, task.kind, problems);
        // A flow is timed under its own name, and its group may have the same name.
        let own = |task: &RawTask| !task.steps.is_empty() && task.group.as_ref().is_some_and(|g| g.value == flow.value);
        spans.extend(task.group.iter().filter(|_| !own(task)));
    }
    names.steps("on_start", &raw.on_start, TaskKind::Http, problems);
    let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
    let spans = steps.filter_map(|step| step.group.as_ref()).chain(spans);
    for group in spans {
        names.add(group.value.clone(), MetricMeaning::Group(&group.value), &group.location, problems);
    }
    names.order
}

impl<'r> MetricNames<'r> {
    fn steps(&mut self, flow: &'r str, steps: &'r [RawStep], kind: TaskKind, problems: &mut ProblemList<'_>) {
        for (index, step) in steps.iter().enumerate() {
            let name = step_name(step, index);
            let location = step.name.as_ref().map_or(&step.location, |name| &name.location);
            let kind = match (&step.cql, kind) {
                (Some(_), _) => TaskKind::Cql,
                (None, TaskKind::Cql) => TaskKind::Http,
                (None, kind) => kind,
            };
            self.request(format!("{flow}/{name}"), MetricMeaning::Step { flow, name }, kind, location, problems);
        }
    }

    fn request(
        &mut self,
        name: String,
        meaning: MetricMeaning<'r>,
        kind: TaskKind,
        location: &SourceLocation,
        problems: &mut ProblemList<'_>,
    ) {
        self.add(name.clone(), meaning, location, problems);
        match kind {
            TaskKind::Http => {
                self.add(format!("{name} (redirect)"), MetricMeaning::Redirects(name), location, problems);
            }
            TaskKind::Cql => {
                self.add(format!("{name}:{ROW_COUNT}"), MetricMeaning::RowCount(name), location, problems);
            }
            TaskKind::Browser => {
                for figure in PAGE_FIGURES {
                    let meaning = MetricMeaning::PageFigure(name.clone());
                    self.add(format!("{name}:{figure}"), meaning, location, problems);
                }
            }
        }
    }

    fn add(
        &mut self,
        name: String,
        meaning: MetricMeaning<'r>,
        location: &SourceLocation,
        problems: &mut ProblemList<'_>,
    ) {
        if name.contains(char::is_control)
            && !matches!(
                meaning,
                MetricMeaning::Redirects(_) | MetricMeaning::PageFigure(_) | MetricMeaning::RowCount(_)
            )
        {
            problems.add(location, "a name cannot have a line break or another control character");
        }
        match self.meanings.entry(name) {
            Entry::Vacant(free) => {
                self.order.push(free.key().clone());
                free.insert(meaning);
            }
            // Repeated tasks and steps are reported where they are built. Groups may repeat.
            Entry::Occupied(taken) if *taken.get() == meaning => {}
            Entry::Occupied(taken) => {
                let (first, second) = (taken.get().describe(), meaning.describe());
                let message = format!("the metric `{}` would be both {first} and {second}", taken.key());
                problems.add_with_hint(location, message, "give one of them another name");
            }
        }
    }
}

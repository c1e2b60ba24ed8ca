//! The names of all metrics that a scenario can have, each with one meaning. They are taken from what was written, so that a task
//! with another mistake still counts.

use std::collections::{HashMap, hash_map::Entry};

use super::tasks::step_name;
use crate::{
    error::{ProblemList, SourceLocation},
    read::{RawScenario, RawStep, RawTask},
};

/// What a name stands for.
#[derive(Clone, PartialEq)]
enum MetricMeaning<'r> {
    Task(&'r str),
    Step { flow: &'r str, name: String },
    Redirects(String),
    Group(&'r str),
}

impl MetricMeaning<'_> {
    fn describe(&self) -> String {
        match self {
            MetricMeaning::Task(name) => format!("the task `{name}`"),
            MetricMeaning::Step { flow, name } => format!("the step `{name}` of `{flow}`"),
            MetricMeaning::Redirects(name) => format!("the redirects of `{name}`"),
            MetricMeaning::Group(name) => format!("the group `{name}`"),
        }
    }
}

#[derive(Default)]
struct MetricNames<'r> {
    order: Vec<String>,
    meanings: HashMap<String, MetricMeaning<'r>>,
}

/// Every name once. Two things under one name would be counted as one, or a threshold could mean either: that is refused.
pub(super) fn metric_names(raw: &RawScenario, problems: &mut ProblemList<'_>) -> Vec<String> {
    let mut names = MetricNames::default();
    let mut spans = Vec::new();
    for task in &raw.tasks {
        let Some(flow) = &task.name else { continue };
        names.request(flow.value.clone(), MetricMeaning::Task(&flow.value), &flow.location, problems);
        names.steps(&flow.value, &task.steps, problems);
        // A flow is timed as a whole under its own name; its group may be that very span.
        let own = |task: &RawTask| !task.steps.is_empty() && task.group.as_ref().is_some_and(|g| g.value == flow.value);
        spans.extend(task.group.iter().filter(|_| !own(task)));
    }
    names.steps("on_start", &raw.on_start, problems);
    let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
    let spans = steps.filter_map(|step| step.group.as_ref()).chain(spans);
    for group in spans {
        names.add(group.value.clone(), MetricMeaning::Group(&group.value), &group.location, problems);
    }
    names.order
}

impl<'r> MetricNames<'r> {
    fn steps(&mut self, flow: &'r str, steps: &'r [RawStep], problems: &mut ProblemList<'_>) {
        for (index, step) in steps.iter().enumerate() {
            let name = step_name(step, index);
            let place = step.name.as_ref().map_or(&step.location, |name| &name.location);
            self.request(format!("{flow}/{name}"), MetricMeaning::Step { flow, name }, place, problems);
        }
    }

    fn request(
        &mut self,
        name: String,
        meaning: MetricMeaning<'r>,
        place: &SourceLocation,
        problems: &mut ProblemList<'_>,
    ) {
        self.add(name.clone(), meaning, place, problems);
        self.add(format!("{name} (redirect)"), MetricMeaning::Redirects(name), place, problems);
    }

    fn add(
        &mut self,
        name: String,
        meaning: MetricMeaning<'r>,
        place: &SourceLocation,
        problems: &mut ProblemList<'_>,
    ) {
        if name.contains(char::is_control) && !matches!(meaning, MetricMeaning::Redirects(_)) {
            problems.add(place, "a name cannot have a line break or another control character");
        }
        match self.meanings.entry(name) {
            Entry::Vacant(free) => {
                self.order.push(free.key().clone());
                free.insert(meaning);
            }
            // The same task or step twice is reported where they are made; groups may be named as often as one likes.
            Entry::Occupied(taken) if *taken.get() == meaning => {}
            Entry::Occupied(taken) => {
                let (first, second) = (taken.get().describe(), meaning.describe());
                let message = format!("the metric `{}` would be both {first} and {second}", taken.key());
                problems.add_with_hint(place, message, "give one of them another name");
            }
        }
    }
}

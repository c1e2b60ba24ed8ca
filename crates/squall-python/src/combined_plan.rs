//! Combines the plans of several scenarios of one file into the plan of one run, and names their
//! metrics. It runs nothing. The interpreter calls it when a file has more than one scenario.

use squall_model::{Arrivals, Load, LoadModel, Pause, Plan, Profile, TaskIndex, TaskSpec, Threshold};

/// The prefix of a scenario's metric names in a run of several scenarios.
pub(crate) fn metric_prefix(scenario: &str) -> String {
    format!("{scenario}/")
}

/// The plan that the report shows for all scenarios: tasks and thresholds under their full names,
/// loads added up. Rates and user counts cannot be added; if the scenarios have both, the plan
/// shows the rates.
pub(crate) fn combine(plans: &[&Plan]) -> Plan {
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    Plan {
        name: names.join(" + "),
        target: plans[0].target.clone(),
        load: load(plans),
        tasks: tasks(plans),
        thresholds: thresholds(plans),
        seed: plans[0].seed,
    }
}

fn load(plans: &[&Plan]) -> Load {
    let rates: Vec<&Profile> = plans
        .iter()
        .filter_map(|plan| match &plan.load.model {
            LoadModel::Open { rate, .. } => Some(rate),
            LoadModel::Closed { .. } => None,
        })
        .collect();
    let longest = plans.iter().map(|plan| plan.duration()).max().unwrap_or_default();
    let shown_profiles: Vec<&Profile> =
        if rates.is_empty() { plans.iter().map(|plan| plan.load.model.profile()).collect() } else { rates.clone() };
    let sum = Profile::sum(shown_profiles.iter().copied()).unwrap_or_else(|| plans[0].load.model.profile().clone());
    // The run lasts as long as the longest scenario, even if the plan does not show that one's
    // load.
    let missing = longest.saturating_sub(sum.duration());
    let idle_tail = squall_model::ProfileStage { duration: missing, from: 0.0, to: 0.0 };
    let profile = sum.replace_tail(sum.duration(), &[idle_tail]).unwrap_or(sum);
    let model = match rates.is_empty() {
        true => LoadModel::Closed { users: profile, pause: Pause::NONE },
        false => LoadModel::Open { rate: profile, arrivals: Arrivals::Even },
    };
    let iterations = plans.iter().map(|plan| plan.load.iterations).sum();
    let warm_up = plans.iter().map(|plan| plan.load.warm_up).max().unwrap_or_default();
    Load { model, iterations, warm_up }
}

fn tasks(plans: &[&Plan]) -> Vec<TaskSpec> {
    let mut all: Vec<TaskSpec> = Vec::new();
    for plan in plans {
        let first_index = all.len();
        all.extend(plan.tasks.iter().map(|task| TaskSpec {
            name: metric_prefix(&plan.name) + &task.name,
            requires: task.requires.iter().map(|needed| TaskIndex(first_index + needed.0)).collect(),
            ..task.clone()
        }));
    }
    all
}

fn thresholds(plans: &[&Plan]) -> Vec<Threshold> {
    let has_full_name = |metric: &str| plans.iter().any(|plan| metric.starts_with(&metric_prefix(&plan.name)));
    let has_task = |plan: &Plan, metric: &str| plan.tasks.iter().any(|task| task.name == metric);
    let mut all: Vec<Threshold> = Vec::new();
    for plan in plans {
        for threshold in &plan.thresholds {
            let mut threshold = threshold.clone();
            if let Some(metric) = threshold.metric.as_mut().filter(|metric| !has_full_name(metric)) {
                // A threshold from a flag is in every plan. If its metric is a task's name, it
                // applies only to the scenarios with that task.
                if !has_task(plan, metric) && plans.iter().any(|other| has_task(other, metric)) {
                    continue;
                }
                metric.insert_str(0, &metric_prefix(&plan.name));
            }
            if !all.contains(&threshold) {
                all.push(threshold);
            }
        }
    }
    all
}

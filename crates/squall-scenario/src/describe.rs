//! Describes a scenario for `--check`: its load, requests, metrics and thresholds. Validates nothing.

use squall_model::{Arrivals, Load, LoadModel, Pause, Plan, ProfileStage, format_duration};
use std::fmt::Write as _;

use crate::{
    build::{MAX_DURATION, list_metrics},
    check::ResponseChecks,
    compiled_scenario::{
        CompiledBrowserStep, CompiledFlow, CompiledScenario, CompiledStatement, CompiledStep, FlowStep,
    },
    data::{DataTable, RowLifetime, RowOrder},
};

pub(crate) fn describe(plan: &Plan, compiled: &CompiledScenario) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string does not fail");
    line(plan.distinct_target().map_or(plan.name.clone(), |target| format!("{} against {target}", plan.name)));
    compiled.notes.iter().for_each(|note| line(format!("note: {note}")));
    line(format!("  load        {}", load(&plan.load)));
    if !plan.load.warm_up.is_zero() {
        line(format!("  warm-up     {} kept out of the results", format_duration(plan.load.warm_up)));
    }
    line(format!("  seed        {}", plan.seed));
    for table in &compiled.data {
        line(format!("  data        {}", data(table)));
    }
    #[cfg(feature = "cql")]
    if let Some(cql) = &compiled.cql {
        line(format!("  database    {}", cql.addresses()));
    }
    if !compiled.on_start.order.is_empty() {
        line("  each user first".to_owned());
        steps(&compiled.on_start).for_each(|text| line(format!("    {text}")));
    }
    line("  tasks".to_owned());
    let whole: f64 = plan.tasks.iter().map(|task| task.weight).sum();
    for (spec, flow) in plan.tasks.iter().zip(&compiled.tasks) {
        let share = spec.weight / whole * 100.0;
        let required: Vec<&str> = spec.requires.iter().map(|index| plan.tasks[index.0].name.as_str()).collect();
        let mut notes = Vec::new();
        if !required.is_empty() {
            notes.push(format!("after {}", required.join(", ")));
        }
        notes.extend(spec.every.map(|every| format!("at most every {}", pause(every))));
        notes.extend(flow.timeout.map(|timeout| format!("within {}", format_duration(timeout))));
        let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join("; ")) };
        line(format!("    {share:5.1}%  {}{notes}", spec.name));
        steps(flow).for_each(|text| line(format!("            {text}")));
    }
    line(format!("  metrics     {}", list_metrics(&compiled.metric_names)));
    if plan.thresholds.is_empty() {
        line("  thresholds  none".to_owned());
    } else {
        let thresholds: Vec<String> = plan.thresholds.iter().map(ToString::to_string).collect();
        line(format!("  thresholds  {}", thresholds.join(", ")));
    }
    out
}

fn load(load: &Load) -> String {
    let profile = load.model.profile();
    let (unit, more) = match &load.model {
        LoadModel::Open { arrivals: Arrivals::Even, .. } => ("iteration/s", String::new()),
        LoadModel::Open { arrivals: Arrivals::Poisson, .. } => ("iteration/s", ", Poisson arrivals".to_owned()),
        LoadModel::Closed { pause: Pause::NONE, .. } => ("user", String::new()),
        LoadModel::Closed { pause: wait, .. } => ("user", format!(", pausing {}", pause(*wait))),
    };
    // A run that only its number of iterations ends has a placeholder for its duration.
    let endless = load.iterations.is_some() && profile.duration() >= MAX_DURATION;
    let last = profile.pieces().len() - 1;
    let piece = |(index, stage): (usize, &ProfileStage)| {
        // Written once, because all stages have the same unit.
        let unit = if index == 0 { format!(" {}", plural(unit, stage.to)) } else { String::new() };
        let (from, to, length) = (number(stage.from), number(stage.to), format_duration(stage.duration));
        match stage.from == stage.to {
            true if endless && index == last => format!("{to}{unit}"),
            true => format!("{to}{unit} for {length}"),
            false => format!("{from} → {to}{unit} in {length}"),
        }
    };
    let shape: Vec<String> = profile.pieces().iter().enumerate().map(piece).collect();
    let end = load.iterations.map_or(String::new(), |iterations| {
        let or = if endless { "" } else { " or" };
        let verb = if iterations == 1 { "is" } else { "are" };
        format!("{or} until {iterations} {} {verb} done", plural("iteration", iterations as f64))
    });
    format!("{}{end}{more}", shape.join(", then "))
}

/// `5 users`, `1 iteration/s`.
fn plural(unit: &str, count: f64) -> String {
    match unit.split_once('/') {
        _ if count == 1.0 => unit.to_owned(),
        Some((what, per)) => format!("{what}s/{per}"),
        None => format!("{unit}s"),
    }
}

fn number(level: f64) -> String {
    format!("{}", (level * 1000.0).round() / 1000.0)
}

fn pause(pause: Pause) -> String {
    match pause {
        Pause::Fixed(fixed) => format_duration(fixed),
        Pause::Between(least, most) => format!("{} to {}", format_duration(least), format_duration(most)),
    }
}

fn data(table: &DataTable) -> String {
    let order = match table.order {
        RowOrder::InTurn => "in turn",
        RowOrder::Random => "at random",
        RowOrder::Unique | RowOrder::ByUserNumber => "each once",
        RowOrder::Leased { .. } => "each held by one user at a time",
    };
    let per = match table.per {
        RowLifetime::Iteration => "iteration",
        RowLifetime::User => "user",
    };
    let DataTable { name, columns, rows, .. } = table;
    format!("{name}: {rows} rows of {}, {order}, one per {per}", columns.join(", "))
}

fn steps(flow: &CompiledFlow) -> impl Iterator<Item = String> {
    let in_browser = |step: &CompiledBrowserStep| format!("{} (browser)", step.display_text);
    let in_order = |step: &FlowStep| match *step {
        FlowStep::Request(at) => request(&flow.steps[at]),
        FlowStep::Statement(at) => statement(&flow.statements[at]),
    };
    flow.order.iter().map(in_order).chain(flow.browser_steps.iter().map(in_browser))
}

fn statement(statement: &CompiledStatement) -> String {
    let mut text = statement.cql.split_whitespace().collect::<Vec<_>>().join(" ");
    let checks = &statement.checks;
    let mut words = Vec::new();
    match (checks.min_rows, checks.max_rows) {
        (Some(least), Some(most)) if least == most => words.push(format!("{least} {}", plural("row", least as f64))),
        (least, most) => {
            words.extend(least.map(|least| format!("at least {least} {}", plural("row", least as f64))));
            words.extend(most.map(|most| format!("at most {most} {}", plural("row", most as f64))));
        }
    }
    words.extend(checks.columns.iter().map(|(column, _)| column.clone()));
    words.extend(checks.max_service_time.map(|max| format!("at most {} ms", max.as_secs_f64() * 1000.0)));
    if !words.is_empty() {
        let _ = write!(text, "  expects {}", words.join(", "));
    }
    if !statement.extracts.is_empty() {
        let names: Vec<&str> = statement.extracts.iter().map(|extract| extract.name.as_str()).collect();
        let _ = write!(text, "  → {}", names.join(", "));
    }
    if let Some(think) = statement.think {
        let _ = write!(text, "  then waits {}", pause(think));
    }
    text
}

fn request(step: &CompiledStep) -> String {
    let mut text = step.request.display_text.clone();
    let checks = checks(&step.checks);
    if !checks.is_empty() {
        let _ = write!(text, "  expects {}", checks.join(", "));
    }
    if !step.extracts.is_empty() {
        let names: Vec<&str> = step.extracts.iter().map(|extract| extract.name.as_str()).collect();
        let _ = write!(text, "  → {}", names.join(", "));
    }
    if let Some(think) = step.think {
        let _ = write!(text, "  then waits {}", pause(think));
    }
    text
}

fn checks(checks: &ResponseChecks) -> Vec<String> {
    let mut words = Vec::new();
    if !checks.statuses.is_empty() {
        words.push(format!("status {}", checks.format_statuses()));
    }
    words.extend(checks.headers.iter().map(|(name, _)| format!("header {name}")));
    if !checks.body.is_empty() {
        words.push("its body".to_owned());
    }
    words.extend(checks.json.iter().map(|check| check.path_text.clone()));
    words.extend(checks.max_service_time.map(|max| format!("at most {} ms", max.as_secs_f64() * 1000.0)));
    words
}

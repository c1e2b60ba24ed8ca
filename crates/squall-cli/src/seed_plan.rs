//! `--plan`: the plan that LoadPilot's command line gives its engine, as JSON. Turns it into a scenario in our own words, which is then
//! judged like any other; sends nothing.

use serde::Deserialize;
use std::{collections::BTreeMap, io::Read, path::Path};

use crate::{args::RunArgs, commands::run::read_text, exit::Refusal, subject::Subject};

/// A plan as it is written. What its engine ignored is ignored here too.
#[derive(Debug, Deserialize)]
struct SeedPlan {
    #[serde(default)]
    name: Option<String>,
    rps: f64,
    duration_secs: f64,
    #[serde(default)]
    ramp_up_secs: f64,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    steps: Option<u32>,
    target_url: String,
    #[serde(default)]
    tasks: Vec<SeedTask>,
    #[serde(default)]
    scenario_file: Option<String>,
    #[serde(default)]
    scenario_class: Option<String>,
    #[serde(default)]
    vuser_configs: Vec<serde_json::Value>,
    #[serde(default)]
    thresholds: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
struct SeedTask {
    name: String,
    #[serde(default)]
    weight: Option<f64>,
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body_template: Option<String>,
}

/// Reads the plan at `path` (`-` is standard input) into the arguments: what it says stands where no flag does. The result says what to
/// run, and its text if that is not a file.
pub(crate) fn read(path: &Path, args: &mut RunArgs) -> Result<(Subject, Option<String>), Refusal> {
    let text = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| Refusal::file("read", path, &error))?;
            text
        }
        _ => read_text(path)?,
    };
    let plan: SeedPlan = serde_json::from_str(&text).map_err(|error| {
        Refusal::new(format!(
            "--plan {}: not a plan: {error} (it needs rps, duration_secs, target_url and tasks)",
            path.display()
        ))
    })?;
    // Its engine's only output: a line a second.
    if args.output.json_lines.is_none() && args.output.json.is_none() {
        args.output.json_lines = Some("-".into());
    }
    let load = &mut args.load;
    if load.rate.is_none() && load.users.is_none() && load.stages.is_none() {
        load.rate = Some(plan.rps.to_string());
    }
    if load.stages.is_none() {
        // Its ramp comes before its duration; ours is part of it.
        let ramp = if plan.mode.as_deref().is_none_or(|mode| mode == "ramp") { plan.ramp_up_secs } else { 0.0 };
        if load.duration.is_none() && load.requests.is_none() {
            load.duration = Some(format!("{}s", plan.duration_secs + ramp));
        }
        if ramp > 0.0 && load.ramp_up.is_none() {
            load.ramp_up = Some(format!("{ramp}s"));
        } else if let Some(mode) = plan.mode.as_deref().filter(|mode| *mode != "ramp")
            && load.profile.is_none()
        {
            load.profile = Some(mode.to_owned());
        }
        if plan.mode.as_deref() == Some("step") && load.steps.is_none() {
            load.steps = plan.steps.map(|steps| steps.to_string());
        }
    }
    args.target.get_or_insert(plan.target_url.clone());
    if args.name.is_none() {
        args.name.clone_from(&plan.name);
    }
    for (key, limit) in &plan.thresholds {
        args.thresholds.push(promise(key, *limit)?);
    }
    if let Some(file) = plan.scenario_file.filter(|file| !file.is_empty()) {
        if args.script.scenario.is_none() {
            args.script.scenario = plan.scenario_class;
        }
        return Ok((Subject::Script(file.into()), None));
    }
    if !plan.vuser_configs.is_empty() {
        return Err(Refusal::new(
            "--plan: vuser_configs carry what on_start of a Python scenario found out; give scenario_file too, and it is run here",
        ));
    }
    if plan.tasks.is_empty() {
        return Err(Refusal::new("--plan: it has no tasks"));
    }
    Ok((Subject::File(path.to_owned()), Some(plan.tasks.iter().map(in_our_words).collect())))
}

/// `p99_ms: 500` as `p99<=500ms`.
fn promise(key: &str, limit: f64) -> Result<String, Refusal> {
    match (key, key.strip_suffix("_ms")) {
        ("error_rate", _) => Ok(format!("error_rate<={limit}%")),
        (_, Some(statistic)) => Ok(format!("{statistic}<={limit}ms")),
        _ => Err(Refusal::new(format!(
            "--plan: threshold `{key}`: there are p50_ms, p95_ms, p99_ms, max_ms, error_rate"
        ))),
    }
}

fn in_our_words(task: &SeedTask) -> String {
    // A JSON string is a TOML string too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut toml = format!(
        "[[task]]\nname = {}\nweight = {:?}\nmethod = {}\nurl = {}\n",
        quoted(&task.name),
        task.weight.unwrap_or(1.0),
        quoted(task.method.as_deref().unwrap_or("GET")),
        quoted(&task.url),
    );
    if let Some(body) = task.body_template.as_deref().filter(|body| !body.is_empty()) {
        toml += &format!("body = {}\n", quoted(body));
    }
    if !task.headers.is_empty() {
        let pairs: Vec<String> =
            task.headers.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value))).collect();
        toml += &format!("headers = {{ {} }}\n", pairs.join(", "));
    }
    toml
}

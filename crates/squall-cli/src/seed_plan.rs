//! `--plan`: the plan that LoadPilot's command line gives its engine, as JSON. Turns it into a scenario in our own words, which is then
//! judged like any other; sends nothing.

use serde::Deserialize;
use squall_scenario::Files;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::Path,
};

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
    data_pool: Vec<serde_json::Value>,
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

/// A scenario in our own words, and the only file that it refers to: the plan's rows of data.
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) rows: Rows,
}

/// The rows of `data_pool` as lines of JSON.
pub(crate) struct Rows(Vec<u8>);

impl Files for Rows {
    fn read(&mut self, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn env(&mut self, _: &str) -> Option<String> {
        None
    }
}

/// Reads the plan at `path` (`-` is standard input) into the arguments: what it says stands where no flag does. The result says what to
/// run, and what it is if that is not a file.
pub(crate) fn read(path: &Path, args: &mut RunArgs) -> Result<(Subject, Option<Written>), Refusal> {
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
    if let Some(file) = plan.scenario_file.as_ref().filter(|file| !file.is_empty()) {
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
    Ok((Subject::File(path.to_owned()), Some(written(&plan)?)))
}

fn written(plan: &SeedPlan) -> Result<Written, Refusal> {
    let columns = columns(&plan.data_pool)?;
    let mut text = String::new();
    if !columns.is_empty() {
        text += "[[data]]\nname = \"data_pool\"\nfile = \"data_pool.jsonl\"\n";
    }
    for task in &plan.tasks {
        text += &in_our_words(task, &columns)?;
    }
    let rows = plan.data_pool.iter().map(|row| format!("{row}\n")).collect::<String>();
    Ok(Written { text, rows: Rows(rows.into_bytes()) })
}

/// What can be written `{{name}}`: it is in every row.
fn columns(pool: &[serde_json::Value]) -> Result<BTreeSet<&str>, Refusal> {
    let mut common: Option<BTreeSet<&str>> = None;
    for (index, row) in pool.iter().enumerate() {
        let row = row.as_object().ok_or_else(|| {
            Refusal::new(format!("--plan: data_pool[{index}]: a row is an object, like {{\"name\": \"ann\"}}"))
        })?;
        let keys = row.keys().map(String::as_str);
        common = Some(match common {
            None => keys.collect(),
            Some(common) => keys.filter(|key| common.contains(key)).collect(),
        });
    }
    let is_name = |key: &&str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    Ok(common.unwrap_or_default().into_iter().filter(is_name).collect())
}

/// A text of the plan as a template: `{{name}}` is a column of its data.
fn template(text: &str, place: &str, columns: &BTreeSet<&str>) -> Result<String, Refusal> {
    let mut parts = text.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        if !columns.contains(name.trim()) {
            let known: Vec<&str> = columns.iter().copied().collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refusal::new(format!(
                "--plan: {place}: `{{{{{name}}}}}` is no column of data_pool (in all of its rows: {known})"
            )));
        }
        out += &format!("{{{{ data_pool.{} }}}}{rest}", name.trim());
    }
    Ok(out)
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

fn in_our_words(task: &SeedTask, columns: &BTreeSet<&str>) -> Result<String, Refusal> {
    // A JSON string is a TOML string too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let filled = |text: &str, field: &str| {
        template(text, &format!("task `{}`, {field}", task.name), columns).map(|text| quoted(&text))
    };
    let mut toml = format!(
        "[[task]]\nname = {}\nweight = {:?}\nmethod = {}\nurl = {}\n",
        quoted(&task.name),
        task.weight.unwrap_or(1.0),
        quoted(task.method.as_deref().unwrap_or("GET")),
        filled(&task.url, "url")?,
    );
    if let Some(body) = task.body_template.as_deref().filter(|body| !body.is_empty()) {
        toml += &format!("body = {}\n", filled(body, "body_template")?);
    }
    if !task.headers.is_empty() {
        let pair = |(name, value): (&String, &String)| Ok(format!("{} = {}", quoted(name), filled(value, "headers")?));
        let pairs: Vec<String> = task.headers.iter().map(pair).collect::<Result<_, Refusal>>()?;
        toml += &format!("headers = {{ {} }}\n", pairs.join(", "));
    }
    Ok(toml)
}

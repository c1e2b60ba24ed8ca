//! `--plan`: converts the JSON plan of LoadPilot's engine to a TOML scenario and to flags, which
//! are then validated like any other. Sends nothing. `commands::run` calls it.

use serde::Deserialize;
use squall_scenario::ScenarioFiles;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::Path,
};

use crate::{
    args::{LineStyle, LoadArgs, RunArgs},
    commands::run::read_text,
    exit::CliError,
    run_input::RunInput,
};

/// A plan of LoadPilot. Fields that its engine ignores are ignored here too.
#[derive(Debug, Deserialize)]
struct LoadPilotPlan {
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
    tasks: Vec<LoadPilotTask>,
    #[serde(default)]
    scenario_file: Option<String>,
    #[serde(default)]
    scenario_class: Option<String>,
    #[serde(default)]
    data_pool: Vec<serde_json::Value>,
    #[serde(default)]
    vuser_configs: Vec<LoadPilotUser>,
    #[serde(default)]
    n_vusers: Option<u32>,
    #[serde(default)]
    thresholds: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
struct LoadPilotTask {
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

impl LoadPilotTask {
    fn has_body(&self) -> bool {
        self.body_template.as_ref().is_some_and(|body| !body.is_empty())
    }
}

/// The result of a scenario's `on_start` for one user: headers and URLs by task name, which replace
/// the task's own.
#[derive(Debug, Default, Deserialize)]
struct LoadPilotUser {
    #[serde(default)]
    task_headers: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    task_urls: BTreeMap<String, String>,
}

/// The plan as a TOML scenario, with the data files that it refers to.
pub(crate) struct ConvertedPlan {
    pub(crate) toml: String,
    pub(crate) data_files: PlanDataFiles,
}

/// The rows of `data_pool` and `vuser_configs` as JSON lines.
pub(crate) struct PlanDataFiles {
    pool: String,
    users: String,
}

const DATA_POOL: &str = "data_pool";
const VUSER_CONFIGS: &str = "vuser_configs";

impl ScenarioFiles for PlanDataFiles {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let rows = if path.ends_with(&data_file_name(DATA_POOL)) { &self.pool } else { &self.users };
        Ok(rows.clone().into_bytes())
    }

    fn env(&mut self, _: &str) -> Option<String> {
        None
    }
}

/// Reads the plan at `path` (`-` is standard input) into `args`; flags win over the plan. Returns
/// the input to run, and the converted plan unless the input is a script.
pub(crate) fn read(path: &Path, args: &mut RunArgs) -> Result<(RunInput, Option<ConvertedPlan>), CliError> {
    let plan = parse(path)?;
    // LoadPilot's engine writes a JSON line a second.
    if args.output.json_lines.is_none() && args.output.json.is_none() {
        args.output.json_lines = Some("-".into());
    }
    args.output.line_style = LineStyle::Loadpilot;
    plan.set_load(&mut args.load);
    args.target.get_or_insert(plan.target_url.clone());
    if args.name.is_none() {
        args.name.clone_from(&plan.name);
    }
    for (key, limit) in &plan.thresholds {
        args.thresholds.push(convert_threshold(key, *limit)?);
    }
    if let Some(file) = plan.scenario_file.as_ref().filter(|file| !file.is_empty()) {
        if args.script.scenario.is_none() {
            args.script.scenario.clone_from(&plan.scenario_class);
        }
        if args.engine.start_users.is_none() && args.load.users.is_none() {
            args.engine.start_users = plan.n_vusers.filter(|users| *users > 0);
        }
        return Ok((RunInput::Script(file.into()), None));
    }
    if plan.tasks.is_empty() {
        return Err(CliError::new("--plan: the plan has no tasks: add one, or a scenario_file"));
    }
    Ok((RunInput::ScenarioFile(path.to_owned()), Some(convert(&plan)?)))
}

fn parse(path: &Path) -> Result<LoadPilotPlan, CliError> {
    let text = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| CliError::file_error("read", path, &error))?;
            text
        }
        _ => read_text(path)?,
    };
    serde_json::from_str(&text).map_err(|error| {
        CliError::new(format!(
            "--plan {}: not a LoadPilot plan: {error} (it needs rps, duration_secs, target_url and tasks)",
            path.display()
        ))
    })
}

impl LoadPilotPlan {
    /// Sets what no flag has set.
    fn set_load(&self, load: &mut LoadArgs) {
        if load.rate.is_none() && load.users.is_none() && load.stages.is_none() {
            load.rate = Some(self.rps.to_string());
        }
        if load.stages.is_some() {
            return;
        }
        // LoadPilot adds the ramp to the duration; in Squall it is part of the duration.
        let ramp = if self.mode.as_deref().is_none_or(|mode| mode == "ramp") { self.ramp_up_secs } else { 0.0 };
        if load.duration.is_none() && load.requests.is_none() {
            load.duration = Some(format!("{}s", self.duration_secs + ramp));
        }
        if ramp > 0.0 && load.ramp_up.is_none() {
            load.ramp_up = Some(format!("{ramp}s"));
        } else if let Some(mode) = self.mode.as_deref().filter(|mode| *mode != "ramp")
            && load.profile.is_none()
        {
            load.profile = Some(mode.to_owned());
        }
        if self.mode.as_deref() == Some("step") && load.steps.is_none() {
            load.steps = self.steps.map(|steps| steps.to_string());
        }
    }
}

fn convert(plan: &LoadPilotPlan) -> Result<ConvertedPlan, CliError> {
    let columns = shared_columns(&plan.data_pool)?;
    let per_user: Vec<PerUserFields> =
        plan.tasks.iter().map(|task| PerUserFields::collect(task, &plan.vuser_configs)).collect();
    let mut text = String::new();
    let used = [(DATA_POOL, !columns.is_empty()), (VUSER_CONFIGS, per_user.iter().any(PerUserFields::is_used))];
    for (name, _) in used.iter().filter(|(_, used)| *used) {
        text += &format!("[[data]]\nname = \"{name}\"\nfile = \"{}\"\n", data_file_name(name));
    }
    for (index, (task, per_user)) in plan.tasks.iter().zip(&per_user).enumerate() {
        text += &task_toml((index, task), per_user, &columns)?;
    }
    let pool = plan.data_pool.iter().map(|row| format!("{row}\n")).collect();
    let users = plan.vuser_configs.iter().map(|user| format!("{}\n", user_row(user, &plan.tasks, &per_user))).collect();
    Ok(ConvertedPlan { toml: text, data_files: PlanDataFiles { pool, users } })
}

fn data_file_name(name: &str) -> String {
    format!("{name}.jsonl")
}

/// Which fields of a task differ between users.
struct PerUserFields<'p> {
    url: bool,
    headers: BTreeSet<&'p str>,
}

impl<'p> PerUserFields<'p> {
    fn collect(task: &LoadPilotTask, users: &'p [LoadPilotUser]) -> PerUserFields<'p> {
        let names = |user: &'p LoadPilotUser| user.task_headers.get(&task.name).into_iter().flat_map(BTreeMap::keys);
        PerUserFields {
            url: users.iter().any(|user| user.task_urls.contains_key(&task.name)),
            headers: users.iter().flat_map(names).map(String::as_str).collect(),
        }
    }

    fn is_used(&self) -> bool {
        self.url || !self.headers.is_empty()
    }
}

/// A user's URLs and headers, under the names that the templates of the tasks use. The task's own
/// value replaces a missing one.
fn user_row(user: &LoadPilotUser, tasks: &[LoadPilotTask], per_user: &[PerUserFields<'_>]) -> serde_json::Value {
    let mut row = serde_json::Map::new();
    for (index, (task, per_user)) in tasks.iter().zip(per_user).enumerate() {
        if per_user.url {
            let url = user.task_urls.get(&task.name).unwrap_or(&task.url);
            row.insert(format!("url_{index}"), url.as_str().into());
        }
        for (nth, name) in per_user.headers.iter().enumerate() {
            let own_value = user.task_headers.get(&task.name).and_then(|headers| headers.get(*name));
            let value = own_value.or_else(|| task.headers.get(*name)).map_or("", String::as_str);
            row.insert(format!("header_{index}_{nth}"), value.into());
        }
    }
    row.into()
}

/// The columns that templates may use: those of every row.
fn shared_columns(pool: &[serde_json::Value]) -> Result<BTreeSet<&str>, CliError> {
    let mut common: Option<BTreeSet<&str>> = None;
    for (index, row) in pool.iter().enumerate() {
        let row = row.as_object().ok_or_else(|| {
            CliError::new(format!("--plan: data_pool[{index}]: a row must be an object, like {{\"name\": \"ann\"}}"))
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

/// Converts a template of the plan: `{{name}}` is a column of `data_pool`.
fn convert_template(text: &str, place: &str, columns: &BTreeSet<&str>) -> Result<String, CliError> {
    let mut parts = text.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        if !columns.contains(name.trim()) {
            let known: Vec<&str> = columns.iter().copied().collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(CliError::new(format!(
                "--plan: {place}: `{{{{{name}}}}}` is not a column of data_pool (columns of all rows: {known})"
            )));
        }
        out += &format!("{{{{ data_pool.{} }}}}{rest}", name.trim());
    }
    Ok(out)
}

/// `p99_ms: 500` as `p99<=500ms`.
fn convert_threshold(key: &str, limit: f64) -> Result<String, CliError> {
    match (key, key.strip_suffix("_ms")) {
        ("error_rate", _) => Ok(format!("error_rate<={limit}%")),
        (_, Some(statistic)) => Ok(format!("{statistic}<={limit}ms")),
        _ => Err(CliError::new(format!(
            "--plan: unknown threshold `{key}`: use p50_ms, p95_ms, p99_ms, max_ms or error_rate"
        ))),
    }
}

fn task_toml(
    (index, task): (usize, &LoadPilotTask),
    per_user: &PerUserFields<'_>,
    columns: &BTreeSet<&str>,
) -> Result<String, CliError> {
    // A JSON string is also a TOML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let template = |text: &str, field: &str| {
        convert_template(text, &format!("task `{}`, {field}", task.name), columns).map(|text| quoted(&text))
    };
    let mut toml = format!(
        "[[task]]\nname = {}\nweight = {:?}\nmethod = {}\nurl = {}\n",
        quoted(&task.name),
        task.weight.unwrap_or(1.0),
        quoted(task.method.as_deref().unwrap_or("GET")),
        if per_user.url {
            quoted(&format!("{{{{ {VUSER_CONFIGS}.url_{index} }}}}"))
        } else {
            template(&task.url, "url")?
        },
    );
    if let Some(body) = task.body_template.as_deref().filter(|_| task.has_body()) {
        toml += &format!("body = {}\n", template(body, "body_template")?);
    }
    let shared = task.headers.iter().filter(|(name, _)| !per_user.headers.contains(name.as_str()));
    let pair = |(name, value): (&String, &String)| Ok(format!("{} = {}", quoted(name), template(value, "headers")?));
    let mut pairs: Vec<String> = shared.map(pair).collect::<Result<_, CliError>>()?;
    let is_content_type = |name: &str| name.eq_ignore_ascii_case("content-type");
    let has_type = task.headers.keys().any(|name| is_content_type(name));
    if task.has_body() && !has_type && !per_user.headers.iter().any(|name| is_content_type(name)) {
        pairs.push(r#"Content-Type = "application/json""#.to_owned());
    }
    for (nth, name) in per_user.headers.iter().enumerate() {
        let value = format!("{{{{ {VUSER_CONFIGS}.header_{index}_{nth} }}}}");
        pairs.push(format!("{} = {}", quoted(name), quoted(&value)));
    }
    if !pairs.is_empty() {
        toml += &format!("headers = {{ {} }}\n", pairs.join(", "));
    }
    Ok(toml)
}

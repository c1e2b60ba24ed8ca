//! Loads Python scenarios for the command line: imports the file in this interpreter, has
//! `squall-scenario` check its plan, and returns a driver. It runs no scenario. `squall-cli` calls
//! it through [`ScriptHost`].

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use squall_cli::{
    DriverMaker, LoadedScenario, MakeResource, ScenarioHooks, ScenarioParam, ScriptDescription, ScriptError,
    ScriptHost, ScriptOptions, ScriptScenario,
};
use squall_engine::PlannedScenario;
use squall_http::basic_auth;
use squall_model::{LoadModel, Plan, PoolContents, format_duration};
use squall_scenario::{CodeScenario, RawCodeScenario, RawLoad, ScenarioOverrides, Sourced};
use squall_streams::cli::{AppStreamSend, RecordSource, StreamWorkerArgs};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use crate::{
    combined_plan,
    declared_plan::DeclaredPlan,
    driver::{PythonDriver, check_constant_requests},
    python_scenario::{PythonScenario, ScenarioHttpSettings},
    routes::BaseUrl,
    run_hooks::PythonHooks,
    running_code::{self, RunningCode},
};

/// The interpreter of this process.
#[derive(Clone)]
pub(crate) struct Interpreter {
    /// The command line, program name included.
    pub(crate) arguments: Vec<OsString>,
}

impl ScriptHost for Interpreter {
    type Driver = PythonDriver;

    fn open(&self, options: ScriptOptions) -> Result<LoadedScenario<PythonDriver>, ScriptError> {
        let _running = RunningCode::begin();
        Python::attach(|py| open(py, options))
    }

    fn open_in_worker(&self, options: ScriptOptions) -> Result<LoadedScenario<PythonDriver>, ScriptError> {
        let _running = RunningCode::begin();
        Python::attach(|py| {
            enter_bundle(py, &options.file).map_err(|error| script_error(py, &error))?;
            open(py, options)
        })
    }

    fn describe(&self, file: &Path, scenario: Option<&str>) -> Result<ScriptDescription, ScriptError> {
        Python::attach(|py| describe_script(py, file, scenario).map_err(|error| script_error(py, &error)))
    }

    fn bundle(&self, file: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, ScriptError> {
        Python::attach(|py| collect_bundle(py, file).map_err(|error| script_error(py, &error)))
    }

    fn interpreter(&self) -> Option<PathBuf> {
        // `sys.executable`, not the path of the running process: in a virtual environment that path
        // is the base interpreter, which does not have the package.
        Python::attach(|py| py.import("sys")?.getattr("executable")?.extract()).ok()
    }

    fn process_command(&self) -> Option<Command> {
        let mut command = Command::new(self.interpreter()?);
        // `-P`: the current folder may hold a `squall.py`.
        command.args(["-P", "-m", "squall"]).args(self.arguments.iter().skip(1));
        Some(command)
    }

    fn redirect_stdout_to_stderr(&self) {
        Python::attach(|py| {
            let replaced = py.import("sys").and_then(|sys| sys.setattr("stdout", sys.getattr("stderr")?));
            if let Err(error) = replaced {
                error.write_unraisable(py, None);
            }
        });
    }

    fn is_free_threaded(&self) -> bool {
        Python::attach(|py| {
            let gil_enabled = py.import("sys").and_then(|sys| sys.call_method0("_is_gil_enabled")?.is_truthy());
            // An interpreter without `_is_gil_enabled` has the GIL.
            !gil_enabled.unwrap_or(true)
        })
    }

    fn run_stream_worker(&self, worker: &StreamWorkerArgs) -> Result<u8, ScriptError> {
        Python::attach(|py| run_stream_worker(py, worker).map_err(|error| script_error(py, &error)))
    }

    fn send_to_stream(&self, send: &AppStreamSend) -> Result<u8, ScriptError> {
        Python::attach(|py| send_to_stream(py, send).map_err(|error| script_error(py, &error)))
    }
}

/// Runs the processors of a streams app on an asyncio loop of this thread. `squall.streams` finds,
/// checks and starts them.
fn run_stream_worker(py: Python<'_>, worker: &StreamWorkerArgs) -> PyResult<u8> {
    let options = PyDict::new(py);
    options.set_item("processors", &worker.processors)?;
    options.set_item("redis_url", &worker.redis)?;
    options.set_item("namespace", &worker.namespace)?;
    options.set_item("prometheus", worker.prometheus.map(|addr| addr.to_string()))?;
    options.set_item("allow_remote", worker.allow_remote)?;
    options.set_item("log_level", &worker.log_level)?;
    options.set_item("log_format", &worker.log_format)?;
    py.import("squall.streams._command")?.call_method("work", (&worker.app,), Some(&options))?.extract()
}

/// Sends records to a stream of an app; `squall.streams` finds it and reads the records.
fn send_to_stream(py: Python<'_>, send: &AppStreamSend) -> PyResult<u8> {
    let (record, file) = match &send.records {
        RecordSource::Json(text) => (Some(text), None),
        RecordSource::File(path) => (None, Some(path)),
    };
    let options = PyDict::new(py);
    options.set_item("record", record)?;
    options.set_item("file", file)?;
    options.set_item("redis_url", &send.redis)?;
    options.set_item("namespace", &send.namespace)?;
    options.set_item("no_wait", send.no_wait)?;
    options.set_item("drop_unread", send.drop_unread)?;
    py.import("squall.streams._command")?.call_method("send", (&send.stream,), Some(&options))?.extract()
}

/// Switches to the folder of a new bundle and unloads the modules of the previous run, because the
/// modules of both may have the same names.
fn enter_bundle(py: Python<'_>, file: &Path) -> PyResult<()> {
    let folder = file.parent().unwrap_or(Path::new(".")).to_string_lossy();
    py.import("squall._bundle")?.call_method1("enter_folder", (folder,)).map(|_| ())
}

fn collect_bundle(py: Python<'_>, file: &Path) -> PyResult<BTreeMap<PathBuf, Vec<u8>>> {
    let files = py.import("squall._bundle")?.call_method1("pack", (file.to_string_lossy(),))?;
    Ok(files.extract::<BTreeMap<String, Vec<u8>>>()?.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect())
}

/// A parameter from `squall._offer.describe`: name, kind, whether it is required, annotation,
/// default in JSON.
type InitParamTuple = (String, String, bool, Option<String>, Option<String>);

fn describe_script(py: Python<'_>, file: &Path, scenario: Option<&str>) -> PyResult<ScriptDescription> {
    let described = py.import("squall._offer")?.call_method1("describe", (file.to_string_lossy(), scenario))?;
    let params: Vec<InitParamTuple> = described.getattr("params")?.extract()?;
    let param =
        |(name, kind, required, annotation, default)| ScenarioParam { name, kind, required, annotation, default };
    Ok(ScriptDescription {
        params: params.into_iter().map(param).collect(),
        accepts_any_param: described.getattr("takes_any_param")?.extract()?,
        resources: described.getattr("resources")?.extract()?,
        probes: described.getattr("probes")?.extract()?,
        make_resource: Some(resource_maker(described.getattr("make_resource")?.unbind())),
    })
}

/// Calls the scenario's factories through `make_resource`, which returns JSON, or None for a pool
/// without a factory.
fn resource_maker(make_resource: Py<PyAny>) -> Arc<MakeResource> {
    Arc::new(move |pool, number| {
        Python::attach(|py| {
            let made = make_resource.call1(py, (pool, number)).and_then(|made| made.extract::<Option<String>>(py));
            made.map_err(|error| error.to_string()).transpose()
        })
    })
}

/// Refuses a scenario whose requirements are not installed here, before it fails in the middle of a
/// run. The error lists every missing package.
fn check_requirements(py: Python<'_>, requirements: &str) -> Result<(), ScriptError> {
    let missing = || py.import("squall._bundle")?.call_method1("unmet", (requirements,))?.extract::<Vec<String>>();
    match missing().map_err(|error| script_error(py, &error))? {
        missing if missing.is_empty() => Ok(()),
        missing => Err(ScriptError::MissingRequirements { missing }),
    }
}

fn open(py: Python<'_>, options: ScriptOptions) -> Result<LoadedScenario<PythonDriver>, ScriptError> {
    options.requirements.as_deref().map_or(Ok(()), |requirements| check_requirements(py, requirements))?;
    let all = load(py, &options);
    running_code::end_forked_child();
    let all = all.map_err(|error| script_error(py, &error))?;
    let (probes, scenarios): (Vec<_>, Vec<_>) =
        all.iter().partition(|loaded| loaded.getattr("is_probe").is_ok_and(|probe| probe.is_truthy().unwrap_or(false)));
    let several = scenarios.len() > 1;
    let opened = scenarios.iter().map(|loaded| open_one(loaded, options.overrides.clone(), several));
    let mut members = opened.collect::<Result<Vec<_>, ScriptError>>()?;
    let plans: Vec<&Plan> = members.iter().map(|opened| &opened.member.plan).collect();
    let plan = if several { combined_plan::combine(&plans) } else { plans[0].clone() };
    for loaded in &probes {
        let mut probe = open_one(loaded, probe_overrides(&plan, &options.overrides), true)?;
        probe.member.background = true;
        members.push(probe);
    }
    let description = members.iter().map(|opened| opened.description.as_str()).collect();
    let (phases, pools) = (members[0].phases, std::mem::take(&mut members[0].pools));
    let hooks = members[0].hooks.take();
    let scenarios = members.into_iter().map(|opened| opened.member).collect();
    Ok(LoadedScenario::Script(ScriptScenario {
        plan,
        description,
        phases,
        scenarios,
        pools,
        hooks,
        process_commands: None,
    }))
}

/// The overrides of a probe: one user for the duration of `plan`.
fn probe_overrides(plan: &Plan, overrides: &ScenarioOverrides) -> ScenarioOverrides {
    let load = RawLoad {
        users: Some(Sourced::from_flag("--users", "1")),
        duration: Some(Sourced::from_flag("--for", format!("{}s", plan.duration().as_secs_f64()))),
        ..RawLoad::default()
    };
    ScenarioOverrides { load, name: None, thresholds: Vec::new(), ..overrides.clone() }
}

/// A scenario whose plan has been checked.
struct OpenedScenario {
    member: PlannedScenario<DriverMaker<PythonDriver>>,
    description: String,
    phases: bool,
    /// The pools that the file declares, the same for all of its scenarios.
    pools: Vec<PoolContents>,
    /// The file's set-up and tear-down, also the same for all of its scenarios.
    hooks: Option<Arc<dyn ScenarioHooks>>,
}

fn open_one(
    loaded: &Bound<'_, PyAny>,
    mut overrides: ScenarioOverrides,
    prefixed: bool,
) -> Result<OpenedScenario, ScriptError> {
    if prefixed {
        // `--name` names the run, not each of its scenarios.
        overrides.name = None;
    }
    let declared = declared_scenario(loaded).map_err(exception)?;
    let (headers, no_target) = (flag_headers(&overrides), overrides.placeholder_target);
    // Code that sends CQL statements may have no target either.
    let needs_no_target = declared.absolute_origin.is_some() || declared.cql.location.is_some();
    let absolute_only = needs_no_target && declared.target.is_none() && overrides.target.is_none();
    let scenario = CodeScenario::build(declared, overrides).map_err(invalid_scenario)?;
    let phases = scenario.connector.config().record_phases;
    let prefix = if prefixed { combined_plan::metric_prefix(&scenario.plan.name) } else { String::new() };
    let base = BaseUrl::new(&scenario.plan.target, absolute_only).map_err(invalid_scenario)?;
    let http_settings = ScenarioHttpSettings {
        connector: scenario.connector,
        browser: scenario.browser,
        #[cfg(feature = "cql")]
        cql: scenario.cql,
        base,
        headers,
        prefix,
    };
    let script = Arc::new(PythonScenario::read(loaded, http_settings).map_err(exception)?);
    check_constant_requests(loaded.py(), &script).map_err(invalid_scenario)?;
    let target = match scenario.plan.target.as_str() {
        placeholder if Some(placeholder) == no_target => "no target yet (--target URL)",
        target => target,
    };
    let description = describe(&scenario.plan, target, &script, &scenario.notes);
    // One thread runs the Python code of all users: more threads would only wait for the
    // interpreter.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if script.needs_python { 1 } else { cores };
    let driver: DriverMaker<PythonDriver> = Arc::new(move || PythonDriver::new(script.clone()));
    let pools = declared_pools(loaded).map_err(exception)?;
    let hooks =
        PythonHooks::from_loaded(loaded).map_err(exception)?.map(|hooks| Arc::new(hooks) as Arc<dyn ScenarioHooks>);
    let member = PlannedScenario { plan: scenario.plan, driver, threads: Some(threads), background: false };
    Ok(OpenedScenario { member, description, phases, pools, hooks })
}

/// What the scenario declares, without its code.
fn declared_scenario(loaded: &Bound<'_, PyAny>) -> PyResult<RawCodeScenario> {
    let plan: DeclaredPlan = loaded.getattr("plan")?.extract()?;
    Ok(plan.into_raw(loaded.getattr("file")?.extract()?))
}

fn load<'py>(py: Python<'py>, options: &ScriptOptions) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let params = PyDict::new(py);
    let json = py.import("json")?;
    for (name, value) in &options.params {
        // A value that is not valid JSON stays a string.
        let value =
            json.call_method1("loads", (value,)).unwrap_or_else(|_| pyo3::types::PyString::new(py, value).into_any());
        params.set_item(name, value)?;
    }
    let file = options.file.to_string_lossy();
    py.import("squall._load")?
        .call_method1("load_all", (file, &options.scenario, params, &options.mode, options.threads_for_blocking))?
        .extract()
}

/// The resource pools that the scenario declares.
fn declared_pools(loaded: &Bound<'_, PyAny>) -> PyResult<Vec<PoolContents>> {
    let pools: Vec<(String, Vec<String>)> = loaded.getattr("pool_contents")?.extract()?;
    Ok(pools.into_iter().map(|(pool, payloads)| PoolContents { pool, payloads }).collect())
}

/// Why Python cannot do what a command asks. A `ScenarioError` is a mistake in the scenario and
/// needs one line; any other exception is a bug and keeps its traceback.
fn script_error(py: Python<'_>, error: &PyErr) -> ScriptError {
    let known = py.import("squall._errors").and_then(|errors| errors.getattr("ScenarioError"));
    if known.is_ok_and(|class| error.is_instance(py, &class)) {
        return ScriptError::InvalidScenario(error.value(py).to_string());
    }
    let format = || -> PyResult<String> {
        let lines = py.import("traceback")?.call_method1("format_exception", (error.value(py),))?;
        Ok(lines.cast_into::<PyList>()?.iter().map(|line| line.to_string()).collect())
    };
    ScriptError::Exception(format().unwrap_or_else(|_| error.to_string()))
}

fn invalid_scenario(error: impl std::fmt::Display) -> ScriptError {
    ScriptError::InvalidScenario(error.to_string())
}

fn exception(error: PyErr) -> ScriptError {
    ScriptError::Exception(error.to_string())
}

/// The headers that command-line flags add to every request.
fn flag_headers(overrides: &ScenarioOverrides) -> Vec<(String, String)> {
    let http = &overrides.http;
    let mut headers: Vec<(String, String)> =
        http.headers.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
    if let Some(basic) = &http.basic {
        let (user, password) = basic.value.split_once(':').unwrap_or((&basic.value, ""));
        headers.push(("Authorization".to_owned(), basic_auth(user, password)));
    }
    if let Some(bearer) = &http.bearer {
        headers.push(("Authorization".to_owned(), format!("Bearer {}", bearer.value)));
    }
    headers
}

fn describe(plan: &Plan, target: &str, script: &PythonScenario, notes: &[String]) -> String {
    let load = match &plan.load.model {
        LoadModel::Open { rate, .. } => format!("up to {}/s", rate.peak()),
        LoadModel::Closed { users, .. } => format!("up to {} users", users.peak()),
    };
    let mode = match (script.needs_python, script.on_asyncio) {
        (false, _) => "static: everything it does is constant, so no Python runs".to_owned(),
        (true, false) => format!("stepped: the engine resumes its code itself, because {}", script.mode_reason),
        (true, true) => format!("asyncio: its coroutines run on an asyncio loop, because {}", script.mode_reason),
    };
    // Several scenarios have a mode each, and so have probes.
    let of_scenario = if script.prefix.is_empty() { String::new() } else { format!("of {}: ", plan.name) };
    let mut text = format!(
        "{}: {load} for {} against {target}\n{}mode {of_scenario}{mode}\n{}tasks:\n",
        plan.name,
        format_duration(plan.duration()),
        notes.iter().map(|note| format!("note: {note}\n")).collect::<String>(),
        script.threads_notice().map_or(String::new(), |notice| format!("{notice}\n")),
    );
    for (spec, task) in plan.tasks.iter().zip(&script.tasks) {
        let kind = match (&task.requests, task.function.kind) {
            (Some(_), _) => "static",
            (None, crate::python_scenario::FunctionKind::Coroutine) if script.on_asyncio => "asyncio, async def",
            (None, crate::python_scenario::FunctionKind::Coroutine) => "stepped, async def",
            (None, crate::python_scenario::FunctionKind::Plain) if script.blocking_reason.is_some() => {
                "def on a thread"
            }
            (None, crate::python_scenario::FunctionKind::Plain) => "stepped, def as a fiber",
        };
        let check = if task.check.is_some() { ", checked" } else { "" };
        text += &format!("  {} (weight {}{check}): {kind} because {}\n", spec.name, spec.weight, task.mode_reason);
    }
    text
}

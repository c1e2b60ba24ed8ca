//! `squall run`: loads the scenario, opens the outputs, runs it and reports. Sends nothing before
//! the scenario, the flags and the outputs have been validated.

mod execute_run;
pub(crate) mod outputs;
mod processes;
mod web_page;

use squall_coord::{FleetStores, StoreError};
use squall_engine::Driver;
use squall_model::{Bundle, RunPhase};
use squall_orchestrator::{
    FleetClient, FleetError, FleetRunError, FleetRunRequest, RunControl, RunObserver, RunOptions, RunResult,
    WorkerInfo, run_fleet,
};
use squall_report::{InterruptionRule, ReportInput, ScheduleRule, exit_code, failure_text, summary};
use squall_scenario::{DiskFiles, ScenarioFiles, read_input_text};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

#[cfg(feature = "cql")]
pub(crate) use execute_run::observe_run;
pub(crate) use execute_run::{ProgressDisplay, execute_run, run_options};
use outputs::RunOutputs;
use squall_web::WebConfig;
use web_page::WebPage;

use crate::{
    api_client::NO_WORKER_MESSAGE,
    args::RunArgs,
    bundle,
    command_line::{self, ShownValues},
    exit::{self, CliError, PASSED, error_chain},
    find_max::{self, ScenarioProbes, SearchSettings},
    flag_settings, fleet_store,
    input_files::{self, TrackedFiles},
    loaded_scenario::LoadedScenario,
    loadpilot_plan, local_fleet_state, preset_flags,
    run_history::{self, SavedBy},
    run_input::RunInput,
    run_settings::RunSettings,
    scenario_picker,
    script_host::ScriptHost,
    signals,
    stop_button::StopButton,
    terminal::{self, print},
};

pub(crate) fn run<H: ScriptHost>(mut args: RunArgs, host: &H) -> Result<u8, CliError> {
    let (input, converted) = match args.plan.clone() {
        Some(_) if args.fleet.cluster.is_some() || args.script.processes.is_some() => {
            return Err(CliError::new("--plan runs in this process only: leave --cluster and --processes out"));
        }
        Some(path) => loadpilot_plan::read(&path, &mut args)?,
        None => (resolve_input(&mut args)?, None),
    };
    if args.output.uses_stdout() {
        host.redirect_stdout_to_stderr();
    }
    if let Some(mut redis) = args.fleet.cluster.clone() {
        if redis.is_empty() {
            let store = local_fleet_state::running_fleet_store()?;
            (redis, args.fleet.fleet) = (store.redis, store.fleet);
        }
        return run_on_fleet(&input, &args, host, &redis);
    }
    if let Some(address) = &args.web {
        return run_with_page(&input, &args, host, address);
    }
    let mut scenario = load_scenario(&input, &args, converted, host)?;
    if args.search.find_max.is_some() && scenario.has_multiple_scenarios() {
        return Err(CliError::new("--find-max searches the rate of one scenario: choose it with --scenario"));
    }
    if args.check {
        print::stdout((scenario.describe() + &preset_flags::describe(&args.origins)).as_bytes())?;
        return Ok(PASSED);
    }
    if let Some((part, seed)) = flag_settings::parse_part(&args)? {
        return processes::run_as_process(&args, &scenario, part, seed);
    }
    print_notes(&args, &scenario.describe());
    if scenario.has_multiple_scenarios() && !args.output.quiet {
        let names = scenario.plan().name.replace(" + ", ", ");
        terminal::print_stderr(format!("scenarios that run together: {names}; --scenario NAME runs one\n"));
    }
    processes::split_into_processes(&args, &mut scenario, host)?;
    match SearchSettings::of_run(&args, scenario.plan()) {
        Some(settings) => find_max::find_max(&ScenarioProbes { scenario: &scenario, engine: &args.engine }, &settings),
        None => run_locally(&args, &scenario),
    }
}

/// Prints how the script's code runs, and what differs from the scenario.
pub(crate) fn print_notes(args: &RunArgs, description: &str) {
    let is_note = |line: &&str| ["mode ", "note: ", "plain functions "].iter().any(|start| line.starts_with(start));
    for line in description.lines().filter(|line| is_note(line) && !args.output.quiet) {
        terminal::print_stderr(format!("{line}\n"));
    }
}

/// The scenario or URL to run. In `--json http://…` clap gives the URL to the flag, whose path is
/// optional; it is the input then. On a terminal, a prompt asks for a missing scenario.
pub(crate) fn resolve_input(args: &mut RunArgs) -> Result<RunInput, CliError> {
    if args.input.is_none() {
        for (value, default_path) in args.output.optional_path_flags() {
            let input = value.as_ref().and_then(|path| path.to_str()).filter(|text| RunInput::is_unambiguous(text));
            if let Some(input) = input.map(str::to_owned) {
                *value = Some(PathBuf::from(default_path));
                args.input = Some(input);
                break;
            }
        }
    }
    if let Some(input) = args.fleet.cluster.clone().filter(|text| args.input.is_none() && is_run_input(text)) {
        (args.fleet.cluster, args.input) = (Some(String::new()), Some(input));
    }
    if args.input.is_none()
        && args.script.processes.is_none()
        && io::stdin().is_terminal()
        && io::stdout().is_terminal()
    {
        args.input =
            Some(scenario_picker::prompt_for_scenario(Path::new("."), &mut io::stdin().lock(), &mut io::stdout())?);
    }
    let missing =
        || CliError::new("nothing to run: give a URL, or a .toml or .py scenario; `squall run --help` has examples");
    RunInput::parse(args.input.as_deref().ok_or_else(missing)?)
}

/// Whether the word after `--cluster` is the scenario or URL to run, and not a store.
fn is_run_input(text: &str) -> bool {
    RunInput::is_unambiguous(text) && (!text.contains("://") || text.starts_with("http"))
}

/// Loads the scenario from its file, or from a `converted` LoadPilot plan.
pub(crate) fn load_scenario<H: ScriptHost>(
    input: &RunInput,
    args: &RunArgs,
    converted: Option<loadpilot_plan::ConvertedPlan>,
    host: &H,
) -> Result<LoadedScenario<H::Driver>, CliError> {
    let (converted_text, mut data_files) = converted.map(|plan| (plan.toml, plan.data_files)).unzip();
    let files: &mut dyn ScenarioFiles = match (input, &mut data_files) {
        (_, Some(data_files)) => data_files,
        (RunInput::Url(_), None) => &mut DiskFiles::relative_to_working_dir(),
        (RunInput::ScenarioFile(path) | RunInput::Script(path), None) => &mut DiskFiles::relative_to_scenario(path),
    };
    let text_of = |path: &Path| converted_text.clone().map_or_else(|| read_text(path), Ok);
    let settings = RunSettings::from_args(input, args, text_of)?;
    let (params, part) = (flag_settings::parse_params(args)?, flag_settings::process_index(args)?);
    let read = RefCell::default();
    let scenario = settings.load(params, part, &mut TrackedFiles::new(files, &read), |script| host.open(script))?;
    input_files::reject_outputs_over_inputs(input, args, read.into_inner(), host)?;
    flag_settings::reject_unused_flags(args, &scenario.loads())?;
    Ok(scenario)
}

pub(crate) fn read_text(path: &Path) -> Result<String, CliError> {
    read_input_text(path).map_err(|error| CliError::file_error("read", path, &error))
}

fn run_locally<D: Driver + 'static>(args: &RunArgs, scenario: &LoadedScenario<D>) -> Result<u8, CliError> {
    let options = run_options(&args.engine, scenario);
    run_and_report(args, |button, display, outputs| {
        let options = RunOptions { histogram_window_s: outputs.histogram_window_s(), ..options };
        execute_run(button, display, outputs, async |control: &RunControl, observers: &mut [&mut dyn RunObserver]| {
            scenario.run(options, control, observers).await.map_err(CliError::from)
        })
    })
}

/// Runs on this machine and serves the web UI. Display, outputs and exit codes are those of a run
/// without it.
fn run_with_page<H: ScriptHost>(input: &RunInput, args: &RunArgs, host: &H, address: &str) -> Result<u8, CliError> {
    if args.script.processes.is_some_and(|count| count > 1) {
        return Err(CliError::new("--web shows one process: leave --processes out"));
    }
    let (bundle, description) = bundle::build(input, args, host)?;
    if args.check {
        print::stdout((description + &preset_flags::describe(&args.origins)).as_bytes())?;
        return Ok(PASSED);
    }
    print_notes(args, &description);
    let history = run_history::open(&args.output.history)?;
    let history = history.map(|folder| run_history::for_server(folder, SavedBy::Command));
    let page = WebPage::start(address, WebConfig { history, ..WebConfig::local(env!("SQUALL_VERSION")) })?;
    if !args.output.quiet {
        let missing = if squall_web::has_ui() { "" } else { " has no page: `make ui` adds it to the build" };
        terminal::print_stderr(format!("web UI: {}{missing}\n", page.url));
    }
    let mut pressed = None;
    let code = run_and_report(args, |button, display, outputs| {
        pressed = Some(button.clone());
        let window = outputs.histogram_window_s();
        execute_run(button, display, outputs, async |control: &RunControl, observers: &mut [&mut dyn RunObserver]| {
            page.run(&bundle, host, window, control, observers).await
        })
    })?;
    if let Some(button) = pressed {
        let _signals = signals::listen_for_signals(&button)?;
        page.wait_for_viewers(&button, args.output.quiet);
    }
    Ok(code)
}

/// Runs on a fleet. Display, outputs and exit codes are those of a local run.
fn run_on_fleet<H: ScriptHost>(input: &RunInput, args: &RunArgs, host: &H, redis: &str) -> Result<u8, CliError> {
    if args.search.find_max.is_some() {
        return Err(CliError::new("--find-max runs on one machine only: leave --cluster out"));
    }
    if args.script.processes.is_some_and(|count| count > 1) {
        return Err(CliError::new(
            "--processes splits the load on one machine: on a fleet, start more workers instead",
        ));
    }
    let (bundle, description) = bundle::build(input, args, host)?;
    if args.check {
        print::stdout((description + &preset_flags::describe(&args.origins)).as_bytes())?;
        return Ok(PASSED);
    }
    print_notes(args, &description);
    run_and_report(args, |button, display, outputs| {
        let histogram_window_s = outputs.histogram_window_s();
        execute_run(button, display, outputs, async |control: &RunControl, observers: &mut [&mut dyn RunObserver]| {
            run_bundle((redis, &args.fleet.fleet), &bundle, histogram_window_s, control, observers).await
        })
    })
}

/// Runs a bundle on the fleet of a Redis server and name, and waits for its end.
pub(crate) async fn run_bundle(
    (redis, fleet): (&str, &str),
    bundle: &Bundle,
    histogram_window_s: u32,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, CliError> {
    let mut notify = |reason: &str| observers.iter_mut().for_each(|observer| observer.on_waiting(reason));
    let stores = fleet_store::open(redis, fleet, &mut notify).await?;
    if let Some(reason) = wait_reason(&FleetClient::new(stores.clone())).await {
        notify(reason);
    }
    let run = FleetRunRequest { bundle, params: BTreeMap::new(), histogram_window_s };
    // Boxed, because the future is large.
    let finished = Box::pin(run_fleet(&stores, run, control, observers)).await;
    finished.map_err(|error| match error {
        FleetRunError::Fleet(FleetError::Store(StoreError::Unreachable(_))) => {
            CliError::unreachable(error_chain(&error))
        }
        _ => CliError::new(error_chain(&error)),
    })
}

/// What a run must wait for before it starts, if anything. `run_fleet` decides how long it waits.
async fn wait_reason<C: FleetStores>(fleet: &FleetClient<C>) -> Option<&'static str> {
    // `run_fleet` reports a store that does not respond.
    let status = fleet.status().await.ok()?;
    let has_workers = status.workers.iter().any(WorkerInfo::is_healthy);
    match status.phase {
        RunPhase::Idle if !has_workers => Some(NO_WORKER_MESSAGE),
        RunPhase::Idle => None,
        RunPhase::Stopping => Some("another test is stopping; waiting for its end"),
        RunPhase::Preparing | RunPhase::Running => {
            Some("the fleet runs another test; waiting a few seconds for its end")
        }
    }
}

/// Runs with `execute`, shows the progress, writes the outputs and returns the exit code.
fn run_and_report(
    args: &RunArgs,
    execute: impl FnOnce(&StopButton, ProgressDisplay, &mut RunOutputs) -> Result<RunResult, CliError>,
) -> Result<u8, CliError> {
    let button = StopButton::new(RunControl::new());
    let _signals = signals::listen_for_signals(&button)?;
    let mut outputs = RunOutputs::open(&args.output)?;
    let display = match args.output.quiet || outputs.writes_live_to_stdout() {
        true => ProgressDisplay::Off,
        false if args.output.no_tui => ProgressDisplay::Lines,
        false => ProgressDisplay::Dashboard,
    };
    let finished = execute(&button, display, &mut outputs)?;
    let command = command_line::reported_command_line(&args.raw_args, ShownValues::of(args.output.show_values));
    let report = ReportInput {
        plan: &finished.plan,
        view: &finished.view,
        facts: &finished.facts,
        schedule_rule: schedule_rule(args),
        interruption_rule: match args.plan.is_some() && button.terminated() {
            true => InterruptionRule::Succeeds,
            false => InterruptionRule::Fails,
        },
        command: Some(&command),
        version: env!("SQUALL_VERSION"),
    };
    Ok(report_run(args, &report, outputs, &button))
}

/// Writes the outputs of a finished run, prints its summary and returns the exit code.
pub(crate) fn report_run(args: &RunArgs, report: &ReportInput<'_>, outputs: RunOutputs, button: &StopButton) -> u8 {
    let (quiet, stdout_is_taken) = (args.output.quiet, outputs.uses_stdout());
    write_report(report, outputs, button, quiet, || match quiet {
        true => print_failure(report),
        // A summary that cannot be printed does not change the exit code.
        false => {
            let printed = print_summary(report, stdout_is_taken, button.flush_timeout());
            let _ = printed.map_err(|error| exit::report(&error));
        }
    })
}

/// Writes the outputs of a finished run, prints its summary with `print_summary` and returns the exit
/// code.
pub(crate) fn write_report(
    report: &ReportInput<'_>,
    mut outputs: RunOutputs,
    button: &StopButton,
    quiet: bool,
    print_summary: impl FnOnce(),
) -> u8 {
    let mut written = outputs.write_files(report, button);
    print_summary();
    // After the summary, because a pipe may have no reader.
    outputs.write_to_readers(report, button, &mut written);
    let notices = written.notices.iter().filter(|_| !quiet);
    notices.for_each(|sentence| terminal::print_stderr(format!("{sentence}\n")));
    // A missing output must not look like success.
    let output_code = written.errors.iter().map(exit::report).max().unwrap_or(PASSED);
    // Before the wait, in which the stop button still works.
    terminal::background_writer::flush_stderr();
    outputs.wait_for_final_scrape(button, quiet);
    match exit_code(report) {
        PASSED => output_code,
        code => code,
    }
}

pub(crate) fn schedule_rule(args: &RunArgs) -> ScheduleRule {
    match (args.strict, args.allow_missing) {
        (true, _) => ScheduleRule::Strict,
        (false, true) => ScheduleRule::AllowMissing,
        (false, false) => ScheduleRule::MostStarts,
    }
}

/// Prints why the run did not pass.
pub(crate) fn print_failure(report: &ReportInput<'_>) {
    if let Some(text) = failure_text(report) {
        terminal::print_stderr(format!("squall: {text}\n"));
    }
}

fn print_summary(report: &ReportInput<'_>, stdout_is_taken: bool, timeout: Option<Duration>) -> Result<(), CliError> {
    match stdout_is_taken {
        true => {
            terminal::print_stderr(summary(report, terminal::stderr_style()));
            Ok(())
        }
        false => print::stdout_within(summary(report, terminal::stdout_style()).as_bytes(), timeout),
    }
}

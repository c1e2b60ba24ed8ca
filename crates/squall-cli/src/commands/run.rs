//! `squall run`: reads the scenario, opens the outputs, carries the run out and reports it. Nothing is sent before everything that
//! can be refused has been looked at.

mod execute_run;
mod outputs;
mod processes;

use squall_coord::{FleetStores, StoreError};
use squall_engine::Driver;
use squall_model::{Plan, RunPhase};
use squall_orchestrator::{
    FleetClient, FleetError, FleetRunError, FleetRunRequest, RunControl, RunObserver, RunOptions, RunResult,
    WorkerInfo, run_fleet,
};
use squall_report::{ReportInput, summary, verdict};
use squall_scenario::{DiskFiles, Scenario, ScenarioFiles, Sourced};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use execute_run::{ProgressDisplay, execute_run, run_options};
use outputs::RunOutputs;

use crate::{
    api_client::NO_WORKER_MESSAGE,
    args::RunArgs,
    bundle, command_line,
    exit::{self, CliError, PASSED, error_chain},
    find_max, fleet_store,
    loaded_scenario::{LoadedScenario, ScriptHost, ScriptRequest},
    loadpilot_plan,
    run_input::RunInput,
    scenario_picker, settings, signals,
    stop_button::StopButton,
    terminal::{self, print},
};

pub(crate) fn run<H: ScriptHost>(mut args: RunArgs, host: &H) -> Result<u8, CliError> {
    let (subject, text) = match args.plan.clone() {
        Some(_) if args.fleet.cluster.is_some() || args.script.processes.is_some() => {
            return Err(CliError::new("--plan is run by this process: leave --cluster and --processes out"));
        }
        Some(path) => loadpilot_plan::read(&path, &mut args)?,
        None => (resolve_input(&mut args)?, None),
    };
    if args.output.uses_stdout() {
        host.redirect_stdout_to_stderr();
    }
    if let Some(redis) = args.fleet.cluster.clone() {
        return run_on_fleet(&subject, &args, host, &redis);
    }
    let mut program = load_scenario(&subject, &args, text, host)?;
    if args.search.find_max.is_some() && program.has_multiple_scenarios() {
        return Err(CliError::new("--find-max searches the rate of one scenario: choose it with --scenario"));
    }
    if args.check {
        print::stdout(program.describe().as_bytes())?;
        return Ok(PASSED);
    }
    if let Some((part, seed)) = settings::parse_part(&args)? {
        return processes::run_as_process(&args, &program, part, seed);
    }
    print_mode(&args, &program.describe());
    processes::split_into_processes(&args, &mut program, host)?;
    match &args.search.find_max {
        Some(promise) => find_max::find_max(&args, &program, promise),
        None => run_locally(&args, &program),
    }
}

/// Says how the scenario's own code is run, and why; nobody should have to ask.
fn print_mode(args: &RunArgs, description: &str) {
    for line in description.lines().filter(|line| line.starts_with("mode ") && !args.output.quiet) {
        terminal::print_stderr(format!("{line}\n"));
    }
}

/// What to run; `--json http://…` gave it to the flag, which can do without. A person in front of a terminal is asked.
pub(crate) fn resolve_input(args: &mut RunArgs) -> Result<RunInput, CliError> {
    if args.input.is_none() {
        for (value, otherwise) in args.output.optional_path_flags() {
            let taken = value.as_ref().and_then(|path| path.to_str()).filter(|text| RunInput::is_unambiguous(text));
            if let Some(what) = taken.map(str::to_owned) {
                *value = Some(PathBuf::from(otherwise));
                args.input = Some(what);
                break;
            }
        }
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
        || CliError::new("what shall be run? Give a URL or a .toml or .py scenario; `squall run --help` has examples");
    RunInput::parse(args.input.as_deref().ok_or_else(missing)?)
}

/// `text` stands for what is in the subject's file, if it is not to be read.
pub(crate) fn load_scenario<H: ScriptHost>(
    subject: &RunInput,
    args: &RunArgs,
    text: Option<loadpilot_plan::ConvertedPlan>,
    host: &H,
) -> Result<LoadedScenario<H::Driver>, CliError> {
    let (text, mut rows) = text.map(|written| (written.toml, written.data_files)).unzip();
    let files: &mut dyn ScenarioFiles = match (subject, &mut rows) {
        (_, Some(rows)) => rows,
        (RunInput::Url(_), None) => &mut DiskFiles::relative_to_working_dir(),
        (RunInput::ScenarioFile(path) | RunInput::Script(path), None) => &mut DiskFiles::relative_to_scenario(path),
    };
    let open = |script| host.open(script);
    let text_of = |path: &Path| text.clone().map_or_else(|| read_text(path), Ok);
    let program = load_scenario_from(subject, args, files, text_of, open)?;
    settings::reject_unused_flags(args, &program.loads())?;
    Ok(program)
}

/// Reads the subject of a run, with all it refers to out of `files`.
pub(crate) fn load_scenario_from<D: Driver>(
    subject: &RunInput,
    args: &RunArgs,
    files: &mut dyn ScenarioFiles,
    text_of: impl Fn(&Path) -> Result<String, CliError>,
    open: impl FnOnce(ScriptRequest) -> Result<LoadedScenario<D>, String>,
) -> Result<LoadedScenario<D>, CliError> {
    let mut overrides = settings::overrides(args)?;
    if !matches!(subject, RunInput::Script(_)) {
        let flag = |(name, value): (String, String)| (name, Sourced::from_flag("--param", value));
        overrides.variables = settings::parse_params(args)?.into_iter().map(flag).collect();
    }
    let scenario = match subject {
        RunInput::Url(_) if args.target.is_some() => {
            return Err(CliError::new("--target replaces the base URL of a scenario file; with a URL, write it there"));
        }
        RunInput::Url(url) => Scenario::from_url(settings::url_request(url, &args.request), files, overrides),
        RunInput::Script(path) => {
            overrides.flag_errors.extend(misplaced_flag(path, args));
            // How its code is run can be said without one.
            overrides.placeholder_target = args.check.then_some("http://no-target-yet.invalid");
            let requirements = args.script.requirements.as_deref().map(&text_of).transpose()?;
            return open(settings::script_request(path, args, overrides, requirements)?).map_err(CliError::new);
        }
        RunInput::ScenarioFile(path) => {
            overrides.flag_errors.extend(misplaced_flag(path, args));
            Scenario::parse(&path.display().to_string(), &text_of(path)?, files, overrides)
        }
    };
    if let Some(flag) = settings::script_only_flag(args) {
        return Err(CliError::new(format!("{flag} belongs to Python scenarios")));
    }
    scenario.map(LoadedScenario::declarative).map_err(|errors| CliError::new(errors.to_string()))
}

/// A flag that says how the request to a URL looks like.
fn misplaced_flag(path: &Path, args: &RunArgs) -> Option<Sourced<String>> {
    let flag = settings::url_only_flag(&args.request)?;
    let path = path.display();
    Some(Sourced::from_flag(flag, format!("it belongs to `squall run URL`; {path} has its own requests")))
}

pub(crate) fn read_text(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| CliError::file_error("read", path, &error))
}

fn run_locally<D: Driver + 'static>(args: &RunArgs, program: &LoadedScenario<D>) -> Result<u8, CliError> {
    let options = run_options(&args.engine, program);
    run_and_report(args, program.plan(), |button, shown, outputs| {
        let options = RunOptions { histogram_window_s: outputs.keep_s(), ..options };
        execute_run(button, shown, outputs, async |control: &RunControl, observers: &mut [&mut dyn RunObserver]| {
            program.run(options, control, observers).await.map_err(|error| CliError::new(error_chain(&error)))
        })
    })
}

/// The same on a fleet: what it shows, writes and answers does not differ.
fn run_on_fleet<H: ScriptHost>(subject: &RunInput, args: &RunArgs, host: &H, redis: &str) -> Result<u8, CliError> {
    if args.search.find_max.is_some() {
        return Err(CliError::new("--find-max searches on one machine; leave --cluster out"));
    }
    if args.script.processes.is_some_and(|count| count > 1) {
        return Err(CliError::new("--processes shares a load on one machine; on a fleet, start more workers instead"));
    }
    let (bundle, description) = bundle::build(subject, args, host)?;
    if args.check {
        print::stdout(description.as_bytes())?;
        return Ok(PASSED);
    }
    print_mode(args, &description);
    run_and_report(args, &bundle.plan, |button, shown, outputs| {
        let keep_s = outputs.keep_s();
        execute_run(button, shown, outputs, async |control: &RunControl, observers: &mut [&mut dyn RunObserver]| {
            let mut say = |why: &str| observers.iter_mut().for_each(|observer| observer.on_waiting(why));
            let cell = fleet_store::open(redis, &args.fleet.fleet, &mut say).await?;
            if let Some(why) = wait_reason(&FleetClient::new(cell.clone())).await {
                say(why);
            }
            let run = FleetRunRequest { bundle: &bundle, params: BTreeMap::new(), histogram_window_s: keep_s };
            // Boxed: what a run on a fleet waits for is deep.
            let finished = Box::pin(run_fleet(&cell, run, control, observers)).await;
            finished.map_err(|error| match error {
                FleetRunError::Fleet(FleetError::Store(StoreError::Unreachable(_))) => {
                    CliError::unreachable(error_chain(&error))
                }
                _ => CliError::new(error_chain(&error)),
            })
        })
    })
}

/// What a run that is about to start will have to wait for, if anything; how long it does is `run_fleet`'s business.
async fn wait_reason<C: FleetStores>(fleet: &FleetClient<C>) -> Option<&'static str> {
    // A store that does not answer is told of by whoever needs it.
    let status = fleet.status().await.ok()?;
    let workers = status.workers.iter().any(WorkerInfo::is_healthy);
    match status.state {
        RunPhase::Idle if !workers => Some(NO_WORKER_MESSAGE),
        RunPhase::Idle => None,
        RunPhase::Stopping => Some("another test is just ending; waiting for its end"),
        RunPhase::Preparing | RunPhase::Running => {
            Some("the fleet carries out another test; waiting for its end if that is only seconds away")
        }
    }
}

/// Carries a run of `plan` out with everything that was asked for around it.
fn run_and_report(
    args: &RunArgs,
    plan: &Plan,
    carry_out: impl FnOnce(&StopButton, ProgressDisplay, &mut RunOutputs) -> Result<RunResult, CliError>,
) -> Result<u8, CliError> {
    let button = StopButton::new(RunControl::new());
    let _obeying = signals::listen_for_signals(&button)?;
    let mut outputs = RunOutputs::open(&args.output)?;
    let shown = match args.output.quiet || outputs.writes_live_to_stdout() {
        true => ProgressDisplay::Off,
        false if args.output.no_tui => ProgressDisplay::Lines,
        false => ProgressDisplay::Dashboard,
    };
    let finished = carry_out(&button, shown, &mut outputs)?;
    let command = command_line::masked_command_line(args.raw_args.iter().cloned());
    let run = ReportInput {
        plan,
        view: &finished.view,
        facts: &finished.facts,
        strict: args.strict,
        command: Some(&command),
        version: env!("SQUALL_VERSION"),
    };
    let stdout_is_taken = outputs.uses_stdout();
    let (written, failed) = outputs.finish(&run, &button);
    // A summary that cannot be shown changes nothing about the run.
    if !args.output.quiet
        && let Err(unseen) = print_summary(&run, stdout_is_taken, button.flush_timeout())
    {
        exit::report(&unseen);
    }
    written.iter().filter(|_| !args.output.quiet).for_each(|sentence| terminal::print_stderr(format!("{sentence}\n")));
    // What was asked for and is not there must not look like success.
    let unwritten = failed.iter().map(exit::report).max().unwrap_or(PASSED);
    // While the button can still be pressed.
    terminal::background_writer::flush_stderr();
    outputs.wait_for_final_scrape(&button, args.output.quiet);
    Ok(match verdict(&run).exit_code() {
        PASSED => unwritten,
        code => code,
    })
}

fn print_summary(run: &ReportInput<'_>, stdout_is_taken: bool, patience: Option<Duration>) -> Result<(), CliError> {
    match stdout_is_taken {
        true => {
            terminal::print_stderr(summary(run, terminal::stderr_style()));
            Ok(())
        }
        false => print::stdout_within(summary(run, terminal::stdout_style()).as_bytes(), patience),
    }
}

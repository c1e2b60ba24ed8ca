//! `squall run`: reads the scenario, opens the outputs, carries the run out and reports it. Nothing is sent before everything that
//! can be refused has been looked at.

mod carry_out;
mod outputs;
mod processes;

use squall_coord::{FleetStores, StoreError};
use squall_engine::Driver;
use squall_model::{Plan, RunPhase};
use squall_orchestrator::{
    Control, Finished, Fleet, FleetError, FleetRun, FleetRunError, Observer, RunOptions, WorkerInfo, run_fleet,
};
use squall_report::{Run, summary, verdict};
use squall_scenario::{Disk, Files, Given, Scenario};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use carry_out::{Shown, carry_out, options};
use outputs::Outputs;

use crate::{
    api::NO_WORKER_YET,
    args::RunArgs,
    bundle, command_line,
    exit::{self, PASSED, Refusal, error_chain},
    find_max, fleet_store, picker,
    program::{Host, Program, Script},
    seed_plan, settings, signals,
    stop::StopButton,
    subject::Subject,
    terminal::{self, print},
};

pub(crate) fn run<H: Host>(mut args: RunArgs, host: &H) -> Result<u8, Refusal> {
    let (subject, text) = match args.plan.clone() {
        Some(_) if args.fleet.cluster.is_some() || args.script.processes.is_some() => {
            return Err(Refusal::new("--plan is run by this process: leave --cluster and --processes out"));
        }
        Some(path) => seed_plan::read(&path, &mut args)?,
        None => (subject(&mut args)?, None),
    };
    if args.output.use_stdout() {
        host.leave_stdout();
    }
    if let Some(redis) = args.fleet.cluster.clone() {
        return on_fleet(&subject, &args, host, &redis);
    }
    let mut program = read(&subject, &args, text, host)?;
    if args.search.find_max.is_some() && program.is_several() {
        return Err(Refusal::new("--find-max searches the rate of one scenario: choose it with --scenario"));
    }
    if args.check {
        print::stdout(program.describe().as_bytes())?;
        return Ok(PASSED);
    }
    if let Some((part, seed)) = settings::part(&args)? {
        return processes::serve(&args, &program, part, seed);
    }
    tell_mode(&args, &program.describe());
    processes::share(&args, &mut program, host)?;
    match &args.search.find_max {
        Some(promise) => find_max::find_max(&args, &program, promise),
        None => measure(&args, &program),
    }
}

/// Says how the scenario's own code is run, and why; nobody should have to ask.
fn tell_mode(args: &RunArgs, description: &str) {
    for line in description.lines().filter(|line| line.starts_with("mode ") && !args.output.quiet) {
        terminal::say(format!("{line}\n"));
    }
}

/// What to run; `--json http://…` gave it to the flag, which can do without. A person in front of a terminal is asked.
pub(crate) fn subject(args: &mut RunArgs) -> Result<Subject, Refusal> {
    if args.what.is_none() {
        for (value, otherwise) in args.output.optional_values() {
            let taken = value.as_ref().and_then(|path| path.to_str()).filter(|text| Subject::is_meant_by(text));
            if let Some(what) = taken.map(str::to_owned) {
                *value = Some(PathBuf::from(otherwise));
                args.what = Some(what);
                break;
            }
        }
    }
    if args.what.is_none() && args.script.processes.is_none() && io::stdin().is_terminal() && io::stdout().is_terminal()
    {
        args.what = Some(picker::pick(Path::new("."), &mut io::stdin().lock(), &mut io::stdout())?);
    }
    let missing =
        || Refusal::new("what shall be run? Give a URL or a .toml or .py scenario; `squall run --help` has examples");
    Subject::of(args.what.as_deref().ok_or_else(missing)?)
}

/// `text` stands for what is in the subject's file, if it is not to be read.
pub(crate) fn read<H: Host>(
    subject: &Subject,
    args: &RunArgs,
    text: Option<seed_plan::Written>,
    host: &H,
) -> Result<Program<H::Driver>, Refusal> {
    let (text, mut rows) = text.map(|written| (written.text, written.rows)).unzip();
    let files: &mut dyn Files = match (subject, &mut rows) {
        (_, Some(rows)) => rows,
        (Subject::Url(_), None) => &mut Disk::here(),
        (Subject::File(path) | Subject::Script(path), None) => &mut Disk::beside(path),
    };
    let open = |script| host.open(script);
    let text_of = |path: &Path| text.clone().map_or_else(|| read_text(path), Ok);
    let program = read_from(subject, args, files, text_of, open)?;
    settings::refuse_unused(args, &program.loads())?;
    Ok(program)
}

/// Reads the subject of a run, with all it refers to out of `files`.
pub(crate) fn read_from<D: Driver>(
    subject: &Subject,
    args: &RunArgs,
    files: &mut dyn Files,
    text_of: impl Fn(&Path) -> Result<String, Refusal>,
    open: impl FnOnce(Script) -> Result<Program<D>, String>,
) -> Result<Program<D>, Refusal> {
    let mut overrides = settings::overrides(args)?;
    if !matches!(subject, Subject::Script(_)) {
        let flag = |(name, value): (String, String)| (name, Given::flag("--param", value));
        overrides.variables = settings::params(args)?.into_iter().map(flag).collect();
    }
    let scenario = match subject {
        Subject::Url(_) if args.target.is_some() => {
            return Err(Refusal::new("--target replaces the base URL of a scenario file; with a URL, write it there"));
        }
        Subject::Url(url) => Scenario::from_url(settings::request(url, &args.request), files, overrides),
        Subject::Script(path) => {
            overrides.wrong.extend(misplaced(path, args));
            // How its code is run can be said without one.
            overrides.stand_in = args.check.then_some("http://no-target-yet.invalid");
            let requirements = args.script.requirements.as_deref().map(&text_of).transpose()?;
            return open(settings::script(path, args, overrides, requirements)?).map_err(Refusal::new);
        }
        Subject::File(path) => {
            overrides.wrong.extend(misplaced(path, args));
            Scenario::parse(&path.display().to_string(), &text_of(path)?, files, overrides)
        }
    };
    if let Some(flag) = settings::script_only_flag(args) {
        return Err(Refusal::new(format!("{flag} belongs to Python scenarios")));
    }
    scenario.map(Program::declared).map_err(|errors| Refusal::new(errors.to_string()))
}

/// A flag that says how the request to a URL looks like.
fn misplaced(path: &Path, args: &RunArgs) -> Option<Given<String>> {
    let flag = settings::url_only_flag(&args.request)?;
    let path = path.display();
    Some(Given::flag(flag, format!("it belongs to `squall run URL`; {path} has its own requests")))
}

pub(crate) fn read_text(path: &Path) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|error| Refusal::file("read", path, &error))
}

fn measure<D: Driver + 'static>(args: &RunArgs, program: &Program<D>) -> Result<u8, Refusal> {
    let options = options(&args.engine, program);
    report(args, program.plan(), |button, shown, outputs| {
        let options = RunOptions { keep_s: outputs.keep_s(), ..options };
        carry_out(button, shown, outputs, async |control: &Control, observers: &mut [&mut dyn Observer]| {
            program.run(options, control, observers).await.map_err(|error| Refusal::new(error_chain(&error)))
        })
    })
}

/// The same on a fleet: what it shows, writes and answers does not differ.
fn on_fleet<H: Host>(subject: &Subject, args: &RunArgs, host: &H, redis: &str) -> Result<u8, Refusal> {
    if args.search.find_max.is_some() {
        return Err(Refusal::new("--find-max searches on one machine; leave --cluster out"));
    }
    if args.script.processes.is_some_and(|count| count > 1) {
        return Err(Refusal::new("--processes shares a load on one machine; on a fleet, start more workers instead"));
    }
    let (bundle, description) = bundle::of_run(subject, args, host)?;
    if args.check {
        print::stdout(description.as_bytes())?;
        return Ok(PASSED);
    }
    tell_mode(args, &description);
    report(args, &bundle.plan, |button, shown, outputs| {
        let keep_s = outputs.keep_s();
        carry_out(button, shown, outputs, async |control: &Control, observers: &mut [&mut dyn Observer]| {
            let mut say = |why: &str| observers.iter_mut().for_each(|observer| observer.waiting(why));
            let cell = fleet_store::open(redis, &args.fleet.fleet, &mut say).await?;
            if let Some(why) = awaited(&Fleet::new(cell.clone())).await {
                say(why);
            }
            let run = FleetRun { bundle: &bundle, params: BTreeMap::new(), keep_s };
            // Boxed: what a run on a fleet waits for is deep.
            let finished = Box::pin(run_fleet(&cell, run, control, observers)).await;
            finished.map_err(|error| match error {
                FleetRunError::Fleet(FleetError::Store(StoreError::Unreachable(_))) => {
                    Refusal::unreachable(error_chain(&error))
                }
                _ => Refusal::new(error_chain(&error)),
            })
        })
    })
}

/// What a run that is about to start will have to wait for, if anything; how long it does is `run_fleet`'s business.
async fn awaited<C: FleetStores>(fleet: &Fleet<C>) -> Option<&'static str> {
    // A store that does not answer is told of by whoever needs it.
    let status = fleet.status().await.ok()?;
    let workers = status.workers.iter().any(WorkerInfo::is_healthy);
    match status.state {
        RunPhase::Idle if !workers => Some(NO_WORKER_YET),
        RunPhase::Idle => None,
        RunPhase::Stopping => Some("another test is just ending; waiting for its end"),
        RunPhase::Preparing | RunPhase::Running => {
            Some("the fleet carries out another test; waiting for its end if that is only seconds away")
        }
    }
}

/// Carries a run of `plan` out with everything that was asked for around it.
fn report(
    args: &RunArgs,
    plan: &Plan,
    carry_out: impl FnOnce(&StopButton, Shown, &mut Outputs) -> Result<Finished, Refusal>,
) -> Result<u8, Refusal> {
    let button = StopButton::new(Control::new());
    let _obeying = signals::obey(&button)?;
    let mut outputs = Outputs::open(&args.output)?;
    let shown = match args.output.quiet || outputs.streams_to_stdout() {
        true => Shown::Nothing,
        false if args.output.no_tui => Shown::Lines,
        false => Shown::Dashboard,
    };
    let finished = carry_out(&button, shown, &mut outputs)?;
    let command = command_line::shown(args.words.iter().cloned());
    let run = Run {
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
        && let Err(unseen) = tell(&run, stdout_is_taken, button.patience())
    {
        exit::report(&unseen);
    }
    written.iter().filter(|_| !args.output.quiet).for_each(|sentence| terminal::say(format!("{sentence}\n")));
    // What was asked for and is not there must not look like success.
    let unwritten = failed.iter().map(exit::report).max().unwrap_or(PASSED);
    // While the button can still be pressed.
    terminal::speech::settle();
    outputs.linger(&button, args.output.quiet);
    Ok(match verdict(&run).exit_code() {
        PASSED => unwritten,
        code => code,
    })
}

fn tell(run: &Run<'_>, stdout_is_taken: bool, patience: Option<Duration>) -> Result<(), Refusal> {
    match stdout_is_taken {
        true => {
            terminal::say(summary(run, terminal::stderr_style()));
            Ok(())
        }
        false => print::stdout_within(summary(run, terminal::stdout_style()).as_bytes(), patience),
    }
}

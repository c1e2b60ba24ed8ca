//! `squall run`: reads the scenario, opens the outputs, carries the run out and reports it. Nothing is sent before everything that
//! can be refused has been looked at.

mod carry_out;
mod outputs;
mod processes;

use squall_engine::Driver;
use squall_orchestrator::RunOptions;
use squall_report::{Run, summary, verdict};
use squall_scenario::{Disk, Scenario};
use std::path::{Path, PathBuf};

pub(crate) use carry_out::{Shown, carry_out, options};
use outputs::Outputs;

use crate::{
    args::RunArgs,
    command_line,
    exit::{PASSED, Refusal},
    find_max,
    program::{Host, Program},
    settings,
    stop::StopButton,
    subject::Subject,
    terminal::{self, print},
};

pub(crate) fn run<H: Host>(mut args: RunArgs, host: &H) -> Result<u8, Refusal> {
    let mut program = read(&subject(&mut args)?, &args, host)?;
    if args.check {
        print::stdout(program.describe().as_bytes())?;
        return Ok(PASSED);
    }
    if let Some((part, seed)) = settings::part(&args)? {
        return processes::serve(&args, &program, part, seed, host);
    }
    processes::share(&args, &mut program, host)?;
    match &args.search.find_max {
        Some(promise) => find_max::find_max(&args, &program, promise),
        None => measure(&args, &program),
    }
}

/// What to run; `--json http://…` gave it to the flag, which can do without.
fn subject(args: &mut RunArgs) -> Result<Subject, Refusal> {
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
    let missing =
        || Refusal::new("what shall be run? Give a URL or a .toml or .py scenario; `squall run --help` has examples");
    Subject::of(args.what.as_deref().ok_or_else(missing)?)
}

fn read<H: Host>(subject: &Subject, args: &RunArgs, host: &H) -> Result<Program<H::Driver>, Refusal> {
    let overrides = settings::overrides(args)?;
    let scenario = match subject {
        Subject::Url(_) if args.target.is_some() => {
            return Err(Refusal::new("--target replaces the base URL of a scenario file; with a URL, write it there"));
        }
        Subject::Url(url) => Scenario::from_url(settings::request(url, &args.request), &mut Disk::here(), overrides),
        Subject::Script(path) => {
            refuse_request_flags(path, args)?;
            return host.open(settings::script(path, args, overrides)?).map_err(Refusal::new);
        }
        Subject::File(path) => {
            refuse_request_flags(path, args)?;
            let text = read_text(path)?;
            Scenario::parse(&path.display().to_string(), &text, &mut Disk::beside(path), overrides)
        }
    };
    if let Some(flag) = settings::script_only_flag(args) {
        return Err(Refusal::new(format!("{flag} belongs to Python scenarios")));
    }
    scenario.map(Program::declared).map_err(|errors| Refusal::new(errors.to_string()))
}

fn refuse_request_flags(path: &Path, args: &RunArgs) -> Result<(), Refusal> {
    match settings::url_only_flag(&args.request) {
        None => Ok(()),
        Some(flag) => {
            let path = path.display();
            Err(Refusal::new(format!("{flag} belongs to `squall run URL`; {path} has its own requests")))
        }
    }
}

fn read_text(path: &Path) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|error| Refusal::file("read", path, &error))
}

fn measure<D: Driver>(args: &RunArgs, program: &Program<D>) -> Result<u8, Refusal> {
    let button = StopButton::new(squall_orchestrator::Control::new());
    let mut outputs = Outputs::open(&args.output)?;
    let shown = match args.output.quiet || outputs.streams_to_stdout() {
        true => Shown::Nothing,
        false if args.output.no_tui => Shown::Lines,
        false => Shown::Dashboard,
    };
    let options = RunOptions { keep_s: outputs.keep_s(), ..options(&args.engine, program) };
    let finished = carry_out(program, options, &button, shown, &mut outputs)?;
    let command = command_line::shown(std::env::args().skip(1));
    let run = Run {
        plan: program.plan(),
        view: &finished.view,
        facts: &finished.facts,
        strict: args.strict,
        command: Some(&command),
        version: env!("SQUALL_VERSION"),
    };
    if !args.output.quiet {
        tell(&run, outputs.uses_stdout())?;
    }
    for sentence in outputs.finish(&run)? {
        if !args.output.quiet {
            eprintln!("{sentence}");
        }
    }
    Ok(verdict(&run).exit_code())
}

fn tell(run: &Run<'_>, stdout_is_taken: bool) -> Result<(), Refusal> {
    match stdout_is_taken {
        true => {
            eprint!("{}", summary(run, terminal::stderr_style()));
            Ok(())
        }
        false => print::stdout(summary(run, terminal::stdout_style()).as_bytes()),
    }
}

//! One command of `squall cql` against a database: after its preparation one run for each number of threads, each
//! with its table and summary. The engine makes the load; squall-cql knows the operations.

mod preparation;

use preparation::Prepared;
use squall_cql::{
    CqlDriver, Database, DatabaseTarget, DriverWork, LogLevel, RunCounts, RunEnd, RunEndReason, StopRule,
    StressSettings, ThreadPlan, ThreadSearch, Truncate, Workload, improvement_line, next_thread_count, running_line,
    step_line,
};
use squall_orchestrator::{RunControl, RunResult, run_local};
use std::convert::Infallible;
use tokio::runtime::Runtime;

use super::{
    fleet_scan::FleetScan,
    fleet_target::{FleetTarget, count_missed_operations},
    input_files::{read_credentials, read_nodes, read_profiles, refuse_shared_files},
    interval_table::{IntervalTable, TableSettings},
    output_log::{HdrLog, LogPlace, OutputLog},
    probes::{CqlProbes, search_settings},
    run_plan::{RunIdentity, RunPlace, RunShape, engine_threads, plan, run_options},
    run_report::{RunReport, TableAndOutputs, name_words},
    summary_text::{ShownRun, error_lines, steps_table},
};
use crate::{
    args::CqlArgs,
    bundle::{CqlSource, workload},
    commands::run::{ProgressDisplay, observe_run},
    exit::{self, BREACHED, CliError, PASSED},
    find_max::{SearchSettings, find_max},
    signals,
    stop_button::StopButton,
    terminal,
};

/// Runs the command and returns the exit code.
pub(super) fn run(mut settings: StressSettings, args: CqlArgs) -> Result<u8, CliError> {
    read_credentials(&mut settings.mode)?;
    let nodes = read_nodes(&settings.nodes.nodes)?;
    let profiles = read_profiles(&settings.command.operation)?;
    let workload = workload(&settings.command.operation, &profiles).map_err(CliError::new)?;
    let target = DatabaseTarget::new(&settings, &nodes);
    let source = CqlSource::new(&args.words, &settings, &nodes, profiles);
    let fleet = FleetTarget::new(&args.fleet, &settings, &workload, source)?;
    let search = search_settings(&args, &settings);
    refuse_shared_files(&settings, &args.output)?;
    let report = RunReport::open(args, &settings, &workload)?;
    let fleet = fleet.map(|fleet| fleet.judged_by(report.schedule_rule()));
    let place = LogPlace { quiet: report.quiet(), stdout_is_taken: report.uses_stdout() };
    let log = OutputLog::open(settings.log.file.as_deref(), place)?;
    let hdr = settings.log.hdr_file.as_deref().map(HdrLog::create).transpose()?;
    let button = StopButton::new(RunControl::new());
    let _signals = signals::listen_for_signals(&button)?;
    let run = StressRun { settings, target, fleet, workload, log, hdr, report, scan: None, button };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    match search {
        Some(search) => run.search(&runtime, &search),
        None => runtime.block_on(run.execute()),
    }
}

struct StressRun {
    settings: StressSettings,
    target: DatabaseTarget,
    /// `None`: this process makes the load.
    fleet: Option<FleetTarget>,
    workload: Workload,
    log: OutputLog,
    hdr: Option<HdrLog>,
    report: RunReport,
    /// The token ranges that a fleet reads; known when the database is connected.
    scan: Option<FleetScan>,
    /// Of all runs of the command.
    button: StopButton,
}

/// What a run left behind.
struct EndedRun {
    result: RunResult,
    counts: RunCounts,
    /// The message of the operation that ended the run.
    failure: Option<String>,
    /// The token ranges that a fleet could not read.
    unread_ranges: u64,
    /// The standard error of its rate.
    standard_error: f64,
}

/// What stands after a run in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRun {
    /// The end of the command.
    End,
    /// Another run, or the table of all runs.
    NextStep,
}

impl StressRun {
    async fn execute(mut self) -> Result<u8, CliError> {
        let code = self.run_command().await;
        self.log.finish()?;
        code
    }

    /// Searches the highest rate that holds a threshold.
    fn search(mut self, runtime: &Runtime, search: &SearchSettings) -> Result<u8, CliError> {
        let identity = RunIdentity { thresholds: self.report.typed_thresholds(), ..self.identity() };
        let probes = CqlProbes::new(self.settings.clone(), self.target.clone(), self.workload.clone(), identity)?;
        let prepared: Result<Prepared, CliError> = runtime.block_on(async {
            let prepared = self.prepare().await?;
            if let (Prepared::Ready(database), true) = (&prepared, self.settings.command.truncate != Truncate::Never) {
                self.truncate(database).await?;
            }
            Ok(prepared)
        });
        self.log.finish()?;
        match prepared? {
            Prepared::Ready(_) => find_max(&probes, search),
            Prepared::Ended(code) => Ok(code),
        }
    }

    async fn run_command(&mut self) -> Result<u8, CliError> {
        let database = match self.prepare().await? {
            Prepared::Ready(database) => database,
            Prepared::Ended(code) => return Ok(code),
        };
        match self.settings.rate.threads {
            ThreadPlan::Fixed(threads) => self.run_fixed(&database, threads).await,
            ThreadPlan::Steps { min, max, until_saturated } => {
                self.run_steps(&database, min..=max, until_saturated).await
            }
        }
    }

    async fn run_fixed(&mut self, database: &Database, threads: u32) -> Result<u8, CliError> {
        if self.settings.command.truncate != Truncate::Never {
            self.truncate(database).await?;
        }
        let ended = self.run_measured(threads).await?;
        Ok(self.finish(&ended, AfterRun::End))
    }

    /// Runs with more and more threads, and prints a table of all runs at the end.
    async fn run_steps(
        &mut self,
        database: &Database,
        range: std::ops::RangeInclusive<u32>,
        until_saturated: bool,
    ) -> Result<u8, CliError> {
        if self.settings.command.truncate == Truncate::Once {
            self.truncate(database).await?;
        }
        let (mut search, mut threads, mut before) = (ThreadSearch::default(), *range.start(), None);
        let mut steps = Vec::new();
        loop {
            if self.settings.command.truncate == Truncate::Always {
                self.truncate(database).await?;
            }
            self.log.line(&step_line(threads))?;
            let ended = self.run_measured(threads).await?;
            let code = self.finish(&ended, AfterRun::NextStep);
            if ended.failure.is_some() {
                return Ok(code);
            }
            steps.push((threads, self.shown(&ended).table_lines()));
            let change = search.record(self.shown(&ended).operation_rate());
            if let (Some(change), Some(before)) = (change, before) {
                self.log.line(&improvement_line(before, change))?;
            }
            before = Some(threads);
            threads = next_thread_count(threads);
            let saturated = until_saturated && !search.may_improve(&self.settings.command.stop);
            if code != PASSED || saturated || threads > *range.end() {
                self.log.text(&steps_table(&steps))?;
                self.log.line(END)?;
                return Ok(code);
            }
        }
    }

    async fn run_measured(&mut self, threads: u32) -> Result<EndedRun, CliError> {
        let (pacing, stop) = (self.settings.rate.pacing, self.settings.command.stop);
        self.log.line(&running_line(&self.settings.command.operation, threads, &stop))?;
        let place = if self.fleet.is_some() { RunPlace::Fleet } else { RunPlace::ThisProcess };
        self.run_once(RunShape { threads, pacing, stop, place }, self.workload.clone(), Shown::Table).await
    }

    async fn run_once(&mut self, shape: RunShape, workload: Workload, shown: Shown) -> Result<EndedRun, CliError> {
        let settings = &self.settings;
        let partitions = match shape.stop {
            StopRule::Partitions(count) => Some(count),
            StopRule::Time(_) | StopRule::StandardError { .. } => None,
        };
        let counts = RunCounts::new(&workload);
        let plan = plan(settings, &workload, shape, self.judged_identity(shape.place, shown))?;
        let work = DriverWork { workload, partitions, engine_threads: engine_threads(settings, shape.threads) };
        let driver = CqlDriver::new(settings, &self.target, work);
        let fleet = self.fleet.as_ref().filter(|_| shape.place == RunPlace::Fleet);
        let (control, end) = (self.button.control().clone(), driver.run_end());
        // The engine measures whole seconds.
        let interval_s = settings.log.interval.as_millis().div_ceil(1000) as u32;
        let window_s = IntervalTable::histogram_window_s(interval_s).max(self.report.histogram_window_s());
        let options = run_options(settings, shape, window_s);
        let table = TableSettings {
            pacing: shape.pacing,
            stop: shape.stop,
            interval_s,
            header_every: settings.log.header_every,
            visible: shown == Shown::Table && settings.log.level != LogLevel::Minimal,
        };
        let display = if shown == Shown::Table { self.report.display() } else { ProgressDisplay::Off };
        if display == ProgressDisplay::Dashboard {
            self.log.hold();
        }
        let hdr = self.hdr.as_mut().filter(|_| shown == Shown::Table);
        let scan = self.scan.clone().filter(|_| shape.place == RunPlace::Fleet);
        let mut table = IntervalTable::new(table, &mut self.log, hdr, control.clone(), (counts.clone(), scan));
        let outputs = self.report.outputs().filter(|_| shown == Shown::Table);
        let mut observer = TableAndOutputs { table: &mut table, outputs };
        let run = observe_run(&self.button, display, &mut observer, async |control, observers| {
            if let Some(fleet) = fleet {
                return fleet.run(&plan, options.limits, window_s, control, observers).await;
            }
            run_local(&plan, driver, options, control, observers).await.map_err(CliError::from)
        });
        let result = tokio::select! {
            result = run => result,
            never = forward_requests(&end, &control) => match never {},
        };
        let unread_ranges = table.unread_ranges();
        let standard_error = table.finish();
        self.log.release()?;
        let (mut result, standard_error) = (result?, standard_error?);
        count_missed_operations(&mut result, &counts);
        name_words(&mut result);
        let failure = match end.reason() {
            Some(RunEndReason::Failed(message)) => Some(message),
            Some(RunEndReason::AllUsed) | None => self.failure_on_fleet(shape.place, &result),
        };
        Ok(EndedRun { result, counts, failure, unread_ranges, standard_error })
    }

    /// Why a run on a fleet has failed: its workers do not say which operation ended it.
    fn failure_on_fleet(&self, place: RunPlace, result: &RunResult) -> Option<String> {
        let errors = result.view.all.errors;
        let failed = place == RunPlace::Fleet && errors > 0 && !self.settings.errors.ignore && !self.interrupted();
        failed.then(|| format!("{errors} operations failed on the workers"))
    }

    /// What reports say about a run.
    fn identity(&self) -> RunIdentity {
        let (name, target) = (self.report.run_name(&self.settings), self.target.addresses());
        RunIdentity { name, target, thresholds: Vec::new() }
    }

    /// A warm-up is not judged.
    fn judged_identity(&self, place: RunPlace, shown: Shown) -> RunIdentity {
        let thresholds = match shown {
            Shown::Nothing => Vec::new(),
            Shown::Table => self.report.thresholds(&self.settings, place),
        };
        RunIdentity { thresholds, ..self.identity() }
    }

    fn interrupted(&self) -> bool {
        self.button.presses() > 0
    }

    /// Writes the outputs, prints the summary of a run or why it failed, and returns the exit code.
    fn finish(&mut self, ended: &EndedRun, after: AfterRun) -> u8 {
        let summary = self.settings.log.print_summary.then(|| self.shown(ended).summary());
        let log = &mut self.log;
        let print_end = || {
            terminal::print_stderr(error_lines(&ended.result.view));
            if ended.unread_ranges > 0 {
                let ranges = ended.unread_ranges;
                terminal::print_stderr(format!("{ranges} token ranges were not read: their workers were lost\n"));
            }
            let text = match (&ended.failure, after) {
                (Some(failure), _) => {
                    terminal::print_stderr(format!("{failure}\n"));
                    "FAILURE\n".to_owned()
                }
                (None, AfterRun::End) => format!("{}{END}\n", summary.unwrap_or_default()),
                (None, AfterRun::NextStep) => summary.unwrap_or_default(),
            };
            // A summary that cannot be printed does not change the exit code.
            let _ = log.text(&text).map_err(|error| exit::report(&error));
        };
        let code = self.report.finish(&ended.result, &self.button, print_end);
        if ended.failure.is_some() { BREACHED } else { code }
    }

    fn shown<'r>(&self, ended: &'r EndedRun) -> ShownRun<'r> {
        let EndedRun { result, counts, standard_error, .. } = ended;
        let (pacing, facts) = (self.settings.rate.pacing, &result.facts);
        let (active, elapsed) = (facts.active, facts.elapsed);
        ShownRun { view: &result.view, counts, pacing, active, elapsed, standard_error: *standard_error }
    }
}

/// The last line of a command that has not failed.
const END: &str = "END";

/// Completes the run when its driver asks for the end, and ends the tries of operations when a person does.
async fn forward_requests(end: &RunEnd, control: &RunControl) -> Infallible {
    let completed = async {
        end.requested().await;
        control.complete();
    };
    let interrupted = async {
        control.stop_requested().await;
        end.end_tries();
    };
    tokio::join!(completed, interrupted);
    std::future::pending().await
}

/// What a run prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Table,
}

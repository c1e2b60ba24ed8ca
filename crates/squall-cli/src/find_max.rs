//! `--find-max`: searches the highest rate that holds a threshold with repeated short runs
//! (probes). Runs the probes; `rate_search` decides which rate comes next, `probe` judges a probe,
//! `probe_table` prints, `result_writer` writes the result file. `commands::run` calls it.

mod probe;
mod probe_table;
mod rate_search;
mod result_writer;

use squall_engine::Driver;
use squall_model::{LoadModel, Plan, Threshold};
use squall_orchestrator::{RunControl, RunResult};
use squall_report::{ReportInput, RunVerdict, ScheduleRule, verdict};
use std::time::Duration;

use crate::{
    args::RunArgs,
    commands::run::{ProgressDisplay, execute_run, run_options},
    exit::{self, CliError, error_chain},
    loaded_scenario::LoadedScenario,
    signals,
    stop_button::StopButton,
    terminal::{InlineKeyListener, print_stderr},
};
use probe::{failure_reason, probe_outcome, probe_plan, warm_up};
use probe_table::{ProbeProgressLine, ProbeTable};
use rate_search::{FindMaxOutcome, ProbeOutcome, RateSearch};
use result_writer::{FinishedSearch, SearchResultWriter};

/// The first rate if `--rate` is not given.
const DEFAULT_FIRST_RATE: f64 = 50.0;
/// How often a failed probe is repeated. A short disturbance of the target or of this machine is
/// not a limit; only a failure that happens again is.
const MAX_REPEATS: u32 = 1;

/// Searches, prints the outcome and returns the exit code.
pub(crate) fn find_max<D: Driver>(
    args: &RunArgs,
    scenario: &LoadedScenario<D>,
    threshold: &Threshold,
) -> Result<u8, CliError> {
    let button = StopButton::new(RunControl::new());
    let _signals = signals::listen_for_signals(&button)?;
    let results = SearchResultWriter::open(args)?;
    let table = ProbeTable::new(args, threshold, results.uses_stdout())?;
    let keys = InlineKeyListener::listen(&button);
    let search = RateSearch::new(first_rate(args, scenario.plan()), args.search.precision());
    let mut finder = MaxRateFinder {
        args,
        scenario,
        threshold,
        length: args.search.probe_duration(),
        button: &button,
        keys_work: keys.is_listening(),
        search,
        table,
        results,
        failures: 0,
        failure_reason: String::new(),
    };
    let exit_code = finder.search()?;
    finder.write_result(exit_code)?;
    Ok(exit_code)
}

fn first_rate(args: &RunArgs, plan: &Plan) -> f64 {
    match &plan.load.model {
        LoadModel::Open { rate, .. } if args.load.rate.is_some() => rate.peak(),
        _ => DEFAULT_FIRST_RATE,
    }
}

/// A search in progress.
struct MaxRateFinder<'a, D> {
    args: &'a RunArgs,
    scenario: &'a LoadedScenario<D>,
    threshold: &'a Threshold,
    /// Of a probe, without its warm-up.
    length: Duration,
    button: &'a StopButton,
    /// Whether the stop key works, which the progress line says.
    keys_work: bool,
    search: RateSearch,
    table: ProbeTable,
    results: SearchResultWriter,
    /// Failures in a row at the current rate.
    failures: u32,
    /// Why the last failed probe failed.
    failure_reason: String,
}

/// Whether the search goes to the next rate after a probe.
enum AfterProbe {
    Continue,
    /// A lower rate would fail too.
    NothingWorks,
    /// The search ends without an outcome, with this exit code.
    Exit(u8),
}

impl<D: Driver> MaxRateFinder<'_, D> {
    /// Probes until the outcome is known, prints it and returns the exit code.
    fn search(&mut self) -> Result<u8, CliError> {
        while let Some(rate) = self.search.next_rate() {
            match self.probe(rate)? {
                AfterProbe::Continue => {}
                AfterProbe::NothingWorks => break,
                AfterProbe::Exit(code) => return Ok(code),
            }
        }
        self.table.print_outcome(&self.search, self.args, "", &self.failure_reason)?;
        Ok(outcome_exit_code(self.search.outcome(), self.args.strict))
    }

    fn probe(&mut self, rate: f64) -> Result<AfterProbe, CliError> {
        let plan = probe_plan(self.scenario.plan(), self.threshold, rate, self.length)?;
        let probe = self.scenario.with_plan(plan);
        let finished = self.run_probe(&probe, rate)?;
        let report = ReportInput {
            plan: probe.plan(),
            view: &finished.view,
            facts: &finished.facts,
            schedule_rule: ScheduleRule::default(),
            command: None,
            version: env!("SQUALL_VERSION"),
        };
        match verdict(&report) {
            RunVerdict::Interrupted => {
                self.table.print_outcome(&self.search, self.args, "interrupted; so far: ", &self.failure_reason)?;
                Ok(AfterProbe::Exit(exit::INTERRUPTED))
            }
            RunVerdict::TargetUnreachable => {
                let reason = finished.view.errors.first().map_or(String::new(), |note| format!(": {}", note.message));
                exit::report(&CliError::unreachable(format!("the target could not be reached{reason}")));
                Ok(AfterProbe::Exit(exit::UNREACHABLE))
            }
            RunVerdict::Passed
            | RunVerdict::ThresholdBreached
            | RunVerdict::NothingMeasured
            | RunVerdict::ScheduleMissed => self.record(rate, &finished, &report),
        }
    }

    fn run_probe(&self, probe: &LoadedScenario<D>, rate: f64) -> Result<RunResult, CliError> {
        let mut progress = ProbeProgressLine::new(rate, self.args.output.quiet, self.keys_work);
        let options = run_options(&self.args.engine, probe);
        let finished = execute_run(self.button, ProgressDisplay::Off, &mut progress, async |control, observers| {
            probe.run(options, control, observers).await.map_err(|error| CliError::new(error_chain(&error)))
        })?;
        progress.clear();
        Ok(finished)
    }

    /// Records a probe that ended by itself. A failure counts when it has happened again.
    fn record(&mut self, rate: f64, finished: &RunResult, report: &ReportInput<'_>) -> Result<AfterProbe, CliError> {
        let outcome = probe_outcome(finished);
        let reason = failure_reason(outcome, finished);
        self.table.print_row(rate, outcome, &reason, finished)?;
        self.results.record_probe(rate, outcome, &reason, report);
        if outcome == ProbeOutcome::Failed {
            self.failure_reason = reason;
        }
        self.failures = if outcome == ProbeOutcome::Passed { 0 } else { self.failures + 1 };
        if (1..=MAX_REPEATS).contains(&self.failures) {
            return Ok(AfterProbe::Continue);
        }
        self.failures = 0;
        self.search.record(rate, outcome);
        match outcome == ProbeOutcome::Failed && finished.view.all.error_rate() >= 1.0 {
            true => Ok(AfterProbe::NothingWorks),
            false => Ok(AfterProbe::Continue),
        }
    }

    fn write_result(self, exit_code: u8) -> Result<(), CliError> {
        let notice = self.results.write(&FinishedSearch {
            plan: self.scenario.plan(),
            args: self.args,
            search: &self.search,
            warm_up: warm_up(self.length),
            interrupted: exit_code == exit::INTERRUPTED,
            exit_code,
        })?;
        if let Some(notice) = notice.filter(|_| !self.args.output.quiet) {
            print_stderr(format!("{notice}\n"));
        }
        Ok(())
    }
}

fn outcome_exit_code(outcome: Option<FindMaxOutcome>, strict: bool) -> u8 {
    match outcome {
        Some(FindMaxOutcome::Found { .. } | FindMaxOutcome::NoLimit { .. }) => exit::PASSED,
        Some(FindMaxOutcome::GeneratorLimit { .. }) if strict => exit::SCHEDULE_MISSED,
        Some(FindMaxOutcome::GeneratorLimit { .. }) => exit::PASSED,
        Some(FindMaxOutcome::NothingMade { .. }) => exit::SCHEDULE_MISSED,
        Some(FindMaxOutcome::NothingHolds { .. }) | None => exit::BREACHED,
    }
}

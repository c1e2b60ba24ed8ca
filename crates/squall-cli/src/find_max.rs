//! `--find-max`: searches the highest rate that holds a threshold with repeated short runs
//! (probes). Runs the probes; `rate_search` decides which rate comes next, `probe` judges a probe,
//! `probe_table` prints, `result_writer` writes the result file. `commands::run` and `commands::cql`
//! call it, each with a target of its own.

mod probe;
mod probe_table;
mod rate_search;
mod result_writer;

use squall_engine::Driver;
use squall_model::{LoadModel, Plan, Threshold};
use squall_orchestrator::{RunControl, RunObserver, RunResult};
use squall_report::{InterruptionRule, ReportInput, RunVerdict, ScheduleRule, verdict};
use std::{path::PathBuf, time::Duration};

use crate::{
    args::{EngineArgs, OutputArgs, RunArgs, SearchArgs},
    commands::run::{ProgressDisplay, execute_run, run_options},
    exit::{self, CliError},
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

/// What a search probes.
pub(crate) trait ProbeTarget {
    /// The plan whose load each probe replaces.
    fn plan(&self) -> &Plan;

    /// Runs one probe under `plan`.
    async fn run_probe(
        &self,
        plan: Plan,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, CliError>;
}

/// How to search.
#[derive(Debug, Clone)]
pub(crate) struct SearchSettings {
    pub(crate) threshold: Threshold,
    precision: f64,
    /// Length of a probe, without its warm-up.
    probe: Duration,
    /// `None`: [`DEFAULT_FIRST_RATE`].
    first_rate: Option<f64>,
    /// Exit with 4 if the generator was the limit.
    strict: bool,
    quiet: bool,
    json: Option<PathBuf>,
}

impl SearchSettings {
    /// `None` without `--find-max`.
    pub(crate) fn new(
        search: &SearchArgs,
        output: &OutputArgs,
        strict: bool,
        first_rate: Option<f64>,
    ) -> Option<SearchSettings> {
        Some(SearchSettings {
            threshold: search.find_max.clone()?,
            precision: search.precision(),
            probe: search.probe_duration(),
            first_rate,
            strict,
            quiet: output.quiet,
            json: output.json.clone(),
        })
    }

    /// The settings of `squall run`.
    pub(crate) fn of_run(args: &RunArgs, plan: &Plan) -> Option<SearchSettings> {
        let first_rate = match &plan.load.model {
            LoadModel::Open { rate, .. } if args.load.rate.is_some() => Some(rate.peak()),
            _ => None,
        };
        SearchSettings::new(&args.search, &args.output, args.strict, first_rate)
    }
}

/// A scenario with the engine flags of `squall run`.
pub(crate) struct ScenarioProbes<'a, D> {
    pub(crate) scenario: &'a LoadedScenario<D>,
    pub(crate) engine: &'a EngineArgs,
}

impl<D: Driver> ProbeTarget for ScenarioProbes<'_, D> {
    fn plan(&self) -> &Plan {
        self.scenario.plan()
    }

    async fn run_probe(
        &self,
        plan: Plan,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, CliError> {
        let probe = self.scenario.with_plan(plan);
        let options = run_options(self.engine, &probe);
        probe.run(options, control, observers).await.map_err(CliError::from)
    }
}

/// Searches, prints the outcome and returns the exit code.
pub(crate) fn find_max(target: &impl ProbeTarget, settings: &SearchSettings) -> Result<u8, CliError> {
    let button = StopButton::new(RunControl::new());
    let _signals = signals::listen_for_signals(&button)?;
    let results = SearchResultWriter::open(settings)?;
    let table = ProbeTable::new(settings, results.uses_stdout())?;
    let keys = InlineKeyListener::listen(&button);
    let search = RateSearch::new(settings.first_rate.unwrap_or(DEFAULT_FIRST_RATE), settings.precision);
    let mut finder = MaxRateFinder {
        target,
        settings,
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

/// A search in progress.
struct MaxRateFinder<'a, T> {
    target: &'a T,
    settings: &'a SearchSettings,
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

impl<T: ProbeTarget> MaxRateFinder<'_, T> {
    /// Probes until the outcome is known, prints it and returns the exit code.
    fn search(&mut self) -> Result<u8, CliError> {
        while let Some(rate) = self.search.next_rate() {
            match self.probe(rate)? {
                AfterProbe::Continue => {}
                AfterProbe::NothingWorks => break,
                AfterProbe::Exit(code) => return Ok(code),
            }
        }
        self.table.print_outcome(&self.search, self.settings, "", &self.failure_reason)?;
        Ok(outcome_exit_code(self.search.outcome(), self.settings.strict))
    }

    fn probe(&mut self, rate: f64) -> Result<AfterProbe, CliError> {
        let plan = probe_plan(self.target.plan(), &self.settings.threshold, rate, self.settings.probe)?;
        let finished = self.run_probe(plan.clone(), rate)?;
        let report = ReportInput {
            plan: &plan,
            view: &finished.view,
            facts: &finished.facts,
            schedule_rule: ScheduleRule::default(),
            interruption_rule: InterruptionRule::default(),
            command: None,
            version: env!("SQUALL_VERSION"),
        };
        match verdict(&report) {
            RunVerdict::Interrupted => {
                self.table.print_outcome(&self.search, self.settings, "interrupted; so far: ", &self.failure_reason)?;
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

    fn run_probe(&self, plan: Plan, rate: f64) -> Result<RunResult, CliError> {
        let mut progress = ProbeProgressLine::new(rate, self.settings.quiet, self.keys_work);
        let finished = execute_run(self.button, ProgressDisplay::Off, &mut progress, async |control, observers| {
            self.target.run_probe(plan, control, observers).await
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
            plan: self.target.plan(),
            settings: self.settings,
            search: &self.search,
            warm_up: warm_up(self.settings.probe),
            interrupted: exit_code == exit::INTERRUPTED,
            exit_code,
        })?;
        if let Some(notice) = notice.filter(|_| !self.settings.quiet) {
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

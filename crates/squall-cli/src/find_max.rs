//! `--find-max`: the highest rate that holds a promise, by repeated short runs. The search itself is a value that is told how a
//! probe went and says what to probe next; here probes are run and put into words.

mod rate_search;
mod result_writer;

use squall_engine::Driver;
use squall_metrics::RunView;
use squall_model::{Arrivals, LoadModel, Plan, Profile, Statistic, StatisticUnit, Threshold, ThresholdResult};
use squall_orchestrator::{LiveStatus, RunControl, RunObserver, RunResult};
use squall_report::{ReportInput, RunVerdict, verdict};
use std::{io::IsTerminal, time::Duration};

use crate::{
    args::RunArgs,
    commands::run::{ProgressDisplay, execute_run, run_options},
    exit::{self, CliError, error_chain},
    loaded_scenario::LoadedScenario,
    signals,
    stop_button::StopButton,
    terminal::{
        InlineKeyListener,
        format::{self, percent},
        print, print_stderr,
    },
};
use rate_search::{FindMaxOutcome, ProbeOutcome, RateSearch};
use result_writer::{FinishedSearch, SearchResultWriter};

/// Where the search begins when no rate is given.
const DEFAULT_FIRST_RATE: f64 = 50.0;
/// Each probe is preceded by this much load that is not judged: connections are made, caches filled.
const WARM_UP: Duration = Duration::from_secs(1);
/// A probe at a low rate is as long as so many starts take: of fewer nothing could be said.
const MIN_PROBE_STARTS: f64 = 10.0;
/// How often a probe that did not hold is tried again.
const MAX_REPEATS: u32 = 1;
/// A target that answers fast because it fails does not hold a promise about time.
const DEFAULT_ERROR_THRESHOLD: &str = "error_rate<1%";

/// Searches, prints what was found and gives the exit code.
pub(crate) fn find_max<D: Driver>(
    args: &RunArgs,
    program: &LoadedScenario<D>,
    promise: &Threshold,
) -> Result<u8, CliError> {
    let mut search = RateSearch::new(first_rate(args, program.plan()), args.search.precision());
    let button = StopButton::new(RunControl::new());
    let _obeying = signals::listen_for_signals(&button)?;
    let (length, mut repeated) = (args.search.probe_duration(), 0);
    let mut record = SearchResultWriter::open(args)?;
    let mut broke = String::new();
    let table = ProbeTable::new(args, promise, record.uses_stdout())?;
    let keys = InlineKeyListener::listen(&button);
    let end = |search: &RateSearch, record: SearchResultWriter, exit_code: u8| {
        let (plan, warm_up) = (program.plan(), warm_up(length));
        let interrupted = exit_code == exit::INTERRUPTED;
        let said = record.write(&FinishedSearch { plan, args, search, warm_up, interrupted, exit_code })?;
        if let Some(said) = said.filter(|_| !args.output.quiet) {
            print_stderr(format!("{said}\n"));
        }
        Ok(exit_code)
    };
    while let Some(rate) = search.next_rate() {
        let probe = program.with_plan(probe_plan(program.plan(), promise, rate, length)?);
        let mut progress = ProbeProgressLine::new(rate, args.output.quiet, keys.is_listening());
        let options = run_options(&args.engine, &probe);
        let finished = execute_run(&button, ProgressDisplay::Off, &mut progress, async |control, observers| {
            probe.run(options, control, observers).await.map_err(|error| CliError::new(error_chain(&error)))
        })?;
        progress.clear();
        let run = ReportInput {
            plan: probe.plan(),
            view: &finished.view,
            facts: &finished.facts,
            strict: false,
            command: None,
            version: env!("SQUALL_VERSION"),
        };
        match verdict(&run) {
            RunVerdict::Interrupted => {
                table.print_outcome(&search, args, "interrupted; so far: ", &broke)?;
                return end(&search, record, exit::INTERRUPTED);
            }
            RunVerdict::TargetUnreachable => {
                let reason = finished.view.errors.first().map_or(String::new(), |note| format!(": {}", note.message));
                exit::report(&CliError::unreachable(format!("the target could not be reached{reason}")));
                return end(&search, record, exit::UNREACHABLE);
            }
            RunVerdict::Passed
            | RunVerdict::ThresholdBreached
            | RunVerdict::NothingMeasured
            | RunVerdict::ScheduleMissed => {}
        }
        let held = judge(&finished);
        let because = failure_reason(held, &finished);
        table.print_row(rate, held, &because, &finished)?;
        record.record_probe(rate, held, &because, &run);
        // A hiccup, of the target's or of this machine's, is no limit: only what happens again is.
        repeated = if held == ProbeOutcome::Passed { 0 } else { repeated + 1 };
        if repeated == 0 || repeated > MAX_REPEATS {
            search.record(rate, held);
            repeated = 0;
            // Nothing works at all, and a lower rate will not change that.
            if held == ProbeOutcome::Failed && finished.view.all.error_rate() >= 1.0 {
                broke = because;
                break;
            }
        }
        if held == ProbeOutcome::Failed {
            broke = because;
        }
    }
    table.print_outcome(&search, args, "", &broke)?;
    let code = match search.outcome() {
        Some(FindMaxOutcome::Found { .. } | FindMaxOutcome::NoLimit { .. }) => exit::PASSED,
        Some(FindMaxOutcome::GeneratorLimit { .. }) if args.strict => exit::GENERATOR_TOO_SLOW,
        Some(FindMaxOutcome::GeneratorLimit { .. }) => exit::PASSED,
        Some(FindMaxOutcome::NothingMade { .. }) => exit::GENERATOR_TOO_SLOW,
        Some(FindMaxOutcome::NothingHolds { .. }) | None => exit::BREACHED,
    };
    end(&search, record, code)
}

fn probe_length(rate: f64, length: Duration) -> Duration {
    length.max(Duration::from_secs_f64(MIN_PROBE_STARTS / rate))
}

/// How much of a probe is not judged.
fn warm_up(length: Duration) -> Duration {
    WARM_UP.min(length / 2)
}

fn first_rate(args: &RunArgs, plan: &Plan) -> f64 {
    match &plan.load.model {
        LoadModel::Open { rate, .. } if args.load.rate.is_some() => rate.peak(),
        _ => DEFAULT_FIRST_RATE,
    }
}

/// The same plan at a steady rate, with the promise to be found out about.
fn probe_plan(plan: &Plan, promise: &Threshold, rate: f64, length: Duration) -> Result<Plan, CliError> {
    let mut probe = plan.clone();
    let warm_up = warm_up(length);
    let arrivals = match plan.load.model {
        LoadModel::Open { arrivals, .. } => arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    let steady = Profile::constant(rate, probe_length(rate, length) + warm_up);
    let rate = steady.map_err(|error| CliError::new(format!("--find-max-probe: {error}")))?;
    probe.load.model = LoadModel::Open { rate, arrivals };
    probe.load.iterations = None;
    probe.load.warm_up = warm_up;
    probe.thresholds.insert(0, promise.clone());
    if probe.thresholds.iter().all(|t| t.statistic != Statistic::ErrorRate) {
        probe.thresholds.push(DEFAULT_ERROR_THRESHOLD.parse().expect("a valid threshold"));
    }
    Ok(probe)
}

fn judge(finished: &RunResult) -> ProbeOutcome {
    let (generator, dropped) = (&finished.facts.generator, finished.view.engine.dropped);
    // Starts that found every user busy are the target's doing: it answered too slowly. Anything else is the generator's.
    let own_reasons =
        generator.saturated_because.len() - usize::from(dropped > 0).min(generator.saturated_because.len());
    match finished.facts.thresholds.iter().all(|threshold| threshold.passed) && dropped == 0 {
        _ if own_reasons > 0 => ProbeOutcome::GeneratorTooSlow,
        true => ProbeOutcome::Passed,
        false => ProbeOutcome::Failed,
    }
}

/// One line that says how far a probe is, on terminals only: elsewhere the table is progress enough.
struct ProbeProgressLine {
    rate: f64,
    shown: bool,
    hint: &'static str,
}

impl ProbeProgressLine {
    fn new(rate: f64, quiet: bool, stoppable: bool) -> ProbeProgressLine {
        let hint = if stoppable { "; q stops" } else { "" };
        ProbeProgressLine { rate, shown: !quiet && std::io::stderr().is_terminal(), hint }
    }

    fn clear(&self) {
        if self.shown {
            print_stderr("\r\x1b[K");
        }
    }
}

impl RunObserver for ProbeProgressLine {
    fn on_update(&mut self, plan: &Plan, _: &RunView, live: &LiveStatus) {
        if self.shown {
            let (elapsed, total) = (format::clock(live.elapsed), format::clock(plan.duration()));
            let rate = format!("{}/s", format::rate(self.rate));
            print_stderr(format!("\r{rate:>12}  probing, {elapsed} of {total}{}\x1b[K", self.hint));
        }
    }
}

/// The table of probes, printed line by line as they end.
struct ProbeTable {
    quiet: bool,
    /// Standard output carries the result.
    to_stderr: bool,
    threshold: Threshold,
}

impl ProbeTable {
    fn new(args: &RunArgs, promise: &Threshold, aside: bool) -> Result<ProbeTable, CliError> {
        let table = ProbeTable { quiet: args.output.quiet, to_stderr: aside, threshold: promise.clone() };
        let length = squall_model::format_duration(args.search.probe_duration());
        table.print(&format!(
            "searching for the highest rate that holds {promise}, in probes of {length}, to within {}\n\n{:>12}  {:>12}  {:>10}  {}\n",
            percent(args.search.precision()),
            "rate",
            promise.statistic.to_string(),
            "errors",
            "held",
        ))?;
        Ok(table)
    }

    fn print_row(&self, rate: f64, held: ProbeOutcome, because: &str, finished: &RunResult) -> Result<(), CliError> {
        let value = finished.facts.thresholds.first().and_then(|result| result.value);
        let value = value.map_or("–".to_owned(), |value| format_value(&self.threshold, value));
        let held = match held {
            ProbeOutcome::Passed => "yes".to_owned(),
            ProbeOutcome::Failed => format!("no: {because}"),
            ProbeOutcome::GeneratorTooSlow => format!("does not count, the generator was the limit: {because}"),
        };
        let errors = percent(finished.view.all.error_rate());
        self.print(&format!("{:>12}  {value:>12}  {errors:>10}  {held}\n", format!("{}/s", format::rate(rate))))
    }

    /// `because` is why the last probe that counts did not hold.
    fn print_outcome(&self, search: &RateSearch, args: &RunArgs, before: &str, because: &str) -> Result<(), CliError> {
        let precision = percent(args.search.precision());
        let per_second = |rate: f64| format!("{}/s", format::rate(rate));
        let answer = match search.outcome() {
            None => "nothing is known yet".to_owned(),
            Some(FindMaxOutcome::Found { rate, above }) => format!(
                "highest rate that holds {}: {} ± {precision} ({} did not hold)",
                self.threshold,
                per_second(rate),
                per_second(above)
            ),
            Some(FindMaxOutcome::GeneratorLimit { rate, above }) => format!(
                "{} holds {}, and at {} this generator was the limit, not the target",
                per_second(rate),
                self.threshold,
                per_second(above)
            ),
            Some(FindMaxOutcome::NothingHolds { lowest }) => {
                format!("not even {} holds {}: {because}", per_second(lowest), self.threshold)
            }
            Some(FindMaxOutcome::NothingMade { lowest }) => {
                format!("this generator cannot even make {}", per_second(lowest))
            }
            Some(FindMaxOutcome::NoLimit { rate }) => {
                format!("{} holds {}, and no limit was found", per_second(rate), self.threshold)
            }
        };
        let text = format!("\n{before}{answer}\n");
        // The answer is the result, so that --quiet leaves it; unless a file or standard output has it.
        if args.output.json.is_some() { self.print(&text) } else { print::stdout(text.as_bytes()) }
    }

    fn print(&self, text: &str) -> Result<(), CliError> {
        match (self.quiet, self.to_stderr) {
            (true, _) => {}
            (false, true) => print_stderr(text),
            (false, false) => print::stdout(text.as_bytes())?,
        }
        Ok(())
    }
}

/// Why a probe did not hold; empty if it did.
fn failure_reason(held: ProbeOutcome, finished: &RunResult) -> String {
    match held {
        ProbeOutcome::Passed => String::new(),
        ProbeOutcome::Failed => breach_reason(&finished.facts.thresholds, finished.view.engine.dropped),
        ProbeOutcome::GeneratorTooSlow => finished.facts.generator.saturated_because.join("; "),
    }
}

fn breach_reason(results: &[ThresholdResult], dropped: u64) -> String {
    match results.iter().find(|result| !result.passed) {
        Some(result) => match result.value {
            Some(value) => format!("{} was {}", result.threshold, format_value(&result.threshold, value)),
            None => format!("{} had nothing to judge", result.threshold),
        },
        None => format!("{dropped} starts found no free user"),
    }
}

fn format_value(threshold: &Threshold, value: f64) -> String {
    match threshold.statistic.unit() {
        StatisticUnit::Time => format::time(value),
        StatisticUnit::Fraction => percent(value),
        StatisticUnit::PerSecond => format!("{}/s", format::rate(value)),
        StatisticUnit::Count => format::count(value as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search in probes of half a second had nothing to judge at two starts a second, and said that not even they held.
    #[test]
    fn a_probe_is_long_enough_for_ten_starts() {
        assert_eq!(probe_length(1000.0, Duration::from_secs(10)), Duration::from_secs(10));
        assert_eq!(probe_length(2.0, Duration::from_millis(500)), Duration::from_secs(5));
    }
}

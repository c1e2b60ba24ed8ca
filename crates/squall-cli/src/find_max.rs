//! `--find-max`: the highest rate that holds a promise, by repeated short runs. The search itself is a value that is told how a
//! probe went and says what to probe next; here probes are run and put into words.

mod record;
mod search;

use squall_engine::Driver;
use squall_metrics::RunView;
use squall_model::{Arrivals, LoadModel, Plan, Profile, StatisticUnit, Statistic, Threshold, ThresholdResult};
use squall_orchestrator::{Control, Finished, Live, Observer};
use squall_report::{Run, Verdict, verdict};
use std::{io::IsTerminal, time::Duration};

use crate::{
    args::RunArgs,
    commands::run::{Shown, carry_out, options},
    exit::{self, Refusal, error_chain},
    program::Program,
    signals,
    stop::StopButton,
    terminal::{
        Keys,
        format::{self, percent},
        print, say,
    },
};
use record::{End, Record};
use search::{Answer, Held, Search};

/// Where the search begins when no rate is given.
const FIRST_RATE: f64 = 50.0;
/// Each probe is preceded by this much load that is not judged: connections are made, caches filled.
const WARM_UP: Duration = Duration::from_secs(1);
/// A probe at a low rate is as long as so many starts take: of fewer nothing could be said.
const FEWEST_STARTS: f64 = 10.0;
/// How often a probe that did not hold is tried again.
const REPEATS: u32 = 1;
/// A target that answers fast because it fails does not hold a promise about time.
const ERRORS_ALLOWED: &str = "error_rate<1%";

/// Searches, prints what was found and gives the exit code.
pub(crate) fn find_max<D: Driver>(args: &RunArgs, program: &Program<D>, promise: &Threshold) -> Result<u8, Refusal> {
    let mut search = Search::new(first_rate(args, program.plan()), args.search.precision());
    let button = StopButton::new(Control::new());
    let _obeying = signals::obey(&button)?;
    let (length, mut repeated) = (args.search.probe(), 0);
    let mut record = Record::open(args)?;
    let mut broke = String::new();
    let table = Table::new(args, promise, record.uses_stdout())?;
    let keys = Keys::listen(&button);
    let end = |search: &Search, record: Record, exit_code: u8| {
        let (plan, warm_up) = (program.plan(), warm_up(length));
        let interrupted = exit_code == exit::INTERRUPTED;
        let said = record.write(&End { plan, args, search, warm_up, interrupted, exit_code })?;
        if let Some(said) = said.filter(|_| !args.output.quiet) {
            say(format!("{said}\n"));
        }
        Ok(exit_code)
    };
    while let Some(rate) = search.next() {
        let probe = program.with_plan(probe_plan(program.plan(), promise, rate, length)?);
        let mut progress = Progress::of(rate, args.output.quiet, keys.heard());
        let options = options(&args.engine, &probe);
        let finished = carry_out(&button, Shown::Nothing, &mut progress, async |control, observers| {
            probe.run(options, control, observers).await.map_err(|error| Refusal::new(error_chain(&error)))
        })?;
        progress.clear();
        let run = Run {
            plan: probe.plan(),
            view: &finished.view,
            facts: &finished.facts,
            strict: false,
            command: None,
            version: env!("SQUALL_VERSION"),
        };
        match verdict(&run) {
            Verdict::Interrupted => {
                table.close(&search, args, "interrupted; so far: ", &broke)?;
                return end(&search, record, exit::INTERRUPTED);
            }
            Verdict::TargetUnreachable => {
                let reason = finished.view.errors.first().map_or(String::new(), |note| format!(": {}", note.message));
                exit::report(&Refusal::unreachable(format!("the target could not be reached{reason}")));
                return end(&search, record, exit::UNREACHABLE);
            }
            Verdict::Passed | Verdict::ThresholdBreached | Verdict::NothingMeasured | Verdict::ScheduleMissed => {}
        }
        let held = judge(&finished);
        let because = because(held, &finished);
        table.row(rate, held, &because, &finished)?;
        record.probe(rate, held, &because, &run);
        // A hiccup, of the target's or of this machine's, is no limit: only what happens again is.
        repeated = if held == Held::Yes { 0 } else { repeated + 1 };
        if repeated == 0 || repeated > REPEATS {
            search.note(rate, held);
            repeated = 0;
            // Nothing works at all, and a lower rate will not change that.
            if held == Held::No && finished.view.all.error_rate() >= 1.0 {
                broke = because;
                break;
            }
        }
        if held == Held::No {
            broke = because;
        }
    }
    table.close(&search, args, "", &broke)?;
    let code = match search.answer() {
        Some(Answer::Found { .. } | Answer::NoLimit { .. }) => exit::PASSED,
        Some(Answer::GeneratorLimit { .. }) if args.strict => exit::TOO_SLOW,
        Some(Answer::GeneratorLimit { .. }) => exit::PASSED,
        Some(Answer::NothingMade { .. }) => exit::TOO_SLOW,
        Some(Answer::NothingHolds { .. }) | None => exit::BREACHED,
    };
    end(&search, record, code)
}

fn length_at(rate: f64, length: Duration) -> Duration {
    length.max(Duration::from_secs_f64(FEWEST_STARTS / rate))
}

/// How much of a probe is not judged.
fn warm_up(length: Duration) -> Duration {
    WARM_UP.min(length / 2)
}

fn first_rate(args: &RunArgs, plan: &Plan) -> f64 {
    match &plan.load.model {
        LoadModel::Open { rate, .. } if args.load.rate.is_some() => rate.peak(),
        _ => FIRST_RATE,
    }
}

/// The same plan at a steady rate, with the promise to be found out about.
fn probe_plan(plan: &Plan, promise: &Threshold, rate: f64, length: Duration) -> Result<Plan, Refusal> {
    let mut probe = plan.clone();
    let warm_up = warm_up(length);
    let arrivals = match plan.load.model {
        LoadModel::Open { arrivals, .. } => arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    let steady = Profile::constant(rate, length_at(rate, length) + warm_up);
    let rate = steady.map_err(|error| Refusal::new(format!("--find-max-probe: {error}")))?;
    probe.load.model = LoadModel::Open { rate, arrivals };
    probe.load.iterations = None;
    probe.load.warm_up = warm_up;
    probe.thresholds.insert(0, promise.clone());
    if probe.thresholds.iter().all(|t| t.statistic != Statistic::ErrorRate) {
        probe.thresholds.push(ERRORS_ALLOWED.parse().expect("a valid threshold"));
    }
    Ok(probe)
}

fn judge(finished: &Finished) -> Held {
    let (generator, dropped) = (&finished.facts.generator, finished.view.engine.dropped);
    // Starts that found every user busy are the target's doing: it answered too slowly. Anything else is the generator's.
    let own_reasons =
        generator.saturated_because.len() - usize::from(dropped > 0).min(generator.saturated_because.len());
    match finished.facts.thresholds.iter().all(|threshold| threshold.passed) && dropped == 0 {
        _ if own_reasons > 0 => Held::GeneratorTooSlow,
        true => Held::Yes,
        false => Held::No,
    }
}

/// One line that says how far a probe is, on terminals only: elsewhere the table is progress enough.
struct Progress {
    rate: f64,
    shown: bool,
    hint: &'static str,
}

impl Progress {
    fn of(rate: f64, quiet: bool, stoppable: bool) -> Progress {
        let hint = if stoppable { "; q stops" } else { "" };
        Progress { rate, shown: !quiet && std::io::stderr().is_terminal(), hint }
    }

    fn clear(&self) {
        if self.shown {
            say("\r\x1b[K");
        }
    }
}

impl Observer for Progress {
    fn second(&mut self, plan: &Plan, _: &RunView, live: &Live) {
        if self.shown {
            let (elapsed, total) = (format::clock(live.elapsed), format::clock(plan.duration()));
            let rate = format!("{}/s", format::rate(self.rate));
            say(format!("\r{rate:>12}  probing, {elapsed} of {total}{}\x1b[K", self.hint));
        }
    }
}

/// The table of probes, printed line by line as they end.
struct Table {
    quiet: bool,
    /// Standard output carries the result.
    aside: bool,
    promise: Threshold,
}

impl Table {
    fn new(args: &RunArgs, promise: &Threshold, aside: bool) -> Result<Table, Refusal> {
        let table = Table { quiet: args.output.quiet, aside, promise: promise.clone() };
        let length = squall_model::format_duration(args.search.probe());
        table.say(&format!(
            "searching for the highest rate that holds {promise}, in probes of {length}, to within {}\n\n{:>12}  {:>12}  {:>10}  {}\n",
            percent(args.search.precision()),
            "rate",
            promise.statistic.to_string(),
            "errors",
            "held",
        ))?;
        Ok(table)
    }

    fn row(&self, rate: f64, held: Held, because: &str, finished: &Finished) -> Result<(), Refusal> {
        let value = finished.facts.thresholds.first().and_then(|result| result.value);
        let value = value.map_or("–".to_owned(), |value| shown(&self.promise, value));
        let held = match held {
            Held::Yes => "yes".to_owned(),
            Held::No => format!("no: {because}"),
            Held::GeneratorTooSlow => format!("does not count, the generator was the limit: {because}"),
        };
        let errors = percent(finished.view.all.error_rate());
        self.say(&format!("{:>12}  {value:>12}  {errors:>10}  {held}\n", format!("{}/s", format::rate(rate))))
    }

    /// `because` is why the last probe that counts did not hold.
    fn close(&self, search: &Search, args: &RunArgs, before: &str, because: &str) -> Result<(), Refusal> {
        let precision = percent(args.search.precision());
        let per_second = |rate: f64| format!("{}/s", format::rate(rate));
        let answer = match search.answer() {
            None => "nothing is known yet".to_owned(),
            Some(Answer::Found { rate, above }) => format!(
                "highest rate that holds {}: {} ± {precision} ({} did not hold)",
                self.promise,
                per_second(rate),
                per_second(above)
            ),
            Some(Answer::GeneratorLimit { rate, above }) => format!(
                "{} holds {}, and at {} this generator was the limit, not the target",
                per_second(rate),
                self.promise,
                per_second(above)
            ),
            Some(Answer::NothingHolds { lowest }) => {
                format!("not even {} holds {}: {because}", per_second(lowest), self.promise)
            }
            Some(Answer::NothingMade { lowest }) => format!("this generator cannot even make {}", per_second(lowest)),
            Some(Answer::NoLimit { rate }) => {
                format!("{} holds {}, and no limit was found", per_second(rate), self.promise)
            }
        };
        let text = format!("\n{before}{answer}\n");
        // The answer is the result, so that --quiet leaves it; unless a file or standard output has it.
        if args.output.json.is_some() { self.say(&text) } else { print::stdout(text.as_bytes()) }
    }

    fn say(&self, text: &str) -> Result<(), Refusal> {
        match (self.quiet, self.aside) {
            (true, _) => {}
            (false, true) => say(text),
            (false, false) => print::stdout(text.as_bytes())?,
        }
        Ok(())
    }
}

/// Why a probe did not hold; empty if it did.
fn because(held: Held, finished: &Finished) -> String {
    match held {
        Held::Yes => String::new(),
        Held::No => broken(&finished.facts.thresholds, finished.view.engine.dropped),
        Held::GeneratorTooSlow => finished.facts.generator.saturated_because.join("; "),
    }
}

fn broken(results: &[ThresholdResult], dropped: u64) -> String {
    match results.iter().find(|result| !result.passed) {
        Some(result) => match result.value {
            Some(value) => format!("{} was {}", result.threshold, shown(&result.threshold, value)),
            None => format!("{} had nothing to judge", result.threshold),
        },
        None => format!("{dropped} starts found no free user"),
    }
}

fn shown(threshold: &Threshold, value: f64) -> String {
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
        assert_eq!(length_at(1000.0, Duration::from_secs(10)), Duration::from_secs(10));
        assert_eq!(length_at(2.0, Duration::from_millis(500)), Duration::from_secs(5));
    }
}

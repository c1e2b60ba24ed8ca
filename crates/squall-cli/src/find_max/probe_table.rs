//! What `--find-max` prints: the table of probes, the progress of the current one and the outcome.
//! Decides nothing. `find_max` calls it.

use squall_metrics::RunView;
use squall_model::{Plan, Threshold};
use squall_orchestrator::{LiveStatus, RunObserver, RunResult};
use std::io::IsTerminal;

use super::{
    SearchSettings,
    probe::format_value,
    rate_search::{FindMaxOutcome, ProbeOutcome, RateSearch},
};
use crate::{
    exit::CliError,
    terminal::{
        format::{self, percent},
        print, print_stderr,
    },
};

/// The progress line of one probe. Only on a terminal: elsewhere the table shows the progress.
pub(super) struct ProbeProgressLine {
    rate: f64,
    visible: bool,
    hint: &'static str,
}

impl ProbeProgressLine {
    pub(super) fn new(rate: f64, quiet: bool, keys_work: bool) -> ProbeProgressLine {
        let hint = if keys_work { "; q stops" } else { "" };
        ProbeProgressLine { rate, visible: !quiet && std::io::stderr().is_terminal(), hint }
    }

    pub(super) fn clear(&self) {
        if self.visible {
            print_stderr("\r\x1b[K");
        }
    }
}

impl RunObserver for ProbeProgressLine {
    fn on_update(&mut self, plan: &Plan, _: &RunView, live: &LiveStatus) {
        if self.visible {
            let (elapsed, total) = (format::clock(live.elapsed), format::clock(plan.duration()));
            let rate = format!("{}/s", format::rate(self.rate));
            print_stderr(format!("\r{rate:>12}  probing, {elapsed} of {total}{}\x1b[K", self.hint));
        }
    }
}

/// The table of probes; each probe adds a line when it ends.
pub(super) struct ProbeTable {
    quiet: bool,
    /// Set if standard output carries the JSON result.
    to_stderr: bool,
    threshold: Threshold,
}

impl ProbeTable {
    /// Prints the heading.
    pub(super) fn new(settings: &SearchSettings, to_stderr: bool) -> Result<ProbeTable, CliError> {
        let threshold = &settings.threshold;
        let table = ProbeTable { quiet: settings.quiet, to_stderr, threshold: threshold.clone() };
        let length = squall_model::format_duration(settings.probe);
        table.print(&format!(
            "searching for the highest rate that holds {threshold}, in probes of {length}, to within {}\n\n{:>12}  {:>12}  {:>10}  {}\n",
            percent(settings.precision),
            "rate",
            threshold.statistic.to_string(),
            "errors",
            "held",
        ))?;
        Ok(table)
    }

    pub(super) fn print_row(
        &self,
        rate: f64,
        outcome: ProbeOutcome,
        reason: &str,
        finished: &RunResult,
    ) -> Result<(), CliError> {
        let value = finished.facts.thresholds.first().and_then(|result| result.value);
        let value = value.map_or("–".to_owned(), |value| format_value(&self.threshold, value));
        let held = match outcome {
            ProbeOutcome::Passed => "yes".to_owned(),
            ProbeOutcome::Failed => format!("no: {reason}"),
            ProbeOutcome::GeneratorTooSlow => format!("does not count, the generator was the limit: {reason}"),
        };
        let errors = percent(finished.view.all.error_rate());
        self.print(&format!("{:>12}  {value:>12}  {errors:>10}  {held}\n", format!("{}/s", format::rate(rate))))
    }

    /// `reason` is why the last probe that counts failed.
    pub(super) fn print_outcome(
        &self,
        search: &RateSearch,
        settings: &SearchSettings,
        prefix: &str,
        reason: &str,
    ) -> Result<(), CliError> {
        let precision = percent(settings.precision);
        let per_second = |rate: f64| format!("{}/s", format::rate(rate));
        let outcome = match search.outcome() {
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
                format!("not even {} holds {}: {reason}", per_second(lowest), self.threshold)
            }
            Some(FindMaxOutcome::NothingMade { lowest }) => {
                format!("this generator cannot even make {}", per_second(lowest))
            }
            Some(FindMaxOutcome::NoLimit { rate }) => {
                format!("{} holds {}, and no limit was found", per_second(rate), self.threshold)
            }
        };
        let text = format!("\n{prefix}{outcome}\n");
        // The outcome is the result, so `--quiet` does not hide it, unless `--json` writes it.
        if settings.json.is_some() { self.print(&text) } else { print::stdout(text.as_bytes()) }
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

//! The input of every renderer: the plan, the measurements and the facts of one finished run. It
//! holds references only and renders nothing itself, except the load in words.

use squall_metrics::{MetricView, RunView};
use squall_model::{Arrivals, Load, LoadModel, Pause, Plan, RunFacts, ScheduleRule, format_duration};
use std::time::Duration;

use crate::format::number;

/// A finished run.
#[derive(Debug, Clone, Copy)]
pub struct ReportInput<'a> {
    pub plan: &'a Plan,
    pub view: &'a RunView,
    pub facts: &'a RunFacts,
    pub schedule_rule: ScheduleRule,
    pub interruption_rule: InterruptionRule,
    /// The command line that started the run, so that readers can repeat it.
    pub command: Option<&'a str>,
    /// Version of Squall.
    pub version: &'a str,
}

/// Whether the command succeeds although its run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterruptionRule {
    /// Exit code 130.
    #[default]
    Fails,
    /// Exit code 0: LoadPilot ends its engine by SIGTERM and expects success.
    Succeeds,
}

/// Layout of text for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    pub colour: bool,
    /// Columns available.
    pub width: usize,
}

impl TerminalStyle {
    /// No colour, 100 columns: for files and tests.
    pub const PLAIN: TerminalStyle = TerminalStyle { colour: false, width: 100 };
}

impl ReportInput<'_> {
    /// The time that rates refer to: the generator made load and the warm-up was over.
    pub(crate) fn measured_time(&self) -> Duration {
        self.facts.active.saturating_sub(self.plan.load.warm_up)
    }

    /// Requests per second of measured time.
    pub(crate) fn rate(&self, metric: &MetricView) -> f64 {
        let seconds = self.measured_time().as_secs_f64();
        if seconds > 0.0 { metric.requests as f64 / seconds } else { 0.0 }
    }
}

/// Length in seconds of the second that ends at `t_s`, in a run observed `elapsed` after its start.
/// The last second of a run is usually shorter than 1.
///
/// ```
/// use std::time::Duration;
/// let elapsed = Duration::from_millis(2_250);
/// assert_eq!([1, 2, 3].map(|t_s| squall_report::second_length(t_s, elapsed)), [1.0, 1.0, 0.25]);
/// ```
pub fn second_length(t_s: u32, elapsed: Duration) -> f64 {
    // At least a millisecond, so that a run that ended at once still has a rate.
    (elapsed.as_secs_f64() - f64::from(t_s.saturating_sub(1))).clamp(0.001, 1.0)
}

impl ReportInput<'_> {
    /// Length of a second of this run. The last second also holds the responses that arrived up to
    /// [`MAX_TAIL_S`] after it, and is longer by that tail.
    pub(crate) fn second_length(&self, t_s: u32) -> f64 {
        let beyond = self.facts.elapsed.as_secs_f64() - f64::from(t_s);
        let last = self.view.timeline.len() == t_s as usize;
        if last && beyond > 0.0 && beyond <= MAX_TAIL_S {
            return 1.0 + beyond;
        }
        second_length(t_s, self.facts.elapsed)
    }

    /// Length of a second without its warm-up part, which has no results; 0 if all of it was
    /// warm-up.
    pub(crate) fn measured_second_length(&self, t_s: u32) -> f64 {
        let warm_up = self.plan.load.warm_up.as_secs_f64() - f64::from(t_s.saturating_sub(1));
        (self.second_length(t_s) - warm_up.max(0.0)).max(0.0)
    }
}

/// The engine counts responses that come up to 10 ms after the last second in that second
/// (`LAST_SECOND_TOLERANCE` of its thread scheduler). This is twice as long, because a busy thread may
/// wake late and still counts them there.
const MAX_TAIL_S: f64 = 0.02;

/// The load in words: `200/s for 30s`.
pub(crate) fn describe_load(load: &Load) -> String {
    let profile = load.model.profile();
    // A run that is limited by its number of iterations only has a profile of many years.
    let endless = profile.duration() > Duration::from_secs(366 * 24 * 3600);
    let peak = profile.peak();
    let lasts = if endless { String::new() } else { format!(" for {}", format_duration(profile.duration())) };
    let steady = profile.pieces().iter().all(|piece| piece.from == peak && piece.to == peak);
    let up_to = if steady { "" } else { "up to " };
    let mut words = match &load.model {
        LoadModel::Open { arrivals, .. } => {
            let spread = if *arrivals == Arrivals::Poisson { ", Poisson arrivals" } else { "" };
            format!("{up_to}{}{lasts}{spread}", describe_rate(peak))
        }
        LoadModel::Closed { pause, .. } => {
            let users = if peak == 1.0 { "user" } else { "users" };
            format!("{up_to}{} {users}{lasts}{}", number(peak), describe_pause(*pause))
        }
    };
    if let Some(iterations) = load.iterations {
        let noun = if iterations == 1 { "iteration" } else { "iterations" };
        let until = if endless { "until" } else { "at most" };
        words += &format!(", {until} {} {noun}", number(iterations as f64));
    }
    if !load.warm_up.is_zero() {
        words += &format!(", the first {} as warm-up", format_duration(load.warm_up));
    }
    words
}

/// Rates below 0.1/s are given per minute or hour.
fn describe_rate(per_second: f64) -> String {
    let units = [(1.0, "s"), (60.0, "m"), (3600.0, "h")];
    let fitting = units.into_iter().find(|(seconds, _)| per_second * seconds >= 0.1);
    let (seconds, unit) = fitting.unwrap_or(units[2]);
    format!("{}/{unit}", number(per_second * seconds))
}

fn describe_pause(pause: Pause) -> String {
    match pause {
        pause if pause.is_none() => String::new(),
        Pause::Fixed(time) => format!(", pausing {}", format_duration(time)),
        Pause::Between(least, most) => format!(", pausing {}–{}", format_duration(least), format_duration(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_model::Profile;

    #[test]
    fn rates_below_a_tenth_per_second_are_described_per_minute_or_hour() {
        let describe = |per_second: f64, arrivals| {
            let rate = Profile::constant(per_second, Duration::from_secs(60)).expect("a profile");
            let model = LoadModel::Open { rate, arrivals };
            describe_load(&Load { model, iterations: None, warm_up: Duration::ZERO })
        };
        assert_eq!(describe(200.0, Arrivals::Even), "200/s for 1m");
        assert_eq!(describe(0.5, Arrivals::Poisson), "0.500/s for 1m, Poisson arrivals");
        assert_eq!(describe(0.05, Arrivals::Even), "3/m for 1m");
        assert_eq!(describe(1.0 / 3600.0, Arrivals::Even), "1/h for 1m");
        assert_eq!(describe(0.01 / 3600.0, Arrivals::Even), "0.0100/h for 1m");
    }
}

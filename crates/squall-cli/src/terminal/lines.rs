//! One line a second on standard error, where there is no terminal for the dashboard.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, LivePhase, Observer};
use std::io::Write;

use super::format::{clock, count, rate, time};

/// Prints each new second once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    printed: usize,
}

impl Observer for Lines {
    fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        let seconds = view.timeline.len();
        if live.phase == LivePhase::Done || seconds == self.printed {
            return;
        }
        self.printed = seconds;
        // Whoever read standard error may have gone away; the run goes on.
        let _ = writeln!(std::io::stderr(), "{}", line(plan, view, live));
    }
}

fn line(plan: &Plan, view: &RunView, live: &Live) -> String {
    let second = view.timeline.last().cloned().unwrap_or_default();
    let phase = match live.phase {
        LivePhase::WarmUp => " warm-up",
        LivePhase::Draining => " draining",
        LivePhase::Starting | LivePhase::Running | LivePhase::Done => "",
    };
    let total = clock(plan.duration());
    format!(
        "{:>5} / {total}{phase}  {:>7}/s  {:>8} requests  {} errors  p50 {}  p99 {}  {} users",
        clock(std::time::Duration::from_secs(u64::from(second.t_s))),
        rate(second.requests as f64),
        count(view.all.requests),
        count(view.all.errors),
        time(second.p50 as f64),
        time(second.p99 as f64),
        count(second.users),
    )
}

//! The progress lines: one a second on standard error, if the dashboard cannot be shown.
//! squall-report renders them.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus, RunObserver};
use squall_report::{TerminalStyle, live_header, live_line};

use crate::tick::tick;

/// Prints each new second once.
#[derive(Debug)]
pub(crate) struct LiveLinePrinter {
    printed: usize,
    style: TerminalStyle,
}

impl LiveLinePrinter {
    pub(crate) fn new() -> LiveLinePrinter {
        LiveLinePrinter { printed: 0, style: super::stderr_style() }
    }
}

impl RunObserver for LiveLinePrinter {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        let seconds = view.timeline.len();
        let idle = view.timeline.last().is_some_and(|second| second.requests == 0 && second.busy == 0);
        // The last second is short and often without a request.
        if live.phase == LivePhase::Done || seconds == self.printed || live.phase == LivePhase::Draining && idle {
            return;
        }
        let mut text = live_line(&tick(plan, view, live), self.style) + "\n";
        if self.printed == 0 {
            text = live_header(self.style) + "\n" + &text;
        }
        self.printed = seconds;
        super::print_stderr(text);
    }

    fn on_waiting(&mut self, reason: &str) {
        super::print_stderr(format!("{reason}\n"));
    }
}

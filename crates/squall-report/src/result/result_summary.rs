//! The end of a run: the parts of the result file without measurements. squall-web serves it, and
//! `squall test status` prints it.

use serde::{Deserialize, Serialize};

use super::{AccountingJson, FleetJson, ThresholdJson};
use crate::{
    RunVerdict,
    format::{count, number, percent, time},
    terminal_text::sanitize,
};

/// How a run ended. The fields have the same names and contents as in the result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultSummary {
    pub verdict: RunVerdict,
    pub exit_code: u8,
    pub thresholds: Vec<ThresholdJson>,
    pub accounting: AccountingJson,
    #[serde(default)]
    pub fleet: Option<FleetJson>,
}

impl ResultSummary {
    /// One line each for the verdict, the breached thresholds, the lost workers and the missing
    /// requests.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("verdict: {}", self.verdict.name().replace('_', " "))];
        let breached = self.thresholds.iter().filter(|threshold| !threshold.passed);
        lines.extend(
            breached.map(|breached| format!("✗ {}: {}", sanitize(&breached.threshold), threshold_value(breached))),
        );
        let lost: Vec<_> = self.fleet.iter().flat_map(|fleet| &fleet.workers).filter(|w| w.state == "lost").collect();
        if !lost.is_empty() {
            let names: Vec<_> = lost.iter().map(|worker| sanitize(&worker.id)).collect();
            lines.push(format!("lost: {}", names.join(", ")));
        }
        if self.accounting.lost_at_most > 0 {
            lines
                .push(format!("up to {} requests were sent and are not reported", count(self.accounting.lost_at_most)));
        }
        let missed = self.fleet.as_ref().map_or(0, |fleet| fleet.missed_starts);
        if missed > 0 {
            lines.push(format!("{} starts that were due are not reported", count(missed)));
        }
        lines
    }
}

fn threshold_value(threshold: &ThresholdJson) -> String {
    match (threshold.value, threshold.unit.as_str()) {
        (None, _) => "no data".to_owned(),
        (Some(value), "ms") => time(value * 1e6),
        (Some(value), "fraction") => percent(value),
        (Some(value), "per_s") => format!("{}/s", number(value)),
        (Some(value), _) => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerJson;

    fn passed_summary() -> ResultSummary {
        let accounting = AccountingJson {
            sent: 40,
            recorded: 40,
            reported: 40,
            warm_up: 0,
            unsent: 0,
            lost_at_most: 0,
            balanced: true,
            explanation: None,
        };
        ResultSummary { verdict: RunVerdict::Passed, exit_code: 0, thresholds: Vec::new(), accounting, fleet: None }
    }

    #[test]
    fn passed_run_has_one_line() {
        assert_eq!(passed_summary().lines(), ["verdict: passed"]);
    }

    #[test]
    fn breached_thresholds_lost_workers_and_missing_requests_have_a_line_each() {
        let threshold = |text: &str, unit: &str, value: Option<f64>, passed| ThresholdJson {
            threshold: text.into(),
            metric: None,
            statistic: "any".into(),
            unit: unit.into(),
            limit: 0.0,
            value,
            passed,
            breached_at_s: None,
        };
        let worker = |id: &str, state: &str| WorkerJson {
            id: id.into(),
            instance: "1".into(),
            requests: 10,
            state: state.into(),
            joined_s: 0.0,
            ended_s: None,
            lost_at_most: 0,
        };
        let workers = vec![worker("w1", "finished"), worker("w2", "lost")];
        let mut summary = ResultSummary {
            verdict: RunVerdict::ThresholdBreached,
            exit_code: 1,
            thresholds: vec![
                threshold("p99<1us", "ms", Some(0.25), false),
                threshold("rps>1000", "per_s", Some(20.0), false),
                threshold("error_rate<1%", "fraction", Some(0.5), false),
                threshold("buy:p50<1s", "ms", None, false),
                threshold("p50<1s", "ms", Some(0.1), true),
            ],
            fleet: Some(FleetJson { workers, events: Vec::new(), missed_starts: 141 }),
            ..passed_summary()
        };
        summary.accounting.lost_at_most = 15;
        assert_eq!(
            summary.lines(),
            [
                "verdict: threshold breached",
                "✗ p99<1us: 250 µs",
                "✗ rps>1000: 20/s",
                "✗ error_rate<1%: 50.0 %",
                "✗ buy:p50<1s: no data",
                "lost: w2",
                "up to 15 requests were sent and are not reported",
                "141 starts that were due are not reported",
            ]
        );
    }
}

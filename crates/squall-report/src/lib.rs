//! Judges finished runs, renders their results and compares them. The crate fetches nothing,
//! measures nothing and reads no clock: it turns `(&Plan, &RunView, &RunFacts)` into text, and
//! computes statistics only from merged histograms and their seconds. squall-cli and squall-web
//! call it.
//!
//! ```
//! # use squall_model::*;
//! # let second = std::time::Duration::from_secs(1);
//! # let rate = Profile::constant(5.0, second).unwrap();
//! # let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
//! # let load = Load { model, iterations: None, warm_up: Default::default() };
//! # let plan = Plan {
//! #     name: "shop".into(), target: "http://127.0.0.1".into(), load, tasks: vec![],
//! #     thresholds: vec![], seed: 1,
//! # };
//! # let facts = RunFacts {
//! #     started_unix_ms: 0, active: second, elapsed: second, stop: StopReason::Completed,
//! #     thresholds: vec![], generator: GeneratorStats::default(), lost_at_most: 0, fleet: None, events: vec![],
//! # };
//! # let view = squall_metrics::Collector::new([], 1).finish();
//! use squall_report::{ReportInput, RunVerdict, TerminalStyle, build_result, summary, verdict};
//!
//! let run = ReportInput {
//!     plan: &plan, view: &view, facts: &facts, schedule_rule: Default::default(),
//!     interruption_rule: Default::default(), command: None, version: "0.1.0",
//! };
//! assert_eq!(verdict(&run), RunVerdict::NothingMeasured);
//! assert_eq!(build_result(&run).exit_code, 1);
//! assert!(summary(&run, TerminalStyle::PLAIN).contains("shop"));
//! ```

mod compare;
mod csv;
mod failure_text;
mod format;
mod hdr_log;
mod html;
mod junit;
mod live_output;
mod live_run;
mod loadpilot;
mod metric_rows;
pub mod prometheus;
mod report_input;
mod result;
mod search_file;
mod summary;
mod terminal_text;
mod verdict;
mod wording;
mod xml_element;

pub use compare::{
    ChangeVerdict, ComparedStatistic, ComparisonRow, ComparisonView, DifferenceEstimate, DifferingFact, RowView,
    RunComparison, RunOverlay, compare,
};
pub use csv::csv;
pub use failure_text::failure_text;
pub use format::is_count;
pub use hdr_log::{HdrLogWriter, hdr_log_of_run};
pub use html::{comparison_html, html};
pub use junit::junit;
pub use live_output::{LiveSnapshot, LoadPhase, json_line, live_header, live_line, reported_time};
pub use live_run::{
    DASHBOARD_SCHEMA, LiveEngine, LiveMetric, LiveRun, LiveRunPhase, LiveRunState, LiveSecond, LiveTimes,
};
pub use loadpilot::{loadpilot_line, loadpilot_metrics};
pub use report_input::{InterruptionRule, ReportInput, TerminalStyle, second_length};
pub use result::{
    AccountingJson, ErrorJson, FleetEventJson, FleetJson, GeneratorJson, LatencyJson, LoadJson, MetricJson,
    MetricSecondJson, OutcomeJson, Percentiles, ReadResultError, RecordedRun, RestoreRunError, ResultFile,
    ResultSummary, RunJson, SCHEMA, SecondJson, ThresholdJson, TotalsJson, WorkerJson, build_result, result_summary,
};
pub use search_file::{SEARCH_SCHEMA, SearchFile, SearchOutcome, SearchProbeJson};
pub use squall_model::ScheduleRule;
pub use summary::{summary, threshold_lines, warning_lines};
pub use terminal_text::truncate_to_width;
pub use verdict::{RunVerdict, exit_code, verdict};

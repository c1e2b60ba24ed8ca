//! Verdicts, every rendering of a run's result, and run comparison. Fetches nothing, measures nothing and keeps no clock: it
//! turns `(&Plan, &RunView, &RunFacts)` into text, and computes statistics only from merged histograms and their seconds.
//!
//! ```
//! # use squall_model::*;
//! # let second = std::time::Duration::from_secs(1);
//! # let rate = Profile::constant(5.0, second).unwrap();
//! # let load = Load { model: LoadModel::Open { rate, arrivals: Arrivals::Even }, iterations: None, warm_up: Default::default() };
//! # let plan = Plan { name: "shop".into(), target: "http://127.0.0.1".into(), load, tasks: vec![], thresholds: vec![], seed: 1 };
//! # let facts = RunFacts { started_unix_ms: 0, active: second, elapsed: second, stop: StopReason::Completed, thresholds: vec![],
//! #     generator: Generator::default(), lost_at_most: 0, fleet: None };
//! # let view = squall_metrics::Collector::new([], 1).finish();
//! use squall_report::{Run, Style, Verdict, result, summary, verdict};
//!
//! let run = Run { plan: &plan, view: &view, facts: &facts, strict: false, command: None, version: "0.1.0" };
//! assert_eq!(verdict(&run), Verdict::NothingMeasured);
//! assert_eq!(result(&run).exit_code, 1);
//! assert!(summary(&run, Style::PLAIN).contains("shop"));
//! ```

mod compare;
mod csv;
mod format;
mod hdrlog;
mod html;
mod junit;
mod live;
pub mod prometheus;
mod result;
mod run;
mod search;
mod summary;
mod text;
mod verdict;
mod words;

pub use compare::{Change, Compared, Comparison, Effect, Row, compare};
pub use csv::csv;
pub use hdrlog::HdrLog;
pub use html::html;
pub use junit::junit;
pub use live::{Phase, Tick, json_line, live_header, live_line, moment};
pub use result::{
    AccountingFile, Ending, ErrorFile, FleetEventFile, FleetFile, GeneratorFile, LatencyFile, LoadFile, MetricFile,
    MetricSecondFile, OutcomeFile, Percentiles, ReadResultError, ResultFile, RunFile, SCHEMA, SecondFile,
    ThresholdFile, TotalsFile, WorkerFile, ending, result,
};
pub use run::{Run, Style, length_of};
pub use search::{ProbeFile, SEARCH_SCHEMA, SearchAnswer, SearchFile};
pub use summary::summary;
pub use text::fit;
pub use verdict::{Verdict, verdict};

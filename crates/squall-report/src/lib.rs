//! Verdicts, every rendering of a run's result, and run comparison. Fetches nothing, measures nothing and keeps no clock: it
//! turns `(&Plan, &RunView, &RunFacts)` into text, and computes statistics only from merged histograms and their seconds.

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
mod summary;
mod text;
mod verdict;
mod words;

pub use compare::{Change, Compared, Comparison, Effect, Row, compare};
pub use csv::csv;
pub use hdrlog::HdrLog;
pub use html::html;
pub use junit::junit;
pub use live::{Phase, Tick, json_line, live_header, live_line};
pub use result::{
    AccountingFile, ErrorFile, GeneratorFile, LatencyFile, LoadFile, MetricFile, MetricSecondFile, OutcomeFile,
    Percentiles, ReadResultError, ResultFile, RunFile, SCHEMA, SecondFile, ThresholdFile, TotalsFile, result,
};
pub use run::{Run, Style};
pub use summary::summary;
pub use verdict::{Verdict, verdict};

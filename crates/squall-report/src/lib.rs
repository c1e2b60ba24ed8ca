//! Verdicts, every rendering of a run's result, and run comparison. Fetches nothing, measures nothing and keeps no clock: it
//! turns `(&Plan, &RunView, &RunFacts)` into text, and computes statistics only from merged histograms and their seconds.

mod format;
mod result;
mod run;
mod summary;
mod text;
mod verdict;

pub use result::{
    AccountingFile, ErrorFile, GeneratorFile, LatencyFile, LoadFile, MetricFile, MetricSecondFile, OutcomeFile,
    Percentiles, ReadResultError, ResultFile, RunFile, SCHEMA, SecondFile, ThresholdFile, TotalsFile, result,
};
pub use run::{Run, Style};
pub use summary::summary;
pub use verdict::{Verdict, verdict};

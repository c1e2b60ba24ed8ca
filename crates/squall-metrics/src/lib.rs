//! What happened, counted: samples, per-thread recorders, mergeable snapshots, and the run as it is seen while it goes on.
//! Holds no I/O and no runtime. Recording neither locks nor allocates; percentiles are read only from merged histograms.

mod second_aligner;
mod collector;
mod delta;
mod thread_merger;
mod histogram;
mod metric_key;
mod bucket_layout;
mod live_histogram;
mod outcome;
mod pending_second;
mod recorder;
mod run_view;
mod wire;

pub use second_aligner::MergeError;
pub use collector::Collector;
pub use delta::{Delta, EngineDelta, ErrorNote, MetricDelta, SourceId};
pub use thread_merger::ThreadMerger;
pub use histogram::Histogram;
pub use metric_key::{MetricKind, MetricKey};
pub use bucket_layout::HIGHEST_TRACKABLE_NS;
pub use live_histogram::LiveHistogram;
pub use outcome::{OutcomeCategory, OutcomeCode, Outcome};
pub use recorder::{MetricId, PHASES, PhaseTimes, MetricRecorder, RecorderConfig, Sample};
pub use run_view::{Accounting, EngineView, MetricSecond, MetricView, RunView, RunSecond};
pub use wire::{WireError, decode, encode_delta};

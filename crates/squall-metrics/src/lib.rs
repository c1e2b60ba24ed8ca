//! Counts what happens in a run: samples, a recorder per thread, mergeable deltas, and the view of
//! the run so far. It has no I/O and no runtime. Recording neither locks nor allocates, and
//! percentiles come only from merged histograms.

mod bucket_counts;
mod bucket_layout;
mod collector;
mod delta;
mod histogram;
mod late_starts;
mod live_histogram;
mod metric_key;
mod outcome;
mod pending_second;
mod recorder;
mod run_view;
mod second_aligner;
mod thread_merger;
mod wire;

pub use bucket_layout::{HIGHEST_TRACKABLE_NS, coarse_bucket_bounds};
pub use collector::Collector;
pub use delta::{Delta, EngineDelta, ErrorNote, MetricDelta, SourceId};
pub use histogram::Histogram;
pub use late_starts::most_added_by_late_starts;
pub use live_histogram::LiveHistogram;
pub use metric_key::{CODE_FAILURE_SUFFIX, MetricKey, MetricKind};
pub use outcome::{Outcome, OutcomeCategory, OutcomeCode};
pub use recorder::{MetricId, MetricRecorder, PHASES, PhaseTimes, RecorderConfig, Sample};
pub use run_view::{Accounting, EngineView, FailureSpan, MetricSecond, MetricView, RunSecond, RunView};
pub use second_aligner::MergeError;
pub use thread_merger::ThreadMerger;
pub use wire::{WireError, decode_delta, encode_delta};

//! What happened, counted: samples, per-thread recorders, mergeable snapshots, and the run as it is seen while it goes on.
//! Holds no I/O and no runtime. Recording neither locks nor allocates; percentiles are read only from merged histograms.

mod align;
mod collector;
mod delta;
mod fold;
mod histogram;
mod key;
mod layout;
mod live;
mod outcome;
mod pending;
mod recorder;
mod view;
mod wire;

pub use align::Refused;
pub use collector::Collector;
pub use delta::{Delta, EngineDelta, ErrorNote, MetricDelta, SourceId};
pub use fold::Fold;
pub use histogram::Histogram;
pub use key::{Kind, MetricKey};
pub use layout::HIGHEST_NS;
pub use live::LiveHistogram;
pub use outcome::{Category, Code, Outcome};
pub use recorder::{MetricId, PHASES, PhaseTimes, Recorder, RecorderConfig, Sample};
pub use view::{Accounting, EngineView, MetricSecond, MetricView, RunView, Second};
pub use wire::{WireError, decode, encode};

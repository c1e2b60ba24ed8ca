//! The vocabulary of a run: plans, load profiles, tasks, thresholds. Holds no I/O, no clock and no runtime: everything here
//! is a value that can be computed, compared and shipped. Every other room speaks in these types.

mod duration;
mod facts;
mod load;
mod plan;
mod profile;
mod segment;
mod shares;
mod threshold;

pub use duration::{ParseDurationError, format_duration, parse_duration};
pub use facts::{FleetEvent, FleetFacts, Generator, RunFacts, StopReason, ThresholdResult, WorkerFacts, WorkerState};
pub use load::{Arrivals, Load, LoadModel, ParseRateError, Pause, parse_rate};
pub use plan::{Every, Plan, TaskIndex, TaskSpec};
pub use profile::{ParseStagesError, Profile, ProfileError, Stage, parse_stages};
pub use segment::Segment;
pub use shares::{SHARES, ShareSet};
pub use threshold::{Comparison, ParseThresholdError, Quantity, Statistic, Threshold};

//! The vocabulary of a run: plans, load profiles, tasks, thresholds. Holds no I/O, no clock and no runtime: everything here
//! is a value that can be computed, compared and shipped. Every other room speaks in these types.

mod announcement;
mod bundle;
mod causes;
mod duration;
mod envelope;
mod facts;
mod load;
mod order;
mod phase;
mod plan;
mod profile;
mod segment;
mod shares;
mod stock;
mod threshold;

pub use announcement::Announcement;
pub use bundle::{Bundle, Limits};
pub use causes::chain;
pub use duration::{ParseDurationError, format_duration, parse_duration};
pub use envelope::{CommandEnvelope, CommandType, EnvelopeError};
pub use facts::{FleetEvent, FleetFacts, Generator, RunFacts, StopReason, ThresholdResult, WorkerFacts, WorkerState};
pub use load::{Arrivals, Load, LoadModel, ParseRateError, Pause, parse_rate};
pub use order::{HookOrder, ITERATIONS, RunOrder, SteerError, StopOrder};
pub use phase::{PhaseEvent, PhaseRefused, RunPhase};
pub use plan::{Every, Plan, TaskIndex, TaskSpec};
pub use profile::{HIGHEST_LEVEL, ParseStagesError, Profile, ProfileError, Stage, parse_stages};
pub use segment::Segment;
pub use shares::{SHARES, ShareSet};
pub use stock::Stock;
pub use threshold::{Comparison, ParseThresholdError, Quantity, Statistic, Threshold};

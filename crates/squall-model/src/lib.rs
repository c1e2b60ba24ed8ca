//! The vocabulary of a run: plans, load profiles, tasks, thresholds. Holds no I/O, no clock and no runtime: everything here
//! is a value that can be computed, compared and shipped. Every other room speaks in these types.

mod send_budget_report;
mod bundle;
mod error_chain;
mod duration;
mod envelope;
mod facts;
mod load;
mod run_spec;
mod run_phase;
mod plan;
mod profile;
mod segment;
mod share_set;
mod pool_contents;
mod threshold;

pub use send_budget_report::SendBudgetReport;
pub use bundle::{Bundle, WorkerLimits};
pub use error_chain::error_chain;
pub use duration::{ParseDurationError, format_duration, parse_duration};
pub use envelope::{CommandEnvelope, CommandType, EnvelopeError};
pub use facts::{FleetEvent, FleetFacts, GeneratorStats, RunFacts, StopReason, ThresholdResult, WorkerFacts, WorkerState};
pub use load::{Arrivals, Load, LoadModel, ParseRateError, Pause, parse_rate};
pub use run_spec::{HookAssignment, ITERATIONS_COUNTER, RunSpec, RunChangeError, RunStopRequest};
pub use run_phase::{PhaseEvent, PhaseTransitionError, RunPhase};
pub use plan::{TaskInterval, Plan, TaskIndex, TaskSpec};
pub use profile::{HIGHEST_LEVEL, ParseStagesError, Profile, ProfileError, ProfileStage, parse_stages};
pub use segment::Segment;
pub use share_set::{SHARE_COUNT, ShareSet};
pub use pool_contents::PoolContents;
pub use threshold::{ComparisonOperator, ParseThresholdError, StatisticUnit, Statistic, Threshold};

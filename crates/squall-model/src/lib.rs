//! The types of a run that all other crates share: plans, load profiles, tasks, thresholds. It has
//! no I/O, no clock and no runtime: every type is a value that can be computed, compared and sent.

mod bundle;
mod duration;
mod engine_limits;
mod envelope;
mod error_chain;
mod facts;
mod level_step;
mod load;
mod load_change;
mod plan;
mod pool_contents;
mod profile;
pub mod protocol;
mod run_phase;
mod run_spec;
mod share_set;
mod threshold;

pub use bundle::{Bundle, BundleVersion, EncodedSettings, ScheduleRule};
pub use duration::{ParseDurationError, format_duration, parse_duration};
pub use engine_limits::EngineLimits;
pub use envelope::{CommandEnvelope, CommandType, EnvelopeError, user_id};
pub use error_chain::error_chain;
pub use facts::{
    FleetEvent, FleetEventKind, FleetFacts, GeneratorStats, RunFacts, StopReason, ThresholdResult, WorkerFacts,
    WorkerState,
};
pub use level_step::LevelStep;
pub use load::{Arrivals, LevelUnit, Load, LoadModel, ParseRateError, Pause, parse_rate};
pub use load_change::{AcceptedChange, LoadChange};
pub use plan::{Plan, TaskIndex, TaskInterval, TaskSpec};
pub use pool_contents::PoolContents;
pub use profile::{HIGHEST_LEVEL, ParseStagesError, Profile, ProfileError, ProfileStage, parse_stages};
pub use run_phase::{PhaseEvent, PhaseTransitionError, RunPhase};
pub use run_spec::{HookAssignment, ITERATIONS_COUNTER, RunChangeError, RunSpec, RunSpecError, RunStopRequest};
pub use share_set::{SHARE_COUNT, ShareSet};
pub use threshold::{
    ComparisonOperator, ParseThresholdError, Statistic, StatisticUnit, Threshold, ThresholdProblem, is_layout_shift,
    step_of_figure,
};

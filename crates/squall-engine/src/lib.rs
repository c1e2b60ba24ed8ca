//! Turns a load into iterations at their intended times and drives virtual users through them, one runtime per core. Knows no
//! protocol: what an iteration does is the [`Driver`]'s. Judges nothing: it ships one delta a second and stops when told.

mod driver;
mod engine;
mod engine_group;
mod number_quota;
mod precise_timer;
mod resource_client;
mod schedule;
mod send_budget;
mod task_chooser;
mod thread_deadline;
mod thread_recorder;
mod thread_scheduler;
mod thread_shares;
mod user_pool;
mod user_slot;
mod user_task;

pub use driver::{
    Driver, DriverError, DriverThread, Iteration, RequestsPerIteration, UserIdentity, UserStartError, VirtualUser,
};
pub use engine::{
    Engine, EngineConfig, EngineError, EngineStopHandle, InFlightIterations, LoadOutcome, ShareAssignment,
};
pub use engine_group::{EngineGroup, EngineGroupStopHandle, EngineSpec};
pub use number_quota::{NumberQuota, QuotaRefill, QuotaStatus, SharedCounter};
pub use resource_client::{
    AcquireReply, GrantedResource, ResourceClient, ResourceError, ResourceLease, ResourceRequest,
};
pub use schedule::{Schedule, ScheduledStart};
pub use send_budget::SendBudget;
pub use task_chooser::TaskCycle;
pub use thread_deadline::ThreadDeadline;
pub use thread_recorder::{FENCED, InFlightRequest, OpenSpan, ThreadRecorder};

//! Turns a load into iterations at their intended times and drives virtual users through them, one runtime per core. Knows no
//! protocol: what an iteration does is the [`Driver`]'s. Judges nothing: it ships one delta a second and stops when told.

mod precise_timer;
mod task_chooser;
mod engine_group;
mod thread_scheduler;
mod thread_deadline;
mod thread_shares;
mod driver;
mod engine;
mod user_pool;
mod send_budget;
mod resource_client;
mod user_task;
mod thread_recorder;
mod schedule;
mod user_slot;
mod number_quota;

pub use task_chooser::TaskCycle;
pub use engine_group::{EngineGroup, EngineGroupStopHandle, EngineSpec};
pub use thread_deadline::ThreadDeadline;
pub use driver::{Driver, DriverError, DriverThread, Iteration, RequestsPerIteration, UserIdentity, UserStartError, VirtualUser};
pub use engine::{ShareAssignment, Engine, EngineConfig, EngineError, EngineStopHandle, InFlightIterations, LoadOutcome};
pub use send_budget::SendBudget;
pub use resource_client::{ResourceRequest, ResourceError, ResourceClient, GrantedResource, ResourceLease, AcquireReply};
pub use thread_recorder::{FENCED, InFlightRequest, OpenSpan, ThreadRecorder};
pub use schedule::{Schedule, ScheduledStart};
pub use number_quota::{QuotaStatus, SharedCounter, QuotaRefill, NumberQuota};

//! Turns a load into iterations at their intended times and runs virtual users through them, with one
//! runtime per core. It knows no protocol: a [`Driver`] runs the iterations. It does not judge the run:
//! it sends one delta per thread and second and stops on command. squall-orchestrator and squall-worker
//! call it.

mod driver;
mod engine;
mod engine_config;
mod engine_group;
mod engine_thread;
mod helper_processes;
mod load_end;
mod number_quota;
mod on_start_tracker;
mod planned_scenario;
mod precise_timer;
mod resource_client;
mod schedule;
mod scheduler_waker;
mod send_permit;
mod share_assignment;
mod sleep_queue;
mod start_queue;
mod task_chooser;
mod thread_counters;
mod thread_deadline;
mod thread_progress;
mod thread_recorder;
mod thread_scheduler;
mod thread_shares;
mod thread_state;
mod user_growth;
mod user_mailbox;
mod user_pool;
mod user_task;

pub use driver::{
    Driver, DriverError, DriverThread, Iteration, OnStartError, RequestsPerIteration, UserIdentity, UserStart,
    VirtualUser,
};
pub use engine::{BusyUsers, Engine, EngineError, EngineStopHandle, LoadOutcome};
pub use engine_config::EngineConfig;
pub use engine_group::{EngineGroup, EngineGroupStopHandle, EngineSpec};
pub use helper_processes::{HelperProcesses, HelperUsage, helper_usage};
pub use number_quota::{NumberQuota, QuotaRefill, QuotaStatus, SharedCounter};
pub use planned_scenario::PlannedScenario;
pub use resource_client::{
    AcquireReply, GrantedResource, ResourceClient, ResourceError, ResourceLease, ResourceRequest,
};
pub use schedule::{Schedule, ScheduledStart};
pub use send_permit::SendPermit;
pub use share_assignment::ShareAssignment;
pub use task_chooser::TaskCycle;
pub use thread_deadline::ThreadDeadline;
pub use thread_recorder::{FENCED, InFlightRequest, OpenSpan, ThreadRecorder};

//! The settings of a worker, its status and the errors that end it.

use squall_coord::MembershipConfigError;
use squall_model::{Bundle, protocol::WorkerReport};
use std::time::{Duration, Instant};

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The worker's name in the fleet. Two live workers must not share one.
    pub id: String,
    /// Time between heartbeats, and between worker reports; the worker uses at most a third of `ttl`.
    pub heartbeat_interval: Duration,
    /// How long the membership lasts after a heartbeat, and the worker report after it is written.
    pub ttl: Duration,
    /// Deltas, one a second, that may wait for an unreachable store. With more, the worker ends its
    /// part of the run.
    pub max_unshipped_deltas: usize,
    /// The scenario for tests of vikhry's orchestrator, which stores none.
    pub scenario: Option<Bundle>,
    /// Whether this worker runs the probes of `scenario`. vikhry's orchestrator chooses no worker for
    /// them, so that every worker would.
    pub run_probes: bool,
}

impl WorkerConfig {
    pub fn new(id: impl Into<String>) -> WorkerConfig {
        let (heartbeat_interval, ttl) = (Duration::from_millis(1150), Duration::from_millis(3500));
        WorkerConfig {
            id: id.into(),
            heartbeat_interval,
            ttl,
            max_unshipped_deltas: 120,
            scenario: None,
            run_probes: false,
        }
    }
}

/// The last report of a worker, for health checks in the same process.
#[derive(Debug, Clone, Default)]
pub struct WorkerStatus {
    pub report: WorkerReport,
    /// When the worker sent the last report that the store acknowledged.
    pub last_acknowledged: Option<Instant>,
}

/// Why a worker ends without having been asked to.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    InvalidTimings(#[from] MembershipConfigError),
    #[error("another worker that is alive is called `{0}`: give this one another --id")]
    NameTaken(String),
}

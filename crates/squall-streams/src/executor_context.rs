//! The state that the tasks of one executor share: the partition buffers, the settings, the
//! counters and the notifications between tasks. Owns no tasks; [`crate::executor`] does.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use squall_coord::Lease;
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::{
    leased_partition::PartitionError, metrics::StreamMetrics, names::ProcessorName, partition_buffer::PartitionBuffer,
    processor::ProcessorSettings,
};

/// The shortest time between two warnings. While the server does not respond, every partition fails
/// many times a second, and one line is enough.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct ExecutorContext {
    pub(crate) processor: ProcessorName,
    pub(crate) settings: ProcessorSettings,
    pub(crate) metrics: Arc<StreamMetrics>,
    /// By lease, not by partition: the consumer of a lost lease may still run when the next lease
    /// of the same partition starts.
    buffers: Mutex<BTreeMap<Lease, Arc<PartitionBuffer>>>,
    ack_queue: Mutex<Vec<Lease>>,
    /// Notified when a buffer may need a read.
    pub(crate) fetch_wanted: Notify,
    /// Notified when there are events to acknowledge.
    pub(crate) ack_wanted: Notify,
    /// Notified when the set of idle buffers has changed.
    pub(crate) idle_changed: Notify,
    warn_limiter: Mutex<WarnLimiter>,
}

impl ExecutorContext {
    pub(crate) fn new(name: ProcessorName, settings: ProcessorSettings, metrics: Arc<StreamMetrics>) -> Arc<Self> {
        Arc::new(Self {
            processor: name,
            settings,
            metrics,
            buffers: Mutex::default(),
            ack_queue: Mutex::default(),
            fetch_wanted: Notify::new(),
            ack_wanted: Notify::new(),
            idle_changed: Notify::new(),
            warn_limiter: Mutex::default(),
        })
    }

    /// Logs a failed step that the executor retries.
    pub(crate) fn log_retry(&self, what: &'static str, partition: u32, error: &PartitionError) {
        let cause = error.source();
        if self.warn_limiter.lock().expect("no code panics while it holds this lock").allow(Instant::now()) {
            warn!(processor = %self.processor, partition, %error, cause, "{what} failed; trying again");
        } else {
            debug!(processor = %self.processor, partition, %error, cause, "{what} failed; trying again");
        }
    }

    pub(crate) fn add(&self, buffer: &Arc<PartitionBuffer>) {
        self.buffers
            .lock()
            .expect("no code panics while it holds this lock")
            .insert(buffer.lease.clone(), buffer.clone());
    }

    pub(crate) fn remove(&self, lease: &Lease) {
        self.buffers.lock().expect("no code panics while it holds this lock").remove(lease);
        self.idle_changed.notify_one();
    }

    pub(crate) fn buffer(&self, lease: &Lease) -> Option<Arc<PartitionBuffer>> {
        self.buffers.lock().expect("no code panics while it holds this lock").get(lease).cloned()
    }

    pub(crate) fn buffers(&self) -> Vec<Arc<PartitionBuffer>> {
        self.buffers.lock().expect("no code panics while it holds this lock").values().cloned().collect()
    }

    pub(crate) fn schedule_ack(&self, lease: Lease) {
        self.ack_queue.lock().expect("no code panics while it holds this lock").push(lease);
        self.ack_wanted.notify_one();
    }

    pub(crate) fn take_ack_queue(&self) -> Vec<Arc<PartitionBuffer>> {
        let leases = std::mem::take(&mut *self.ack_queue.lock().expect("no code panics while it holds this lock"));
        leases.iter().filter_map(|lease| self.buffer(lease)).collect()
    }
}

/// The time of the last warning.
#[derive(Default)]
struct WarnLimiter(Option<Instant>);

impl WarnLimiter {
    /// Whether a warning may be logged now. Rejects warnings within [`WARN_INTERVAL`] of the last
    /// one.
    fn allow(&mut self, now: Instant) -> bool {
        let allowed = self.0.is_none_or(|last| now.duration_since(last) >= WARN_INTERVAL);
        if allowed {
            self.0 = Some(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_warnings_are_limited_to_one_per_second() {
        let (mut limiter, begin) = (WarnLimiter::default(), Instant::now());
        let allowed = (0..64 * 30).filter(|nth| limiter.allow(begin + Duration::from_millis(nth * 5)));
        assert_eq!(allowed.count(), 10, "one per second, in 9.6 seconds");
    }
}

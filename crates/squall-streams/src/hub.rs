//! What the tasks of one executor share: its lanes, its settings, its counters, and the bells they ring for each other.
//! Refuses to own tasks; [`crate::executor`] does.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use squall_coord::Lease;
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::{lane::Lane, metrics::StreamMetrics, names::ProcessorName, partition::PartitionError, processor::Settings};

/// When the server is away, every partition fails, many times a second: one line in this time speaks for all.
const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(1);

pub(crate) struct Hub {
    pub(crate) name: ProcessorName,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<StreamMetrics>,
    /// By lease, not by partition: a lost lease may still wind down when the next one begins.
    lanes: Mutex<BTreeMap<Lease, Arc<Lane>>>,
    dirty: Mutex<Vec<Lease>>,
    /// A lane may want to be fetched.
    pub(crate) hungry: Notify,
    /// There is something to acknowledge.
    pub(crate) ackable: Notify,
    /// Which lanes wait for new events has changed.
    pub(crate) idle: Notify,
    complaints: Mutex<Complaints>,
}

impl Hub {
    pub(crate) fn new(name: ProcessorName, settings: Settings, metrics: Arc<StreamMetrics>) -> Arc<Self> {
        Arc::new(Self {
            name,
            settings,
            metrics,
            lanes: Mutex::default(),
            dirty: Mutex::default(),
            hungry: Notify::new(),
            ackable: Notify::new(),
            idle: Notify::new(),
            complaints: Mutex::default(),
        })
    }

    /// Tells of a step that failed and will be tried again.
    pub(crate) fn complain(&self, what: &'static str, partition: u32, error: &PartitionError) {
        let cause = error.source();
        if self.complaints.lock().expect("short and calm").speaks(Instant::now()) {
            warn!(processor = %self.name, partition, %error, cause, "{what} failed; trying again");
        } else {
            debug!(processor = %self.name, partition, %error, cause, "{what} failed; trying again");
        }
    }

    pub(crate) fn add(&self, lane: &Arc<Lane>) {
        self.lanes.lock().expect("short and calm").insert(lane.lease.clone(), lane.clone());
    }

    pub(crate) fn remove(&self, lease: &Lease) {
        self.lanes.lock().expect("short and calm").remove(lease);
        self.idle.notify_one();
    }

    pub(crate) fn lane(&self, lease: &Lease) -> Option<Arc<Lane>> {
        self.lanes.lock().expect("short and calm").get(lease).cloned()
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().expect("short and calm").values().cloned().collect()
    }

    pub(crate) fn list_dirty(&self, lease: Lease) {
        self.dirty.lock().expect("short and calm").push(lease);
        self.ackable.notify_one();
    }

    pub(crate) fn take_dirty(&self) -> Vec<Arc<Lane>> {
        let dirty = std::mem::take(&mut *self.dirty.lock().expect("short and calm"));
        dirty.iter().filter_map(|lease| self.lane(lease)).collect()
    }
}

/// When somebody complained last.
#[derive(Default)]
struct Complaints(Option<Instant>);

impl Complaints {
    /// Whether a complaint is heard now; those that follow soon are not.
    fn speaks(&mut self, now: Instant) -> bool {
        let speaks = self.0.is_none_or(|last| now.duration_since(last) >= BETWEEN_COMPLAINTS);
        if speaks {
            self.0 = Some(now);
        }
        speaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_complaint_a_second_speaks_for_all_partitions() {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let heard = (0..64 * 30).filter(|nth| complaints.speaks(begin + Duration::from_millis(nth * 5)));
        assert_eq!(heard.count(), 10, "of 9.6 seconds");
    }
}

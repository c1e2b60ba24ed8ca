//! What the tasks of one executor share: its lanes, its settings, its counters, and the bells they ring for each other.
//! Refuses to own tasks; [`crate::executor`] does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use squall_coord::Lease;
use tokio::sync::Notify;

use crate::{lane::Lane, metrics::StreamMetrics, names::ProcessorName, processor::Settings};

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
        })
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

//! The Redis keys of a run's record. The keys of the compat view are in [`crate::compat`].
//! It reads and writes nothing; [`super::RedisRunStore`] and tests use it.

use std::sync::Arc;

/// The keys of a run's record: `prefix` before every name, with a hash tag if the server is a
/// cluster.
#[derive(Clone, Debug)]
pub struct RunKeys {
    prefix: Arc<str>,
}

impl RunKeys {
    /// Keys that begin with `prefix`. An empty prefix gives vikhry's key names.
    pub fn new(prefix: impl Into<Arc<str>>) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// String: IDLE, PREPARING, RUNNING or STOPPING.
    pub fn state(&self) -> String {
        self.key("test:state")
    }

    /// String, a whole number: number of runs.
    pub fn epoch(&self) -> String {
        self.key("test:epoch")
    }

    /// String, a whole number: number of changes.
    pub fn revision(&self) -> String {
        self.key("test:revision")
    }

    /// String, JSON: the desired state of the run.
    pub fn spec(&self) -> String {
        self.key("test:order")
    }

    /// String: a scenario with all its files, by the hash of its content.
    pub fn bundle(&self, name: &str) -> String {
        self.key(&format!("bundle:{name}"))
    }

    /// Set: the workers that report.
    pub fn workers(&self) -> String {
        self.key("workers")
    }

    /// Hash: a worker's report.
    pub fn status(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:status"))
    }

    /// Channel: wake-ups for a worker.
    pub fn commands(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:commands"))
    }

    /// Stream, field `d`: the deltas of a run.
    pub fn deltas(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:deltas"))
    }

    /// Hash: source → number of its last delta.
    pub fn shipped(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:shipped"))
    }

    /// Hash: `place` (the position) and `made` (the data) of the checkpoint.
    pub fn checkpoint(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:saved"))
    }

    /// Hash: notes by name.
    pub fn notes(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:notes"))
    }

    /// Hash: counters, whose numbers are granted once each.
    pub fn counters(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:counters"))
    }
}

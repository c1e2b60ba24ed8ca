//! Counts of received requests, one shard for each serving thread so that counting is no contention. This is the oracle of the
//! accounting tests: a request is counted once, when its head has been read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Endpoint;

/// The counters of one thread, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters([AtomicU64; Endpoint::COUNTED]);

/// The counters of all threads.
#[derive(Debug)]
pub(crate) struct Stats {
    shards: Vec<Counters>,
}

impl Stats {
    pub(crate) fn new(threads: usize) -> Stats {
        Stats { shards: (0..threads).map(|_| Counters::default()).collect() }
    }

    pub(crate) fn count(&self, thread: usize, endpoint: Endpoint) {
        if endpoint != Endpoint::Stats {
            self.shards[thread].0[endpoint as usize].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn of(&self, endpoint: Endpoint) -> u64 {
        self.shards.iter().filter_map(|shard| shard.0.get(endpoint as usize)).map(|n| n.load(Relaxed)).sum()
    }

    pub(crate) fn total(&self) -> u64 {
        Endpoint::all().map(|(endpoint, _)| self.of(endpoint)).sum()
    }

    /// `{"total":n,"requests":{"/path":n,…}}`, every endpoint named.
    pub(crate) fn json(&self) -> String {
        let requests: serde_json::Map<_, _> =
            Endpoint::all().map(|(endpoint, path)| (path.to_owned(), self.of(endpoint).into())).collect();
        serde_json::json!({ "total": self.total(), "requests": requests }).to_string()
    }
}

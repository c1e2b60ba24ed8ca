//! Counts received requests, with one shard per serving thread to avoid contention. Accounting
//! tests compare reports with these counts: a request counts once, when its head has been read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::TargetEndpoint;

/// The counters of one thread, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct EndpointCounters([AtomicU64; TargetEndpoint::COUNTED]);

/// The counters of all threads.
#[derive(Debug)]
pub(crate) struct RequestStats {
    shards: Vec<EndpointCounters>,
}

impl RequestStats {
    pub(crate) fn new(threads: usize) -> RequestStats {
        RequestStats { shards: (0..threads).map(|_| EndpointCounters::default()).collect() }
    }

    pub(crate) fn count(&self, thread: usize, endpoint: TargetEndpoint) {
        if let Some(counter) = self.shards[thread].0.get(endpoint as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn count_of(&self, endpoint: TargetEndpoint) -> u64 {
        self.shards.iter().filter_map(|shard| shard.0.get(endpoint as usize)).map(|n| n.load(Relaxed)).sum()
    }

    pub(crate) fn total(&self) -> u64 {
        TargetEndpoint::all().map(|(endpoint, _)| self.count_of(endpoint)).sum()
    }

    /// Prometheus text, every endpoint named.
    pub(crate) fn prometheus(&self) -> String {
        let head = "# HELP squall_shop_requests_total Requests received.\n\
                    # TYPE squall_shop_requests_total counter\n";
        let line = |(endpoint, path)| {
            format!("squall_shop_requests_total{{endpoint=\"{path}\"}} {}\n", self.count_of(endpoint))
        };
        head.to_owned() + &TargetEndpoint::all().map(line).collect::<String>()
    }

    /// `{"total":n,"requests":{"/path":n,…}}`, every endpoint named.
    pub(crate) fn json(&self) -> String {
        let requests: serde_json::Map<_, _> =
            TargetEndpoint::all().map(|(endpoint, path)| (path.to_owned(), self.count_of(endpoint).into())).collect();
        serde_json::json!({ "total": self.total(), "requests": requests }).to_string()
    }
}

//! Sums a snapshot of the store by browser. The API and the metrics show it.

use std::collections::BTreeMap;

use serde::Serialize;
use squall_coord::SlotSnapshot;

/// The capacity of the workers of one browser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BrowserCapacity {
    pub(crate) browser: String,
    pub(crate) workers: u64,
    /// Slots of workers that take sessions.
    pub(crate) max_slots: u64,
    pub(crate) active_sessions: u64,
    pub(crate) available_slots: u64,
    pub(crate) queued: u64,
    /// How long the client that has waited longest waits; 0 if no client waits.
    pub(crate) queue_oldest_ms: u64,
}

/// One row per browser that has workers, sessions or waiting clients.
pub(crate) fn capacity(snapshot: &SlotSnapshot) -> Vec<BrowserCapacity> {
    let mut rows: BTreeMap<&str, BrowserCapacity> = BTreeMap::new();
    for worker in &snapshot.workers {
        let row = rows.entry(worker.worker.kind()).or_default();
        row.workers += 1;
        row.active_sessions += u64::from(worker.active);
        if !worker.draining && !worker.unreachable {
            row.max_slots += u64::from(worker.slots);
            row.available_slots += u64::from(worker.slots.saturating_sub(worker.active));
        }
    }
    for browser in &snapshot.waiting {
        rows.entry(browser).or_default().queued += 1;
    }
    for (browser, oldest) in &snapshot.queue_oldest_ms {
        rows.entry(browser).or_default().queue_oldest_ms = *oldest;
    }
    let named = rows.into_iter().map(|(browser, row)| BrowserCapacity { browser: browser.to_owned(), ..row });
    named.collect()
}

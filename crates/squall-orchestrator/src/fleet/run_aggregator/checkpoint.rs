//! The bytes of a checkpoint: the roster as JSON behind its length, then the saved collector. It
//! stores nothing; `RunAggregator` writes checkpoints and reads them back.

use squall_metrics::{Collector, RunView};

use crate::fleet::worker_roster::WorkerRoster;

pub(super) fn encode_checkpoint(roster: &WorkerRoster, collector: &Collector) -> Vec<u8> {
    let roster = serde_json::to_vec(roster).expect("a roster is text and numbers");
    let mut bytes = (roster.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&roster);
    bytes.extend_from_slice(&collector.save());
    bytes
}

/// Returns `None` if the bytes are not a checkpoint.
pub(super) fn decode_checkpoint(bytes: &[u8], window_s: u32) -> Option<(WorkerRoster, Collector)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (roster, collector) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((serde_json::from_slice(roster).ok()?, Collector::restore(collector, window_s).ok()?))
}

/// The view in a checkpoint, as if the run were over.
pub(super) fn final_view_of(bytes: &[u8], window_s: u32) -> Option<RunView> {
    let (roster, collector) = decode_checkpoint(bytes, window_s)?;
    let mut view = collector.finish();
    // The sum of the workers' peaks is too high: two workers count a user that moves within a
    // second.
    if roster.workers.len() > 1
        && let Some(most) = view.timeline.iter().map(|second| second.users).max().filter(|most| *most > 0)
    {
        view.engine.peak_users = most;
    }
    Some(view)
}

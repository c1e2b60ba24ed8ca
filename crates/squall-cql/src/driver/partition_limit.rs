//! Counts the partitions that a run may still use: `n=` counts partitions, and one operation may use
//! several. It ends nothing; a user that gets none asks for the end.

use std::sync::atomic::{AtomicU64, Ordering};

/// The partitions that are left, if the run has `n=`.
#[derive(Debug, Default)]
pub(super) struct PartitionLimit {
    left: Option<AtomicU64>,
}

impl PartitionLimit {
    pub(super) fn new(partitions: Option<u64>) -> PartitionLimit {
        PartitionLimit { left: partitions.map(AtomicU64::new) }
    }

    /// Takes up to `wanted` partitions; 0 when none is left.
    pub(super) fn take(&self, wanted: u64) -> u64 {
        let Some(left) = &self.left else { return wanted };
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)));
        taken.unwrap_or_default().min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operation_is_cut_to_what_is_left() {
        let limit = PartitionLimit::new(Some(10));
        assert_eq!([limit.take(4), limit.take(4), limit.take(4), limit.take(4)], [4, 4, 2, 0]);
        assert_eq!(PartitionLimit::new(None).take(7), 7);
    }
}

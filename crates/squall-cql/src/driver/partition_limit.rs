//! Counts the partitions that a run may still use: `n=` counts partitions, and one operation may use
//! several. It ends nothing; a user that gets none asks for the end.

use squall_engine::{NumberQuota, SharedCounter};
use std::sync::atomic::{AtomicU64, Ordering};

/// The partitions that are left.
#[derive(Debug)]
pub(super) enum PartitionLimit {
    /// The run has no `n=`.
    None,
    Process(AtomicU64),
    /// The workers of a fleet share them.
    Fleet(NumberQuota),
}

/// The name of the counter that the workers of a fleet share.
const FLEET_COUNTER: &str = "cql partitions";

impl PartitionLimit {
    pub(super) fn new(partitions: Option<u64>) -> PartitionLimit {
        partitions.map_or(PartitionLimit::None, |count| PartitionLimit::Process(AtomicU64::new(count)))
    }

    /// The limit of all workers of a fleet, and the counter that they share.
    pub(super) fn of_fleet(partitions: Option<u64>) -> (PartitionLimit, Option<SharedCounter>) {
        let Some(limit) = partitions else { return (PartitionLimit::None, None) };
        let (quota, refill) = NumberQuota::with_refill();
        (PartitionLimit::Fleet(quota), Some(SharedCounter { name: FLEET_COUNTER.to_owned(), limit, refill }))
    }

    /// Takes up to `wanted` partitions, as soon as the fleet grants them; 0 when none is left.
    pub(super) async fn take(&self, wanted: u64) -> u64 {
        let PartitionLimit::Fleet(quota) = self else { return self.take_now(wanted) };
        let mut taken = 0;
        while taken < wanted && quota.acquire().await.is_some() {
            taken += 1;
        }
        taken
    }

    /// As `take`, for the pages of a token range, which are not limited on a fleet.
    pub(super) fn take_now(&self, wanted: u64) -> u64 {
        let PartitionLimit::Process(left) = self else { return wanted };
        let rest = |left: u64| Some(left.saturating_sub(wanted));
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or_default().min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_operation_is_cut_to_what_is_left() {
        let limit = PartitionLimit::new(Some(10));
        let taken = [limit.take(4).await, limit.take(4).await, limit.take(4).await, limit.take(4).await];
        assert_eq!(taken, [4, 4, 2, 0]);
        assert_eq!(PartitionLimit::new(None).take(7).await, 7);
    }

    #[tokio::test]
    async fn workers_take_the_partitions_that_they_are_given() {
        let (limit, counter) = PartitionLimit::of_fleet(Some(10));
        let counter = counter.expect("a limit has a counter");
        assert_eq!(counter.limit, 10);
        counter.refill.add_block(2..5);
        counter.refill.close();
        assert_eq!([limit.take(2).await, limit.take(2).await, limit.take(2).await], [2, 1, 0]);
        assert!(PartitionLimit::of_fleet(None).1.is_none());
    }
}

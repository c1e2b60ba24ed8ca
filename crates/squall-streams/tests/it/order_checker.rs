//! Checks a log of processed events: every event, in order, by owners whose epochs never decrease.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use squall_streams::EntryId;

/// One event that a processor got, with the epoch of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvent {
    pub(crate) partition: u32,
    pub(crate) id: EntryId,
    pub(crate) epoch: u64,
}

/// The events that all workers process, in order of time.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<SeenEvent>>>);

impl EventLog {
    pub(crate) fn push(&self, seen: SeenEvent) {
        self.0.lock().unwrap().push(seen);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn all(&self) -> Vec<SeenEvent> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn distinct(&self) -> usize {
        let mut all: Vec<(u32, EntryId)> = self.all().iter().map(|seen| (seen.partition, seen.id)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

/// Checks that every event of `sent` was processed at least once, that new events of a partition
/// appear in order, that epochs never decrease, and that no owner got an event twice. Returns how
/// many events a later owner repeated.
#[track_caller]
pub(crate) fn check_at_least_once(seen: &[SeenEvent], sent: &[(u32, EntryId)]) -> usize {
    let mut by_partition: BTreeMap<u32, Vec<SeenEvent>> = BTreeMap::new();
    for event in seen {
        by_partition.entry(event.partition).or_default().push(*event);
    }
    let mut expected: BTreeMap<u32, Vec<EntryId>> = BTreeMap::new();
    for (partition, id) in sent {
        expected.entry(*partition).or_default().push(*id);
    }
    let mut repeated = 0;
    for (partition, ids) in &mut expected {
        ids.sort_unstable();
        let seen = by_partition.remove(partition).unwrap_or_default();
        let mut next = 0; // index of the first event not yet processed
        let mut owner: Option<(u64, EntryId)> = None;
        for event in &seen {
            if let Some((epoch, last)) = owner {
                assert!(event.epoch >= epoch, "partition {partition}: {event:?} after a newer owner at epoch {epoch}");
                if event.epoch == epoch {
                    assert!(event.id > last, "partition {partition}: {event:?} after {last} by the same owner");
                }
            }
            owner = Some((event.epoch, event.id));
            match ids.binary_search(&event.id) {
                Ok(at) if at == next => next += 1,
                Ok(at) if at < next => repeated += 1,
                Ok(_) => panic!("partition {partition}: {event:?} before {}", ids[next]),
                Err(_) => panic!("partition {partition}: {event:?} was never sent"),
            }
        }
        assert_eq!(next, ids.len(), "partition {partition}: {} of {} events processed", next, ids.len());
    }
    assert!(by_partition.is_empty(), "events of partitions without sent events: {by_partition:?}");
    repeated
}

/// As [`check_at_least_once`], and checks that no event was repeated.
#[track_caller]
pub(crate) fn check_exactly_once(seen: &[SeenEvent], sent: &[(u32, EntryId)]) {
    assert_eq!(check_at_least_once(seen, sent), 0, "some events were processed again");
}

mod tests {
    use super::*;

    fn id(seq: u64) -> EntryId {
        EntryId { ms: 1, seq }
    }

    fn seen(list: &[(u64, u64)]) -> Vec<SeenEvent> {
        list.iter().map(|(seq, epoch)| SeenEvent { partition: 0, id: id(*seq), epoch: *epoch }).collect()
    }

    const SENT: [u64; 3] = [1, 2, 3];

    fn check_epochs(list: &[(u64, u64)]) -> usize {
        check_at_least_once(&seen(list), &SENT.map(|seq| (0, id(seq))))
    }

    #[test]
    fn replay_by_the_next_owner_is_counted() {
        assert_eq!(check_epochs(&[(1, 5), (2, 5), (2, 6), (3, 6)]), 1);
    }

    #[test]
    #[should_panic(expected = "after a newer owner")]
    fn event_from_a_replaced_owner_panics() {
        check_epochs(&[(1, 5), (2, 6), (2, 5), (3, 6)]);
    }

    #[test]
    #[should_panic(expected = "before")]
    fn skipped_event_panics() {
        check_epochs(&[(1, 5), (3, 5), (2, 5)]);
    }

    #[test]
    #[should_panic(expected = "2 of 3")]
    fn missing_event_panics() {
        check_epochs(&[(1, 5), (2, 5)]);
    }
}

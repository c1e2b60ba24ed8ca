//! Shows in the store which users of a run this worker has started, under vikhry's key
//! `worker:<id>:active_users`. It starts no user and reads nothing; the worker calls it with every
//! report. A store that is away delays it.

use squall_coord::{CompatView, MAX_USERS_PER_MOVE, StoreError};
use squall_model::user_id;
use std::collections::{BTreeMap, BTreeSet};
use tracing::debug;

/// The users of one run that this worker shows.
#[derive(Debug)]
pub(crate) struct ActiveUsers {
    epoch: u64,
    /// Users that have started (`true`) or left, by number, and are not in the store yet.
    unwritten: BTreeMap<u64, bool>,
    /// The users that the store shows.
    shown: BTreeSet<u64>,
}

impl ActiveUsers {
    pub(crate) fn new(epoch: u64) -> ActiveUsers {
        ActiveUsers { epoch, unwritten: BTreeMap::new(), shown: BTreeSet::new() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn add_changes(&mut self, changes: BTreeMap<u64, bool>) {
        self.unwritten.extend(changes);
    }

    /// The load of this worker is over, so none of its users is active. The store takes the change
    /// only under the `epoch` of its record.
    pub(crate) fn end_all(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.unwritten = self.shown.iter().map(|number| (*number, false)).collect();
    }

    /// Whether the store shows every change.
    pub(crate) fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Writes the changes to the store. A failure leaves them for the next call.
    pub(crate) async fn write(&mut self, store: &impl CompatView, worker: &str) {
        if let Err(error) = self.try_write(store, worker).await {
            debug!(%error, "the worker could not show its active users; it tries again");
        }
    }

    async fn try_write(&mut self, store: &impl CompatView, worker: &str) -> Result<(), StoreError> {
        for started in [false, true] {
            let changed = self.unwritten.iter().filter(|(_, change)| **change == started);
            let numbers: Vec<u64> = changed.map(|(number, _)| *number).collect();
            for part in numbers.chunks(MAX_USERS_PER_MOVE) {
                let ids: Vec<u64> = part.iter().copied().map(user_id).collect();
                if !store.mark_active_users(self.epoch, worker, &ids, started).await? {
                    // Another run has begun: `end_all` removes what the store shows, under its epoch.
                    self.unwritten.clear();
                    return Ok(());
                }
                for number in part {
                    self.unwritten.remove(number);
                    match started {
                        true => self.shown.insert(*number),
                        false => self.shown.remove(number),
                    };
                }
            }
        }
        Ok(())
    }
}

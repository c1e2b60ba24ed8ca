//! The ids that vikhry's orchestrator gives to the users of one worker, and a driver that gives these
//! ids to the users' code. It starts no users. `VikhryRun` changes the ids, and `build_run` makes the
//! driver.

use squall_engine::{
    Driver, DriverError, DriverThread, RequestsPerIteration, ThreadDeadline, ThreadRecorder, UserIdentity, UserStart,
};
use std::sync::{Arc, PoisonError, RwLock};

/// Spreads ids over the bits of a seed; any large odd number does.
const SEED_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The id of the user in each slot. The engine numbers users from 0; the user with the number n is in
/// slot n. Clones share the ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserIds(Arc<RwLock<Vec<u64>>>);

impl UserIds {
    pub(crate) fn get(&self, slot: u64) -> Option<u64> {
        let ids = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ids.get(usize::try_from(slot).ok()?).copied()
    }

    /// Changes the ids.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<u64>) -> R) -> R {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ids count from 1 and are unique in the test; slots are unique only in this worker.
    fn identity(&self, of_slot: UserIdentity) -> UserIdentity {
        let Some(id) = self.get(of_slot.number) else { return of_slot };
        let number = id.saturating_sub(1);
        UserIdentity { number, seed: of_slot.seed ^ number.wrapping_mul(SEED_FACTOR) }
    }
}

/// A driver whose users have the ids of `ids`, if there are any.
pub(crate) struct IdentifyingDriver<D> {
    pub(crate) driver: D,
    pub(crate) ids: Option<UserIds>,
}

/// One engine thread's part of an [`IdentifyingDriver`].
pub(crate) struct IdentifyingThread<T> {
    thread: T,
    ids: Option<UserIds>,
}

impl<D: Driver> Driver for IdentifyingDriver<D> {
    type Thread = IdentifyingThread<D::Thread>;

    fn thread(&self, recorder: ThreadRecorder) -> Result<Self::Thread, DriverError> {
        Ok(IdentifyingThread { thread: self.driver.thread(recorder)?, ids: self.ids.clone() })
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        self.driver.requests_per_iteration()
    }

    fn user_start(&self) -> UserStart {
        self.driver.user_start()
    }

    fn run_thread<R>(
        &self,
        deadline: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        thread_main: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        self.driver.run_thread(deadline, runtime, thread_main)
    }
}

impl<T: DriverThread> DriverThread for IdentifyingThread<T> {
    type User = T::User;

    async fn connect(&mut self) -> Result<(), DriverError> {
        self.thread.connect().await
    }

    fn user(&self, identity: UserIdentity) -> T::User {
        self.thread.user(self.ids.as_ref().map_or(identity, |ids| ids.identity(identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_two_workers_differ_in_number_and_seed() {
        let identities = [[1, 3], [2, 4]].map(|ids| {
            let table = UserIds::default();
            table.change(|slots| slots.extend(ids));
            [0, 1].map(|number| table.identity(UserIdentity { number, seed: 7 + number }))
        });
        let mut numbers: Vec<u64> = identities.iter().flatten().map(|identity| identity.number).collect();
        let mut seeds: Vec<u64> = identities.iter().flatten().map(|identity| identity.seed).collect();
        numbers.sort_unstable();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!((numbers, seeds.len()), (vec![0, 1, 2, 3], 4));
    }
}

//! The shares that a worker holds, and their handover without lost or repeated starts: the worker
//! that gives a share up notes the time before which it made every start, and the next holder
//! continues from there. It acquires no share: the membership does.

use squall_coord::{Lease, LeaseEvent, RunStore, StoreError};
use squall_model::{
    Profile, ShareSet,
    protocol::{ResumePoints, RunNote, RunNotes, ShareNote},
};
use std::collections::{BTreeMap, BTreeSet};
use tracing::{debug, warn};

use crate::worker_run::WorkerRun;

/// The held shares, and what has changed since the engine last got them.
#[derive(Default)]
pub(crate) struct ShareLeases {
    leases: BTreeMap<u32, Lease>,
    /// Shares that the membership asked back. The next change of the assignment gives them up.
    draining: BTreeSet<u32>,
    /// Shares whose lease was lost without a handover. Their next holder, perhaps this worker, does
    /// not know how far they got.
    lost: ShareSet,
    /// The engine has to get its shares again.
    changed: bool,
}

impl ShareLeases {
    pub(crate) fn shares(&self) -> ShareSet {
        self.leases.keys().copied().collect()
    }

    /// Whether the engine has to get its shares again.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed
    }

    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Applies an event of the membership. Returns whether a share was lost.
    pub(crate) fn apply_event(&mut self, event: LeaseEvent) -> bool {
        let share = |lease: &Lease| lease.unit.as_str().parse::<u32>().ok();
        self.changed = true;
        match event {
            LeaseEvent::Granted(lease) => {
                if let Some(share) = share(&lease) {
                    self.leases.insert(share, lease);
                }
                false
            }
            LeaseEvent::Drain(lease) => {
                if let Some(share) = share(&lease).filter(|share| self.leases.get(share) == Some(&lease)) {
                    self.draining.insert(share);
                }
                false
            }
            LeaseEvent::Lost(lease) => {
                let Some(share) = share(&lease).filter(|share| self.leases.get(share) == Some(&lease)) else {
                    return false;
                };
                self.leases.remove(&share);
                self.draining.remove(&share);
                self.lost.insert(share);
                true
            }
        }
    }

    /// Hands the shares to the engine. Returns the leases that the membership asked back.
    pub(crate) async fn apply_changes<R: RunStore>(
        &mut self,
        worker_run: Option<&mut WorkerRun>,
        profile: Option<&Profile>,
        run_store: &R,
    ) -> Vec<Lease> {
        self.changed = false;
        let lost = std::mem::take(&mut self.lost);
        let draining = std::mem::take(&mut self.draining);
        let released = draining.iter().filter_map(|share| self.leases.remove(share)).collect();
        // Before the start no share has any start made, so there is nothing to hand over.
        if let Some(worker_run) = worker_run.filter(|worker_run| worker_run.is_started()) {
            let profile = profile.unwrap_or(worker_run.profile()).clone();
            if !lost.is_empty() {
                worker_run.assign_shares(
                    worker_run.shares().without(lost),
                    &worker_run.profile().clone(),
                    &BTreeMap::new(),
                );
            }
            self.reassign_shares(worker_run, profile, draining, run_store).await;
        }
        released
    }

    async fn reassign_shares<R: RunStore>(
        &mut self,
        worker_run: &mut WorkerRun,
        profile: Profile,
        draining: BTreeSet<u32>,
        run_store: &R,
    ) {
        let (mut shares, before) = (self.shares(), worker_run.shares());
        let gained = shares.without(before);
        let resume_points =
            match take_over_shares(run_store, worker_run.epoch, gained, worker_run.shares_ever_taken).await {
                Ok(Some(resume_points)) => {
                    worker_run.shares_ever_taken = worker_run.shares_ever_taken.iter().chain(gained.iter()).collect();
                    resume_points
                }
                failure => {
                    match failure {
                        Err(error) => debug!(%error, "the worker could not take shares over; it tries again"),
                        Ok(_) => {
                            warn!(
                                epoch = worker_run.epoch,
                                "the store lost the notes of this run; the worker takes no share over"
                            )
                        }
                    }
                    self.changed = true;
                    shares = shares.without(gained);
                    BTreeMap::new()
                }
            };
        if shares != before || profile != *worker_run.profile() {
            let at = worker_run.assign_shares(shares, &profile, &resume_points);
            let released = draining.into_iter().filter(|share| before.contains(u64::from(*share)));
            note_left_shares(run_store, worker_run.epoch, released, &at).await;
        }
    }
}

/// Notes how far this worker got with `shares`.
async fn note_left_shares<R: RunStore>(
    run_store: &R,
    epoch: u64,
    shares: impl Iterator<Item = u32>,
    at: &ResumePoints,
) {
    let notes: Vec<_> =
        shares.map(|share| RunNote::Share { share, note: ShareNote::Left(at.clone()) }.encode()).collect();
    if notes.is_empty() {
        return;
    }
    if let Err(error) = run_store.set_notes(epoch, &notes).await {
        // The next holder then continues at the time at which it gets them.
        debug!(%error, "the worker could not note how far its shares got");
    }
}

/// How far the last holders of `shares` got: the start of the run if no worker held the share, no
/// entry if the last holder did not note it. Marks the shares as taken, so that no other worker
/// repeats their starts if this one dies. `None` if the store lost the marks of `taken`, which this
/// worker made earlier: a missing mark then does not prove that no start was made.
async fn take_over_shares<R: RunStore>(
    run_store: &R,
    epoch: u64,
    shares: ShareSet,
    taken: ShareSet,
) -> Result<Option<BTreeMap<u32, ResumePoints>>, StoreError> {
    if shares.is_empty() {
        return Ok(Some(BTreeMap::new()));
    }
    let notes = RunNotes::from(run_store.notes(epoch).await?);
    if taken.iter().any(|share| notes.share(share).is_none()) {
        return Ok(None);
    }
    let resume_point = |share: u32| match notes.share(share) {
        None => Some((share, ResumePoints::RUN_START)),
        Some(ShareNote::Left(points)) => Some((share, points)),
        Some(ShareNote::Taken) => None,
    };
    let resume_points = shares.iter().filter_map(resume_point).collect();
    let taken: Vec<_> = shares.iter().map(|share| RunNote::Share { share, note: ShareNote::Taken }.encode()).collect();
    run_store.set_notes(epoch, &taken).await?;
    Ok(Some(resume_points))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::MemoryRunStore;

    /// Otherwise a worker would repeat every start since the start of the run after Redis came back
    /// empty.
    #[tokio::test]
    async fn shares_are_not_taken_over_from_a_store_that_lost_its_notes() {
        let (run_store, half) = (MemoryRunStore::new(), ShareSet::ALL.part(0, 2));
        let epoch = run_store
            .compare_and_set(&run_store.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .unwrap()
            .epoch;
        let first =
            take_over_shares(&run_store, epoch, half, ShareSet::NONE).await.unwrap().expect("no share is taken yet");
        assert!(first.len() == 128 && first.values().all(|points| *points == ResumePoints::RUN_START), "{first:?}");
        let rest = ShareSet::ALL.without(half);
        let more = take_over_shares(&run_store, epoch, rest, half)
            .await
            .unwrap()
            .expect("the store has the marks of the first half");
        assert_eq!(more.len(), 128);
        // The last holder did not note how far it got.
        assert_eq!(take_over_shares(&run_store, epoch, half, ShareSet::NONE).await.unwrap(), Some(BTreeMap::new()));
        let empty = MemoryRunStore::new();
        empty
            .compare_and_set(&empty.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .expect("another run");
        assert_eq!(take_over_shares(&empty, epoch, half, ShareSet::ALL).await.unwrap(), None);
    }
}

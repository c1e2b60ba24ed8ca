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
    /// Shares whose return the membership has requested. The next call of
    /// [`ShareLeases::pass_to_engine`] gives them up.
    return_requested: BTreeSet<u32>,
    /// Shares whose lease was lost without a handover. Their next holder, perhaps this worker, does
    /// not know how far they got.
    lost: ShareSet,
    /// The engine has to get its shares again.
    changed: bool,
    /// The engine gets every share, also those that this worker does not hold.
    holds_all: bool,
}

impl ShareLeases {
    pub(crate) fn shares(&self) -> ShareSet {
        self.leases.keys().copied().collect()
    }

    /// Whether the engine has to get its shares again.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed
    }

    /// Whether the engine gets every share.
    pub(crate) fn holds_all(&self) -> bool {
        self.holds_all
    }

    /// Gives the engine every share, also those that this worker does not hold: another program divides
    /// the users.
    pub(crate) fn set_holds_all(&mut self, holds_all: bool) {
        self.changed |= self.holds_all != holds_all;
        self.holds_all = holds_all;
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
            LeaseEvent::ReturnRequested(lease) => {
                if let Some(share) = share(&lease).filter(|share| self.leases.get(share) == Some(&lease)) {
                    self.return_requested.insert(share);
                }
                false
            }
            LeaseEvent::Lost(lease) => {
                let Some(share) = share(&lease).filter(|share| self.leases.get(share) == Some(&lease)) else {
                    return false;
                };
                self.leases.remove(&share);
                self.return_requested.remove(&share);
                self.lost.insert(share);
                true
            }
        }
    }

    /// Passes the shares to the engine. Returns the leases whose return was requested.
    pub(crate) async fn pass_to_engine<R: RunStore>(
        &mut self,
        worker_run: Option<&mut WorkerRun>,
        profile: Option<&Profile>,
        run_store: &R,
    ) -> Vec<Lease> {
        self.changed = false;
        let lost = std::mem::take(&mut self.lost);
        let return_requested = std::mem::take(&mut self.return_requested);
        let released = return_requested.iter().filter_map(|share| self.leases.remove(share)).collect();
        // Before the start no share has any start made, so there is nothing to hand over.
        if let Some(worker_run) = worker_run.filter(|worker_run| worker_run.is_started()) {
            let profile = profile.unwrap_or(worker_run.profile()).clone();
            if !lost.is_empty() {
                worker_run.set_shares(
                    worker_run.shares().without(lost),
                    &worker_run.profile().clone(),
                    &BTreeMap::new(),
                );
            }
            self.take_over_and_pass(worker_run, profile, return_requested, run_store).await;
        }
        released
    }

    async fn take_over_and_pass<R: RunStore>(
        &mut self,
        worker_run: &mut WorkerRun,
        profile: Profile,
        return_requested: BTreeSet<u32>,
        run_store: &R,
    ) {
        let held = if self.holds_all { ShareSet::ALL } else { self.shares() };
        let (mut shares, before) = (held, worker_run.shares());
        let gained = shares.without(before);
        let epoch = worker_run.epoch;
        let taken_over = match take_over_shares(run_store, epoch, gained, worker_run.shares_ever_taken).await {
            Ok(TakeOver::ResumeFrom(resume_points)) => Some(resume_points),
            Ok(TakeOver::NotesLost) => {
                warn!(epoch, "the store lost the notes of this run; the worker takes no share over");
                None
            }
            Err(error) => {
                debug!(%error, "the worker could not take shares over; it tries again");
                None
            }
        };
        if taken_over.is_some() {
            worker_run.shares_ever_taken = worker_run.shares_ever_taken.iter().chain(gained.iter()).collect();
        } else {
            self.changed = true;
            shares = shares.without(gained);
        }
        let resume_points = taken_over.unwrap_or_default();
        if shares != before || profile != *worker_run.profile() {
            let at = worker_run.set_shares(shares, &profile, &resume_points);
            let released = return_requested.into_iter().filter(|share| before.contains(u64::from(*share)));
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

/// The result of taking shares over.
#[derive(Debug, PartialEq, Eq)]
enum TakeOver {
    /// Where each share continues: at the start of the run if it has no note, at the noted time if
    /// its last holder gave it up. A share without an entry continues now, because its last holder
    /// noted only that it had taken it.
    ResumeFrom(BTreeMap<u32, ResumePoints>),
    /// The store has lost notes that this worker wrote earlier. A missing note then does not prove
    /// that no start was made.
    NotesLost,
}

/// Notes that this worker has taken `shares`, so that no other worker repeats their starts if this
/// one dies. `taken_earlier` are the shares for which it did so earlier in the run.
async fn take_over_shares<R: RunStore>(
    run_store: &R,
    epoch: u64,
    shares: ShareSet,
    taken_earlier: ShareSet,
) -> Result<TakeOver, StoreError> {
    if shares.is_empty() {
        return Ok(TakeOver::ResumeFrom(BTreeMap::new()));
    }
    let notes = RunNotes::from(run_store.notes(epoch).await?);
    if taken_earlier.iter().any(|share| notes.share(share).is_none()) {
        return Ok(TakeOver::NotesLost);
    }
    let resume_point = |share: u32| match notes.share(share) {
        None => Some((share, ResumePoints::RUN_START)),
        Some(ShareNote::Left(points)) => Some((share, points)),
        Some(ShareNote::Taken) => None,
    };
    let resume_points = shares.iter().filter_map(resume_point).collect();
    let taken_notes: Vec<_> =
        shares.iter().map(|share| RunNote::Share { share, note: ShareNote::Taken }.encode()).collect();
    run_store.set_notes(epoch, &taken_notes).await?;
    Ok(TakeOver::ResumeFrom(resume_points))
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
        let TakeOver::ResumeFrom(first) = take_over_shares(&run_store, epoch, half, ShareSet::NONE).await.unwrap()
        else {
            panic!("no share is taken yet");
        };
        assert!(first.len() == 128 && first.values().all(|points| *points == ResumePoints::RUN_START), "{first:?}");
        let rest = ShareSet::ALL.without(half);
        let TakeOver::ResumeFrom(more) = take_over_shares(&run_store, epoch, rest, half).await.unwrap() else {
            panic!("the store has the notes of the first half");
        };
        assert_eq!(more.len(), 128);
        // The last holder noted only that it had taken them.
        let again = take_over_shares(&run_store, epoch, half, ShareSet::NONE).await.unwrap();
        assert_eq!(again, TakeOver::ResumeFrom(BTreeMap::new()));
        let empty = MemoryRunStore::new();
        empty
            .compare_and_set(&empty.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .expect("another run");
        assert_eq!(take_over_shares(&empty, epoch, half, ShareSet::ALL).await.unwrap(), TakeOver::NotesLost);
    }
}

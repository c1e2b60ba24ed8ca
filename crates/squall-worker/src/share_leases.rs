//! The shares that a worker holds, and how they change hands so that no start is lost or made twice: whoever gives one up notes before when it
//! has started everything of it, whoever gets it goes on from there. Asks for no share: that is the seat's.

use squall_coord::{Lease, LeaseEvent, RunStore, StoreError};
use squall_model::{
    Profile, ShareSet,
    protocol::{ResumePoints, RunNote, RunNotes, ShareNote},
};
use std::collections::{BTreeMap, BTreeSet};
use tracing::{debug, warn};

use crate::worker_run::WorkerRun;

/// What is held, and what has changed since the engine was last told.
#[derive(Default)]
pub(crate) struct ShareLeases {
    leases: BTreeMap<u32, Lease>,
    /// Asked back, to be given up with the next change of duty.
    draining: BTreeSet<u32>,
    /// Lost without a word; whoever has them next, perhaps this worker, begins anew.
    lost: ShareSet,
    /// The duty must be looked at again.
    changed: bool,
}

impl ShareLeases {
    pub(crate) fn shares(&self) -> ShareSet {
        self.leases.keys().copied().collect()
    }

    /// Whether the engine has to be told something.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed
    }

    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Learns of a share; says whether one was lost.
    pub(crate) fn apply_notice(&mut self, notice: LeaseEvent) -> bool {
        let share = |lease: &Lease| lease.unit.as_str().parse::<u32>().ok();
        self.changed = true;
        match notice {
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

    /// Tells the engine what it holds now; gives the leases that were asked for and are not needed any more.
    pub(crate) async fn apply_changes<R: RunStore>(
        &mut self,
        job: Option<&mut WorkerRun>,
        profile: Option<&Profile>,
        run: &R,
    ) -> Vec<Lease> {
        self.changed = false;
        let lost = std::mem::take(&mut self.lost);
        let draining = std::mem::take(&mut self.draining);
        let back = draining.iter().filter_map(|share| self.leases.remove(share)).collect();
        // Before the start is known nothing has been begun, so there is nothing to take over or to leave.
        if let Some(job) = job.filter(|job| job.is_started()) {
            let profile = profile.unwrap_or(job.profile()).clone();
            if !lost.is_empty() {
                job.assign_shares(job.shares().without(lost), &job.profile().clone(), &BTreeMap::new());
            }
            self.reassign_shares(job, profile, draining, run).await;
        }
        back
    }

    async fn reassign_shares<R: RunStore>(
        &mut self,
        job: &mut WorkerRun,
        profile: Profile,
        draining: BTreeSet<u32>,
        run: &R,
    ) {
        let (mut shares, before) = (self.shares(), job.shares());
        let gained = shares.without(before);
        let left = match take_over_shares(run, job.epoch, gained, job.shares_ever_taken).await {
            Ok(Some(left)) => {
                job.shares_ever_taken = job.shares_ever_taken.iter().chain(gained.iter()).collect();
                left
            }
            refused => {
                match refused {
                    Err(error) => debug!(%error, "could not take shares over; it is tried again"),
                    Ok(_) => {
                        warn!(epoch = job.epoch, "the store has forgotten who had which share; none is taken over")
                    }
                }
                self.changed = true;
                shares = shares.without(gained);
                BTreeMap::new()
            }
        };
        if shares != before || profile != *job.profile() {
            let at = job.assign_shares(shares, &profile, &left);
            let given = draining.into_iter().filter(|share| before.contains(u64::from(*share)));
            note_left_shares(run, job.epoch, given, &at).await;
        }
    }
}

/// Says before when this worker has started everything of `shares`.
async fn note_left_shares<R: RunStore>(run: &R, epoch: u64, shares: impl Iterator<Item = u32>, at: &ResumePoints) {
    let notes: Vec<_> =
        shares.map(|share| RunNote::Share { share, note: ShareNote::Left(at.clone()) }.encode()).collect();
    if notes.is_empty() {
        return;
    }
    if let Err(error) = run.set_notes(epoch, &notes).await {
        // The next holder then goes on from when it gets them.
        debug!(%error, "could not say where shares were left");
    }
}

/// Where `shares` are to be taken up: where the last holder left them, at the beginning if nobody has begun them. Not named: somebody had
/// them and has not said. They are marked as taken: should this worker die, nobody must start the same again. `None` if the store does not
/// know of `taken`, which this worker has marked before: then nobody knows what was begun, and what looks like a beginning is none.
async fn take_over_shares<R: RunStore>(
    run: &R,
    epoch: u64,
    shares: ShareSet,
    taken: ShareSet,
) -> Result<Option<BTreeMap<u32, ResumePoints>>, StoreError> {
    if shares.is_empty() {
        return Ok(Some(BTreeMap::new()));
    }
    let notes = RunNotes::from(run.notes(epoch).await?);
    if taken.iter().any(|share| notes.share(share).is_none()) {
        return Ok(None);
    }
    let left = |share: u32| match notes.share(share) {
        None => Some((share, ResumePoints::RUN_START)),
        Some(ShareNote::Left(points)) => Some((share, points)),
        Some(ShareNote::Taken) => None,
    };
    let left = shares.iter().filter_map(left).collect();
    let taken: Vec<_> = shares.iter().map(|share| RunNote::Share { share, note: ShareNote::Taken }.encode()).collect();
    run.set_notes(epoch, &taken).await?;
    Ok(Some(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::MemoryRunStore;

    /// Found by a reader: after Redis had come back empty a worker began with everything since the start of the run, once more.
    #[tokio::test]
    async fn a_store_that_has_forgotten_the_run_is_no_beginning() {
        let (run, half) = (MemoryRunStore::new(), ShareSet::ALL.part(0, 2));
        let epoch =
            run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
        let begun = take_over_shares(&run, epoch, half, ShareSet::NONE).await.unwrap().expect("nobody has begun");
        assert!(begun.len() == 128 && begun.values().all(|places| *places == ResumePoints::RUN_START), "{begun:?}");
        let rest = ShareSet::ALL.without(half);
        let more = take_over_shares(&run, epoch, rest, half).await.unwrap().expect("the store knows of the first half");
        assert_eq!(more.len(), 128);
        // Whoever had them has not said how far it was.
        assert_eq!(take_over_shares(&run, epoch, half, ShareSet::NONE).await.unwrap(), Some(BTreeMap::new()));
        let empty = MemoryRunStore::new();
        empty
            .compare_and_set(&empty.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .expect("another run");
        assert_eq!(take_over_shares(&empty, epoch, half, ShareSet::ALL).await.unwrap(), None);
    }
}

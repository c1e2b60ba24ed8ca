//! A worker's place among those who make the load: a seat that runs beside the worker's loop. When it is taken and given up is the
//! worker's to say.

use squall_coord::{LeaseEvent, LeaseStore, Membership, MembershipConfig, MembershipConfigError, MembershipHandle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A seat that was taken.
pub(crate) struct MembershipTask {
    task: JoinHandle<()>,
    release_token: CancellationToken,
    leave_token: CancellationToken,
    pub(crate) handle: MembershipHandle,
}

impl MembershipTask {
    pub(crate) fn spawn<S: LeaseStore>(
        members: S,
        config: MembershipConfig,
    ) -> Result<MembershipTask, MembershipConfigError> {
        let (seat, handle) = Membership::new(members, config)?;
        let (retire, leave) = (CancellationToken::new(), CancellationToken::new());
        let sitting = tokio::spawn(seat.run_until(retire.clone(), leave.clone()));
        Ok(MembershipTask { task: sitting, release_token: retire, leave_token: leave, handle })
    }

    /// Gives the shares back, and keeps the place itself.
    pub(crate) fn release_shares(&self) {
        self.release_token.cancel();
    }

    /// Gives up the place, and with it what its users have borrowed.
    pub(crate) fn leave(&self) {
        self.release_shares();
        self.leave_token.cancel();
    }

    pub(crate) fn is_releasing_shares(&self) -> bool {
        self.release_token.is_cancelled()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// What the seat of a place has to say; never, if there is none, and `None` when it has ended.
    pub(crate) async fn next_notice(place: &mut Option<MembershipTask>) -> Option<LeaseEvent> {
        match place {
            Some(place) => place.handle.events.recv().await,
            None => std::future::pending().await,
        }
    }
}

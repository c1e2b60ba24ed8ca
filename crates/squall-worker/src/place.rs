//! A worker's place among those who make the load: a seat that runs beside the worker's loop. When it is taken and given up is the
//! worker's to say.

use squall_coord::{LeaseEvent, Membership, MembershipConfig, MembershipConfigError, MembershipHandle, LeaseStore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A seat that was taken.
pub(crate) struct Place {
    sitting: JoinHandle<()>,
    retire: CancellationToken,
    leave: CancellationToken,
    pub(crate) handle: MembershipHandle,
}

impl Place {
    pub(crate) fn take<S: LeaseStore>(members: S, config: MembershipConfig) -> Result<Place, MembershipConfigError> {
        let (seat, handle) = Membership::new(members, config)?;
        let (retire, leave) = (CancellationToken::new(), CancellationToken::new());
        let sitting = tokio::spawn(seat.run_until(retire.clone(), leave.clone()));
        Ok(Place { sitting, retire, leave, handle })
    }

    /// Gives the shares back, and keeps the place itself.
    pub(crate) fn retire(&self) {
        self.retire.cancel();
    }

    /// Gives up the place, and with it what its users have borrowed.
    pub(crate) fn leave(&self) {
        self.retire();
        self.leave.cancel();
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retire.is_cancelled()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.sitting.is_finished()
    }

    /// What the seat of a place has to say; never, if there is none, and `None` when it has ended.
    pub(crate) async fn next_notice(place: &mut Option<Place>) -> Option<LeaseEvent> {
        match place {
            Some(place) => place.handle.events.recv().await,
            None => std::future::pending().await,
        }
    }
}

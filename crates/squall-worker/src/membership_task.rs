//! A worker's membership among the workers that hold shares, in a task beside the worker's main
//! loop. It does not decide when to join or leave: the worker does, by `membership_policy`.

use squall_coord::{LeaseEvent, LeaseStore, Membership, MembershipConfig, MembershipConfigError, MembershipHandle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::membership_policy::MembershipState;

/// A running membership.
pub(crate) struct MembershipTask {
    task: JoinHandle<()>,
    release_token: CancellationToken,
    end_token: CancellationToken,
    pub(crate) handle: MembershipHandle,
}

impl MembershipTask {
    pub(crate) fn spawn<S: LeaseStore>(
        members: S,
        config: MembershipConfig,
    ) -> Result<MembershipTask, MembershipConfigError> {
        let (membership, handle) = Membership::new(members, config)?;
        let (release_token, end_token) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(membership.run_until(release_token.clone(), end_token.clone()));
        Ok(MembershipTask { task, release_token, end_token, handle })
    }

    /// Gives the shares back and stays a member.
    pub(crate) fn release_shares(&self) {
        self.release_token.cancel();
    }

    /// Gives the shares back and ends the membership. The users' leased resources may then be
    /// reassigned.
    pub(crate) fn end(&self) {
        self.release_shares();
        self.end_token.cancel();
    }

    pub(crate) fn state(&self) -> MembershipState {
        if self.is_finished() {
            MembershipState::Ended
        } else if self.release_token.is_cancelled() {
            MembershipState::Releasing
        } else {
            MembershipState::Joined
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The next event of the membership; `None` after its end. Never ready without a membership.
    pub(crate) async fn next_event(membership: &mut Option<MembershipTask>) -> Option<LeaseEvent> {
        match membership {
            Some(membership) => membership.handle.events.recv().await,
            None => std::future::pending().await,
        }
    }
}

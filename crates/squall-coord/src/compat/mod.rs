//! What a run shows to those who look into the store from outside: where users are, and the merged seconds. Views, written by the
//! leader and read by none of us: losing one loses nothing. A fleet within one process has no outside, so memory keeps none.

mod memory;
mod redis;

use std::{collections::BTreeMap, future::Future};

pub(crate) use self::redis::CompatScripts;
use crate::StoreError;

/// Most users of one [`UserMove`]: a script must not hold up the server.
pub const MAX_USERS_PER_MOVE: usize = 1000;

/// Where users are shown from now on. At most [`USERS_AT_ONCE`].
#[derive(Clone, Copy, Debug)]
pub struct UserMove<'a> {
    /// By their number in the run.
    pub users: &'a [u64],
    /// The worker where they were shown.
    pub from: Option<&'a str>,
    /// The worker where they are now; `None`: they have gone.
    pub to: Option<&'a str>,
    /// Whether they are at work, or only about to be.
    pub running: bool,
}

/// What seconds are shown of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKind {
    /// `metrics`, `metric:<id>`.
    Metric,
    /// `probes`, `probe:<name>`.
    Probe,
}

/// What a metric or a probe was like in one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondRow {
    /// Which of them.
    pub series: SeriesKind,
    /// Of the metric, or the probe's name.
    pub id: String,
    /// JSON.
    pub row: String,
}

/// The worker on which the view shows a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLocation {
    /// The worker's id.
    pub worker: String,
    /// Whether the user is running; otherwise it is pending.
    pub running: bool,
}

/// Shown users by their numbers. `None` means that only the user's number is left in the view.
pub type UserLocations = BTreeMap<u64, Option<UserLocation>>;

/// What is shown of a run. Every change says whether it was made: `false` if another run has begun.
pub trait CompatView: Send + Sync {
    /// Removes what an earlier run has left: its seconds and its timeline of users.
    fn clear_compat_view(&self, epoch: u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Where an earlier leader has shown users with numbers `below` a bound; it may have taken some of them down already.
    fn user_locations(&self, below: u64) -> impl Future<Output = Result<UserLocations, StoreError>> + Send;

    /// Shows users elsewhere than before.
    fn move_users(&self, epoch: u64, moved: UserMove<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Adds a point to the timeline of users; `source` says what made the number change.
    fn append_user_count(
        &self,
        epoch: u64,
        users: u64,
        source: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Adds the second that ended at `end_ms` to its metrics and probes, once.
    fn append_second(
        &self,
        epoch: u64,
        end_ms: u64,
        rows: &[SecondRow],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

//! The view of a run for programs that read Redis directly, in vikhry's layout: the worker of each
//! user, and the merged seconds.
//! The leader writes the view and Squall never reads it for a decision, so losing it loses nothing.
//! squall-orchestrator's RedisUserView and RedisMetricView call it.

mod memory;
mod redis;

use std::{collections::BTreeMap, future::Future};

pub(crate) use self::redis::CompatScripts;
use crate::StoreError;

/// Most users of one [`UserMove`], because a script blocks the server while it runs.
pub const MAX_USERS_PER_MOVE: usize = 1000;

/// Users whose location changes; at most [`MAX_USERS_PER_MOVE`].
#[derive(Clone, Copy, Debug)]
pub struct UserMove<'a> {
    /// The users' numbers in the run.
    pub users: &'a [u64],
    /// The worker that they leave.
    pub from: Option<&'a str>,
    /// The worker that they move to; `None` removes them from the view.
    pub to: Option<&'a str>,
    /// Whether they are running; otherwise they are pending.
    pub running: bool,
}

/// Kinds of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKind {
    /// `metrics`, `metric:<id>`.
    Metric,
    /// `probes`, `probe:<name>`.
    Probe,
}

/// The row of a metric or a probe for one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondRow {
    /// The kind of the series.
    pub series: SeriesKind,
    /// The metric's id or the probe's name.
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

/// The view of a run. Methods that return `bool` return `false`, and change nothing, if another run
/// has begun.
pub trait CompatView: Send + Sync {
    /// Removes the seconds and the user timeline of an earlier run.
    fn clear_compat_view(&self, epoch: u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The locations that an earlier leader has stored for users with numbers `below` a bound. That
    /// leader may have removed some of them.
    fn user_locations(&self, below: u64) -> impl Future<Output = Result<UserLocations, StoreError>> + Send;

    /// Changes the location of users.
    fn move_users(&self, epoch: u64, moved: UserMove<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Adds a point to the user timeline; `source` names the command that changed the number.
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

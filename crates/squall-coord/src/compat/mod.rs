//! The view of a run for programs that read Redis directly, in vikhry's layout: the worker of each
//! user, and the merged seconds.
//! The leader writes the view, and each worker its active users. Squall never reads it for a
//! decision, so losing it loses nothing. squall-orchestrator's RedisUserView and RedisMetricView and
//! squall-worker's ActiveUsers call it.

mod memory;
mod redis;

use std::{collections::BTreeMap, future::Future};

pub(crate) use self::redis::CompatScripts;
use crate::{ReportFields, StoreError};

/// Most users of one [`UserMove`], because a script blocks the server while it runs.
pub const MAX_USERS_PER_MOVE: usize = 1000;

/// Users whose location changes; at most [`MAX_USERS_PER_MOVE`].
#[derive(Clone, Copy, Debug)]
pub struct UserMove<'a> {
    /// The users' ids: whole numbers.
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

/// An entry of the stream of a metric or a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricEntry {
    /// The kind of the series.
    pub series: SeriesKind,
    /// The metric's id or the probe's name.
    pub metric: String,
    /// JSON.
    pub data: String,
}

/// The worker on which the view shows a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLocation {
    /// The worker's id.
    pub worker: String,
    /// Whether the user is running; otherwise it is pending.
    pub running: bool,
}

/// Shown users by their ids. `None` means that only the user's id is left in the view.
pub type UserLocations = BTreeMap<u64, Option<UserLocation>>;

/// The view of a run. Methods that return `bool` return `false`, and change nothing, if another run
/// has begun.
pub trait CompatView: Send + Sync {
    /// Removes the seconds and the user timeline of an earlier run.
    fn clear_compat_view(&self, epoch: u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The locations that an earlier leader has stored for users with ids `below` a bound. That
    /// leader may have removed some of them.
    fn user_locations(&self, below: u64) -> impl Future<Output = Result<UserLocations, StoreError>> + Send;

    /// Changes the location of users.
    fn move_users(&self, epoch: u64, moved: UserMove<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Marks users, at most [`MAX_USERS_PER_MOVE`], as started or as ended by a worker.
    fn mark_active_users(
        &self,
        epoch: u64,
        worker: &str,
        users: &[u64],
        started: bool,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Adds a point to the user timeline; `source` names the command that changed the number.
    fn append_user_count(
        &self,
        epoch: u64,
        users: u64,
        source: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// How many users a worker shows as active.
    fn active_user_count(&self, worker: &str) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Adds fields to the report of a worker that does not write them itself: a vikhry worker.
    fn extend_report(&self, worker: &str, fields: &ReportFields)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Entries of the metric streams after the given positions, which are by metric id, and moves the
    /// positions. vikhry's workers add one entry per request.
    fn metric_entries(
        &self,
        positions: &mut BTreeMap<String, String>,
        start: &str,
    ) -> impl Future<Output = Result<Vec<MetricEntry>, StoreError>> + Send;

    /// Adds entries to the streams of metrics and probes, as vikhry's workers do.
    fn append_metric_entries(&self, entries: &[MetricEntry]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds the second that ended at `end_ms` to its metrics and probes, once.
    fn append_second(
        &self,
        epoch: u64,
        end_ms: u64,
        rows: &[SecondRow],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

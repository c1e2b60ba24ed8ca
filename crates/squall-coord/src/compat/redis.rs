//! The compat view in Redis: sets, hashes and streams under vikhry's key names. It computes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use redis::{AsyncCommands, Script};

use super::{
    CompatView, MAX_USERS_PER_MOVE, MetricEntry, SecondRow, SeriesKind, UserLocation, UserLocations, UserMove,
};
use crate::{RedisRunStore, ReportFields, RunKeys, StoreError, redis::millis, run::RUN_RETENTION};

/// Seconds kept per metric: the length of the shortest chart. The store must not grow with the
/// length of a run; the leader's checkpoint and the API have the whole run.
const MAX_SECONDS_PER_METRIC: u32 = 300;
/// Points kept in the user timeline.
const MAX_TIMELINE_POINTS: u32 = 10_000;
/// Entries that a worker keeps in a metric's stream for vikhry's orchestrator, which reads 300 a second.
const MAX_FOREIGN_ENTRIES: u32 = 100_000;
/// Entries of one metric read at once; a reply must arrive within the timeout of any other command.
const MAX_ENTRIES_PER_READ: usize = 1000;
/// Metrics written by one script.
const METRICS_PER_SCRIPT: usize = 500;

pub(crate) struct CompatScripts {
    move_users: Script,
    mark_active_users: Script,
    append_user_count: Script,
    append_second: Script,
    extend_report: Script,
    clear_compat_view: Script,
}

impl CompatScripts {
    pub(crate) fn new() -> Self {
        Self {
            move_users: Script::new(include_str!("scripts/move_users.lua")),
            mark_active_users: Script::new(include_str!("scripts/mark_active_users.lua")),
            append_user_count: Script::new(include_str!("scripts/append_user_count.lua")),
            extend_report: Script::new(include_str!("scripts/extend_report.lua")),
            append_second: Script::new(include_str!("scripts/append_second.lua")),
            clear_compat_view: Script::new(include_str!("scripts/clear_compat_view.lua")),
        }
    }
}

impl RunKeys {
    /// Set: the ids of all users.
    pub fn users(&self) -> String {
        self.key("users")
    }

    /// Hash: `worker_id`, `status`, `updated_at`.
    pub fn user(&self, user: u64) -> String {
        self.key(&format!("user:{user}"))
    }

    /// Set: the users of a worker.
    pub fn users_of(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:users"))
    }

    /// Set: the running users of a worker.
    pub fn active_users_of(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:active_users"))
    }

    /// Stream: `epoch`, `users_count`, `source`.
    pub fn users_timeline(&self) -> String {
        self.key("users:timeline")
    }

    /// Set: the ids of all metrics, or the names of all probes.
    pub fn series_ids(&self, series: SeriesKind) -> String {
        self.key(match series {
            SeriesKind::Metric => "metrics",
            SeriesKind::Probe => "probes",
        })
    }

    /// Stream, field `data`: the seconds of a metric or a probe, as JSON.
    pub fn series_stream(&self, series: SeriesKind, id: &str) -> String {
        let kind = match series {
            SeriesKind::Metric => "metric",
            SeriesKind::Probe => "probe",
        };
        self.key(&format!("{kind}:{id}"))
    }
}

impl RedisRunStore {
    /// Reads the user ids below a bound. It stops early if the set is much larger than the
    /// bound, because then it holds foreign members.
    async fn user_numbers(&self, below: u64) -> Result<Vec<u64>, StoreError> {
        let (mut numbers, mut cursor, mut seen) = (BTreeSet::new(), 0u64, 0u64);
        loop {
            let mut scan = redis::cmd("SSCAN");
            scan.arg(self.keys().users()).arg(cursor).arg("COUNT").arg(MAX_USERS_PER_MOVE);
            let (next, ids): (u64, Vec<Vec<u8>>) =
                self.check_reply(scan.query_async(&mut self.connection()).await).await?;
            seen += ids.len() as u64;
            let number = |id: Vec<u8>| str::from_utf8(&id).ok()?.parse::<u64>().ok().filter(|number| *number < below);
            numbers.extend(ids.into_iter().filter_map(number));
            if next == 0 || seen > below.saturating_mul(2) {
                return Ok(numbers.into_iter().collect());
            }
            cursor = next;
        }
    }
}

impl CompatView for RedisRunStore {
    async fn clear_compat_view(&self, epoch: u64) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut removed = vec![keys.users_timeline()];
        for series in [SeriesKind::Metric, SeriesKind::Probe] {
            let ids: Vec<String> = self.check_reply(self.connection().smembers(keys.series_ids(series)).await).await?;
            removed.extend(ids.iter().map(|id| keys.series_stream(series, id)));
            removed.push(keys.series_ids(series));
        }
        for part in removed.chunks(METRICS_PER_SCRIPT) {
            let mut call = self.compat_scripts().clear_compat_view.prepare_invoke();
            call.key(keys.epoch()).arg(epoch);
            for key in part {
                call.key(key);
            }
            self.invoke::<bool>(&call).await?;
        }
        Ok(())
    }

    async fn user_locations(&self, below: u64) -> Result<UserLocations, StoreError> {
        let keys = self.keys();
        let mut locations = UserLocations::new();
        for part in self.user_numbers(below).await?.chunks(MAX_USERS_PER_MOVE) {
            let mut pipeline = redis::pipe();
            for user in part {
                pipeline.cmd("HMGET").arg(keys.user(*user)).arg("worker_id").arg("status");
            }
            let rows: Vec<(Option<String>, Option<String>)> =
                self.check_reply(pipeline.query_async(&mut self.connection()).await).await?;
            let location = |(worker, status): (Option<String>, Option<String>)| {
                worker.map(|worker| UserLocation { worker, running: status.as_deref() == Some("running") })
            };
            locations.extend(part.iter().copied().zip(rows.into_iter().map(location)));
        }
        Ok(locations)
    }

    async fn move_users(&self, epoch: u64, user_move: UserMove<'_>) -> Result<bool, StoreError> {
        let UserMove { users, from, to, running } = user_move;
        let keys = self.keys();
        // Without a worker, the set of all users stands in: the script removes them from it and, if
        // they stay, adds them again.
        let sets = |worker: Option<&str>| match worker {
            Some(id) => [keys.users_of(id), keys.active_users_of(id)],
            None => [keys.users(), keys.users()],
        };
        let mut call = self.compat_scripts().move_users.prepare_invoke();
        call.key(keys.epoch()).key(keys.users());
        for set in sets(from).into_iter().chain(sets(to)) {
            call.key(set);
        }
        call.arg(epoch)
            .arg(to.unwrap_or(""))
            .arg(if running { "running" } else { "pending" })
            .arg(millis(RUN_RETENTION));
        for user in users {
            call.key(keys.user(*user)).arg(*user);
        }
        self.invoke(&call).await
    }

    async fn mark_active_users(
        &self,
        epoch: u64,
        worker: &str,
        users: &[u64],
        started: bool,
    ) -> Result<bool, StoreError> {
        let mut call = self.compat_scripts().mark_active_users.prepare_invoke();
        call.key(self.keys().epoch()).key(self.keys().active_users_of(worker));
        call.arg(epoch).arg(millis(RUN_RETENTION)).arg(if started { "SADD" } else { "SREM" }).arg(users);
        self.invoke(&call).await
    }

    async fn append_user_count(&self, epoch: u64, users: u64, source: &str) -> Result<bool, StoreError> {
        let mut call = self.compat_scripts().append_user_count.prepare_invoke();
        call.key(self.keys().epoch()).key(self.keys().users_timeline());
        call.arg(epoch).arg(users).arg(source).arg(MAX_TIMELINE_POINTS).arg(millis(RUN_RETENTION));
        self.invoke(&call).await
    }

    async fn active_user_count(&self, worker: &str) -> Result<u64, StoreError> {
        self.check_reply(self.connection().scard(self.keys().active_users_of(worker)).await).await
    }

    async fn extend_report(&self, worker: &str, fields: &ReportFields) -> Result<(), StoreError> {
        let mut call = self.compat_scripts().extend_report.prepare_invoke();
        call.key(self.keys().status(worker));
        for (field, value) in fields {
            call.arg(field).arg(value);
        }
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn metric_entries(
        &self,
        positions: &mut BTreeMap<String, String>,
        start: &str,
    ) -> Result<Vec<MetricEntry>, StoreError> {
        let keys = self.keys();
        let ids: Vec<String> =
            self.check_reply(self.connection().smembers(keys.series_ids(SeriesKind::Metric)).await).await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for id in &ids {
            let position = positions.get(id).map_or(start, String::as_str);
            let stream = keys.series_stream(SeriesKind::Metric, id);
            pipeline
                .cmd("XRANGE")
                .arg(stream)
                .arg(format!("({position}"))
                .arg("+")
                .arg("COUNT")
                .arg(MAX_ENTRIES_PER_READ);
        }
        let read: Vec<Vec<(String, BTreeMap<String, String>)>> =
            self.check_reply(pipeline.query_async(&mut self.connection()).await).await?;
        let mut entries = Vec::new();
        for (metric, of_metric) in ids.into_iter().zip(read) {
            for (position, mut fields) in of_metric {
                positions.insert(metric.clone(), position);
                let data = fields.remove("data").unwrap_or_default();
                entries.push(MetricEntry { series: SeriesKind::Metric, metric: metric.clone(), data });
            }
        }
        Ok(entries)
    }

    async fn append_metric_entries(&self, entries: &[MetricEntry]) -> Result<(), StoreError> {
        let keys = self.keys();
        // All entries or none, so that the caller can repeat a call that the server refused.
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for entry in entries {
            let stream = keys.series_stream(entry.series, &entry.metric);
            pipeline.sadd(keys.series_ids(entry.series), &entry.metric).ignore();
            pipeline.cmd("XADD").arg(stream).arg("MAXLEN").arg("~").arg(MAX_FOREIGN_ENTRIES).arg("*");
            pipeline.arg("data").arg(&entry.data).ignore();
        }
        self.check_reply(pipeline.query_async(&mut self.connection()).await).await
    }

    async fn append_second(&self, epoch: u64, end_ms: u64, rows: &[SecondRow]) -> Result<bool, StoreError> {
        let keys = self.keys();
        let mut current_run = true;
        let parts = rows.chunk_by(|a, b| a.series == b.series).flat_map(|same| same.chunks(METRICS_PER_SCRIPT));
        for part in parts {
            let series = part[0].series;
            let mut call = self.compat_scripts().append_second.prepare_invoke();
            call.key(keys.epoch()).key(keys.series_ids(series));
            call.arg(epoch).arg(end_ms).arg(MAX_SECONDS_PER_METRIC).arg(millis(RUN_RETENTION));
            for row in part {
                call.key(keys.series_stream(series, &row.id)).arg(&row.id).arg(&row.row);
            }
            current_run &= self.invoke::<bool>(&call).await?;
        }
        Ok(current_run)
    }
}

//! A worker as its own report shows it. Reads what is there and forgives what is not: a report may be of another version.

use serde::{Serialize, Serializer};
use squall_coord::ReportFields;
use squall_model::{
    SHARE_COUNT, ShareSet,
    protocol::{WorkerHealth, WorkerReport, format_instance},
};

/// What is known of a worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WorkerInfo {
    pub id: String,
    /// Which life of it; decides whose deltas are whose. Shown as everywhere: 16 hexadecimal digits.
    #[serde(serialize_with = "as_hex")]
    pub instance: u64,
    /// `healthy` or `unhealthy`.
    pub status: String,
    /// Unix time by the store's clock.
    pub last_heartbeat: f64,
    pub cpu_percent: f64,
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub max_rss_bytes: u64,
    pub memory_percent: f64,
    pub total_ram_bytes: u64,
    /// Shares of the load that it holds, of 256.
    pub shares: u32,
    /// Which ones.
    #[serde(skip)]
    pub held: ShareSet,
    /// The revision of the record that it has read.
    pub revision: u64,
    /// The run for which its users are built.
    pub ready: u64,
    /// The run of which it has shipped everything.
    pub done: u64,
    /// The run that it could not carry out, and why.
    pub failed: u64,
    pub message: String,
    /// Deltas that wait to be shipped.
    pub waiting: u64,
    pub sent: u64,
    pub threads: u32,
    pub stale_commands: u64,
    pub bad_commands: u64,
}

fn as_hex<S: Serializer>(instance: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format_instance(*instance))
}

/// Those of `expected` whose users are not built for the run `epoch`, for people; who reports no more is gone.
pub(super) fn unready_workers(expected: &[String], workers: &[WorkerInfo], epoch: u64) -> Vec<String> {
    let name = |id: &String| match workers.iter().find(|worker| worker.id == *id) {
        Some(worker) => (worker.ready != epoch).then(|| id.clone()),
        None => Some(format!("{id} (gone)")),
    };
    expected.iter().filter_map(name).collect()
}

/// Who holds each share. Two may say that they hold one that has just moved: the later word counts.
pub fn share_holders(workers: &[WorkerInfo]) -> Vec<Option<&WorkerInfo>> {
    let mut holders: Vec<Option<&WorkerInfo>> = vec![None; SHARE_COUNT as usize];
    for worker in workers {
        for share in worker.held.iter() {
            let holder = &mut holders[share as usize];
            if holder.is_none_or(|other| other.last_heartbeat < worker.last_heartbeat) {
                *holder = Some(worker);
            }
        }
    }
    holders
}

impl WorkerInfo {
    pub fn parse(id: &str, fields: &ReportFields) -> WorkerInfo {
        let report = WorkerReport::decode(fields);
        let (failed, message) = report.failed_run.map(|failed| (failed.epoch, failed.message)).unwrap_or_default();
        WorkerInfo {
            id: id.to_owned(),
            instance: report.instance,
            status: report.health.name().to_owned(),
            last_heartbeat: WorkerReport::last_heartbeat(fields),
            cpu_percent: report.cpu_percent,
            cpu_s: report.cpu_s,
            rss_bytes: report.rss_bytes,
            max_rss_bytes: report.max_rss_bytes,
            memory_percent: report.memory_percent,
            total_ram_bytes: report.total_ram_bytes,
            shares: report.share_count,
            held: report.held,
            revision: report.revision,
            ready: report.ready,
            done: report.done,
            failed,
            message,
            waiting: report.waiting,
            sent: report.sent,
            threads: report.threads,
            stale_commands: report.stale_commands,
            bad_commands: report.bad_commands,
        }
    }

    pub fn is_healthy(&self) -> bool {
        self.status == WorkerHealth::Healthy.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a number most readers of JSON would round it.
    #[test]
    fn an_instance_is_shown_as_it_is_written_everywhere() {
        let report: ReportFields = [("instance".to_owned(), "fedcba9876543210".to_owned())].into();
        let worker = WorkerInfo::parse("w", &report);
        assert_eq!(worker.instance, 0xfedc_ba98_7654_3210);
        assert_eq!(serde_json::to_value(&worker).expect("it is plain")["instance"], "fedcba9876543210");
    }
}

//! A worker as its own report describes it. Missing and unreadable fields get default values,
//! because another version of Squall may have written the report. The leader, the API and the CLI
//! read it.

use serde::{Serialize, Serializer};
use squall_coord::ReportFields;
use squall_model::{
    SHARE_COUNT, ShareSet,
    protocol::{ProtocolVersion, WorkerHealth, WorkerReport, format_instance},
};

/// A vikhry worker counts as dead when its last heartbeat is older than this, as in vikhry. Its report
/// does not expire.
const VIKHRY_HEARTBEAT_TIMEOUT_S: f64 = 15.0;

/// The program that a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkerKind {
    #[default]
    Squall,
    /// It takes commands, holds no shares itself, and reports neither progress nor deltas. The leader
    /// does this for it.
    Vikhry,
}

/// The content of a worker's report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WorkerInfo {
    pub id: String,
    #[serde(skip)]
    pub kind: WorkerKind,
    #[serde(skip)]
    pub protocol: ProtocolVersion,
    /// Unique to one process of the worker; deltas carry it. Serialized as 16 hexadecimal digits.
    #[serde(serialize_with = "as_hex")]
    pub instance: u64,
    /// `healthy` or `unhealthy`.
    pub status: String,
    /// When the store received the report, as Unix time by the store's clock.
    #[serde(rename = "last_heartbeat")]
    pub last_report_at: f64,
    pub cpu_percent: f64,
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub max_rss_bytes: u64,
    pub memory_percent: f64,
    pub total_ram_bytes: u64,
    /// Number of shares that the worker holds, of 256.
    pub shares: u32,
    /// The shares that the worker holds.
    #[serde(skip)]
    pub held: ShareSet,
    /// The revision of the record that the worker has read.
    pub revision: u64,
    /// The run for which the worker has built its users.
    pub ready: u64,
    /// The run of which the worker has shipped everything.
    pub done: u64,
    /// The run that the worker has given up: it could not build its users, or ended its part early.
    #[serde(rename = "failed")]
    pub given_up_run: u64,
    /// Why it has. Of a vikhry worker also what the leader has noticed about it.
    pub message: String,
    /// Deltas that the worker has not shipped yet.
    pub waiting: u64,
    pub sent: u64,
    pub threads: u32,
    pub stale_commands: u64,
    pub bad_commands: u64,
    /// Whether one command may name several users.
    #[serde(skip)]
    pub takes_user_ids: bool,
}

fn as_hex<S: Serializer>(instance: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format_instance(*instance))
}

/// The names of the `expected` workers that have not built their users for the run `epoch`, for
/// messages. A worker that no longer reports is marked.
pub(super) fn unready_workers(expected: &[String], workers: &[WorkerInfo], epoch: u64) -> Vec<String> {
    let name = |id: &String| match workers.iter().find(|worker| worker.id == *id) {
        Some(worker) => (worker.ready != epoch).then(|| id.clone()),
        None => Some(format!("{id} (no longer reports)")),
    };
    expected.iter().filter_map(name).collect()
}

/// The holder of each share. Two workers may report a share that has just moved: the later report
/// counts.
pub fn share_holders(workers: &[WorkerInfo]) -> Vec<Option<&WorkerInfo>> {
    let mut holders: Vec<Option<&WorkerInfo>> = vec![None; SHARE_COUNT as usize];
    for worker in workers {
        for share in worker.held.iter() {
            let holder = &mut holders[share as usize];
            if holder.is_none_or(|other| other.last_report_at < worker.last_report_at) {
                *holder = Some(worker);
            }
        }
    }
    holders
}

/// The number that stands for the instance of a vikhry worker, whose reports have none. A restarted
/// worker has the same.
fn vikhry_instance(id: &str) -> u64 {
    // FNV-1a: the same in every process of the fleet, and never 0 in practice.
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl WorkerInfo {
    pub fn parse(id: &str, fields: &ReportFields) -> WorkerInfo {
        let report = WorkerReport::decode(fields);
        let given_up_run = report.given_up_run.as_ref().map_or(0, |given_up| given_up.epoch);
        // Only a vikhry worker reports a heartbeat and no instance.
        let is_vikhry = !fields.contains_key("instance") && fields.contains_key("last_heartbeat");
        let message = match report.given_up_run {
            Some(given_up) => given_up.message,
            None => fields.get("message").filter(|_| is_vikhry).cloned().unwrap_or_default(),
        };
        WorkerInfo {
            id: id.to_owned(),
            kind: if is_vikhry { WorkerKind::Vikhry } else { WorkerKind::Squall },
            protocol: report.protocol,
            instance: if is_vikhry { vikhry_instance(id) } else { report.instance },
            status: report.health.name().to_owned(),
            last_report_at: WorkerReport::last_report_at(fields),
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
            given_up_run,
            message,
            waiting: report.waiting,
            sent: report.sent,
            threads: report.threads,
            stale_commands: report.stale_commands,
            bad_commands: report.bad_commands,
            takes_user_ids: report.takes_user_ids,
        }
    }

    /// The same worker, unhealthy if it is a vikhry worker whose last heartbeat is too old at the Unix
    /// time `now_s`.
    pub(super) fn checked_at(mut self, now_s: f64) -> WorkerInfo {
        if self.kind == WorkerKind::Vikhry && now_s - self.last_report_at > VIKHRY_HEARTBEAT_TIMEOUT_S {
            self.status = WorkerHealth::Unhealthy.name().to_owned();
            // The leader added its shares to the report and cannot remove them from all of them.
            (self.held, self.shares) = (ShareSet::NONE, 0);
        }
        self
    }

    /// Whether the worker takes part in the fleet. The report of a dead Squall worker expires; that of a
    /// dead vikhry worker stays.
    pub(super) fn is_present(&self) -> bool {
        self.kind == WorkerKind::Squall || self.is_healthy()
    }

    /// Whether the fleet can reach the worker and it is not leaving; see [`WorkerHealth`].
    pub fn is_healthy(&self) -> bool {
        self.status == WorkerHealth::Healthy.name()
    }

    /// Whether the worker can make load in the run `epoch`, now or once it has built its users.
    pub fn can_carry_out(&self, epoch: u64) -> bool {
        self.is_healthy() && self.given_up_run != epoch && self.protocol.is_current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most readers of JSON would round it as a number.
    #[test]
    fn instance_is_serialized_as_hexadecimal_text() {
        let report: ReportFields = [("instance".to_owned(), "fedcba9876543210".to_owned())].into();
        let worker = WorkerInfo::parse("w", &report);
        assert_eq!(worker.instance, 0xfedc_ba98_7654_3210);
        assert_eq!(serde_json::to_value(&worker).expect("a serializable worker")["instance"], "fedcba9876543210");
    }

    #[test]
    fn vikhry_worker_is_recognized_and_unhealthy_without_heartbeats() {
        let fields = [("status", "healthy"), ("last_heartbeat", "1773180000"), ("cpu_percent", "1.5")];
        let report: ReportFields = fields.map(|(field, text)| (field.to_owned(), text.to_owned())).into();
        let worker = |now_s| WorkerInfo::parse("v", &report).checked_at(now_s);
        assert_eq!((worker(1_773_180_015.0).kind, worker(1_773_180_015.0).is_healthy()), (WorkerKind::Vikhry, true));
        assert!(!worker(1_773_180_016.0).is_healthy() && !worker(1_773_180_016.0).is_present());
        assert_ne!(worker(0.0).instance, WorkerInfo::parse("w", &report).instance);
        assert_eq!(WorkerInfo::parse("w", &ReportFields::new()).kind, WorkerKind::Squall, "an unreadable report");
    }

    #[test]
    fn unready_workers_include_those_that_no_longer_report() {
        let worker = |id: &str, ready| WorkerInfo { id: id.to_owned(), ready, ..WorkerInfo::default() };
        let workers = [worker("w1", 7), worker("w2", 6)];
        let names = |expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|id| (*id).to_owned()).collect();
            unready_workers(&expected, &workers, 7)
        };
        assert!(names(&["w1"]).is_empty());
        assert_eq!(names(&["w1", "w2", "w3"]), ["w2", "w3 (no longer reports)"]);
    }
}

//! The worker report: the state that a worker writes about once a second. The store keeps it as one
//! text per field and adds the time: `reported_at_ms`, and `last_heartbeat` in whole seconds, as
//! vikhry reads it.

use super::{ProtocolVersion, format_instance, parse_instance};
use crate::ShareSet;
use std::{collections::BTreeMap, str::FromStr};

/// Most characters of a failure message that travel.
const MAX_MESSAGE_CHARS: usize = 2000;

/// The value of the field `commands` of a worker that takes several users per command.
const USER_IDS: &str = "user_ids";

/// The state of one worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerReport {
    pub protocol: ProtocolVersion,
    pub health: WorkerHealth,
    /// The instance of the worker that reports.
    pub instance: u64,
    /// CPU time since the previous report, in percent of one core.
    pub cpu_percent: f64,
    /// CPU time of the process.
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub max_rss_bytes: u64,
    /// Resident memory in percent of the machine's.
    pub memory_percent: f64,
    pub total_ram_bytes: u64,
    /// The revision of the run record that the worker has read.
    pub revision: u64,
    /// The epoch of the run whose users are built; 0 if none.
    pub ready: u64,
    /// The epoch of the run of which the worker has shipped everything; 0 if none.
    pub done: u64,
    /// How many shares the worker holds.
    pub share_count: u32,
    /// The shares that the worker holds.
    pub held: ShareSet,
    /// Deltas that the store has not acknowledged.
    pub waiting: u64,
    /// Requests sent in this run.
    pub sent: u64,
    /// Engine threads of this run.
    pub threads: u32,
    pub stale_commands: u64,
    pub bad_commands: u64,
    /// Whether one command may name several users. vikhry's workers do not say so and refuse such
    /// commands.
    pub takes_user_ids: bool,
    /// The run that the worker has given up.
    pub given_up_run: Option<GivenUpRun>,
}

/// Whether the fleet can reach a worker and the worker is not leaving. A healthy worker may still
/// have given up the run; see [`WorkerReport::given_up_run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkerHealth {
    Healthy,
    /// Also the reading of every text but `healthy`.
    #[default]
    Unhealthy,
}

/// A run that a worker has given up: it could not build its users, or it ended its part early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUpRun {
    pub epoch: u64,
    /// The reason, for people.
    pub message: String,
}

impl WorkerHealth {
    pub fn name(self) -> &'static str {
        match self {
            WorkerHealth::Healthy => "healthy",
            WorkerHealth::Unhealthy => "unhealthy",
        }
    }

    fn from_name(name: &str) -> WorkerHealth {
        if name == WorkerHealth::Healthy.name() { WorkerHealth::Healthy } else { WorkerHealth::Unhealthy }
    }
}

impl WorkerReport {
    /// The fields as the store keeps them. `failed` and `message` are there only after a failure.
    pub fn encode(&self) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        let mut add = |field: &str, text: String| fields.insert(field.to_owned(), text);
        add("protocol", self.protocol.to_string());
        add("status", self.health.name().to_owned());
        add("cpu_percent", format!("{:.1}", self.cpu_percent));
        add("cpu_s", format!("{:.3}", self.cpu_s));
        add("rss_bytes", self.rss_bytes.to_string());
        add("max_rss_bytes", self.max_rss_bytes.to_string());
        add("memory_percent", format!("{:.2}", self.memory_percent));
        add("total_ram_bytes", self.total_ram_bytes.to_string());
        add("instance", format_instance(self.instance));
        add("revision", self.revision.to_string());
        add("ready", self.ready.to_string());
        add("done", self.done.to_string());
        add("shares", self.share_count.to_string());
        add("held", self.held.to_hex());
        add("waiting", self.waiting.to_string());
        add("sent", self.sent.to_string());
        add("threads", self.threads.to_string());
        add("stale_commands", self.stale_commands.to_string());
        add("bad_commands", self.bad_commands.to_string());
        if self.takes_user_ids {
            add("commands", USER_IDS.to_owned());
        }
        if let Some(failed) = &self.given_up_run {
            add("failed", failed.epoch.to_string());
            add("message", failed.message.chars().take(MAX_MESSAGE_CHARS).collect());
        }
        fields
    }

    /// Reads what [`WorkerReport::encode`] wrote. A missing or malformed field is zero or empty,
    /// because the worker may be of another release. Readers of a report of another protocol version
    /// rely only on its instance and its version.
    pub fn decode(fields: &BTreeMap<String, String>) -> WorkerReport {
        let text = |field: &str| fields.get(field).map_or("", String::as_str);
        let given_up_run = Some(number(fields, "failed")).filter(|epoch| *epoch != 0);
        let protocol = fields.get("protocol").map(|text| text.parse().unwrap_or(ProtocolVersion::UNREADABLE));
        WorkerReport {
            protocol: protocol.unwrap_or_else(ProtocolVersion::unnamed),
            health: WorkerHealth::from_name(text("status")),
            instance: parse_instance(text("instance")).unwrap_or(0),
            cpu_percent: number(fields, "cpu_percent"),
            cpu_s: number(fields, "cpu_s"),
            rss_bytes: number(fields, "rss_bytes"),
            max_rss_bytes: number(fields, "max_rss_bytes"),
            memory_percent: number(fields, "memory_percent"),
            total_ram_bytes: number(fields, "total_ram_bytes"),
            revision: number(fields, "revision"),
            ready: number(fields, "ready"),
            done: number(fields, "done"),
            share_count: number(fields, "shares"),
            held: ShareSet::from_hex(text("held")).unwrap_or_default(),
            waiting: number(fields, "waiting"),
            sent: number(fields, "sent"),
            threads: number(fields, "threads"),
            stale_commands: number(fields, "stale_commands"),
            bad_commands: number(fields, "bad_commands"),
            takes_user_ids: text("commands") == USER_IDS,
            given_up_run: given_up_run.map(|epoch| GivenUpRun { epoch, message: text("message").to_owned() }),
        }
    }

    /// When the store received the report, in seconds since 1970 by the store's clock. A report of a
    /// vikhry worker has only whole seconds by that worker's clock.
    pub fn last_report_at(fields: &BTreeMap<String, String>) -> f64 {
        match number::<u64>(fields, "reported_at_ms") {
            0 => number(fields, "last_heartbeat"),
            millis => millis as f64 / 1e3,
        }
    }
}

fn number<T: FromStr + Default>(fields: &BTreeMap<String, String>, field: &str) -> T {
    fields.get(field).and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> WorkerReport {
        let held: ShareSet = [0, 9].into_iter().collect();
        WorkerReport {
            protocol: ProtocolVersion::CURRENT,
            health: WorkerHealth::Healthy,
            instance: 0xfe,
            cpu_percent: 12.5,
            cpu_s: 1.5,
            rss_bytes: 3,
            max_rss_bytes: 4,
            memory_percent: 0.25,
            total_ram_bytes: 5,
            revision: 6,
            ready: 7,
            done: 8,
            share_count: 2,
            held,
            waiting: 9,
            sent: 10,
            threads: 11,
            stale_commands: 12,
            bad_commands: 13,
            takes_user_ids: true,
            given_up_run: Some(GivenUpRun { epoch: 14, message: "no file".to_owned() }),
        }
    }

    #[test]
    fn report_has_golden_fields_and_decodes_back() {
        let fields = report().encode();
        let held = format!("held={}", report().held.to_hex());
        let golden = [
            "bad_commands=13",
            "commands=user_ids",
            "cpu_percent=12.5",
            "cpu_s=1.500",
            "done=8",
            "failed=14",
            &held,
            "instance=00000000000000fe",
            "max_rss_bytes=4",
            "memory_percent=0.25",
            "message=no file",
            "protocol=1",
            "ready=7",
            "revision=6",
            "rss_bytes=3",
            "sent=10",
            "shares=2",
            "stale_commands=12",
            "status=healthy",
            "threads=11",
            "total_ram_bytes=5",
            "waiting=9",
        ];
        let written: Vec<String> = fields.iter().map(|(field, text)| format!("{field}={text}")).collect();
        assert_eq!(written, golden);
        assert_eq!(WorkerReport::decode(&fields), report());
    }

    #[test]
    fn report_without_failure_has_no_failure_fields() {
        let fields = WorkerReport { given_up_run: None, ..report() }.encode();
        assert!(!fields.contains_key("failed") && !fields.contains_key("message"));
        assert_eq!(WorkerReport::decode(&fields).given_up_run, None);
    }

    #[test]
    fn report_that_names_no_protocol_has_version_1_and_a_malformed_one_is_not_current() {
        let protocol = |text: Option<&str>| {
            let field = text.map(|text| ("protocol".to_owned(), text.to_owned()));
            WorkerReport::decode(&field.into_iter().collect()).protocol
        };
        assert_eq!([protocol(None), protocol(Some("1")), protocol(Some("2"))].map(|p| p.to_string()), ["1", "1", "2"]);
        assert!(!protocol(Some("two")).is_current());
    }

    #[test]
    fn long_failure_message_is_cut() {
        let given_up_run = Some(GivenUpRun { epoch: 1, message: "ä".repeat(MAX_MESSAGE_CHARS + 1) });
        let fields = WorkerReport { given_up_run, ..report() }.encode();
        assert_eq!(fields["message"].chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn missing_and_malformed_fields_are_zero() {
        let fields = [("status", "fine"), ("ready", "x"), ("held", "?"), ("instance", "-"), ("other", "1")];
        let fields = fields.map(|(field, text)| (field.to_owned(), text.to_owned())).into();
        assert_eq!(WorkerReport::decode(&fields), WorkerReport::default());
        assert_eq!(WorkerReport::last_report_at(&fields), 0.0);
    }
}

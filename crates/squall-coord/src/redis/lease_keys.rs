//! The keys of one space in Redis. Refuses to invent names: whoever owns the space gives them.

use std::sync::Arc;

use crate::MemberId;

/// Where a space lives. All keys must share a hash slot when the server is a cluster.
#[derive(Clone, Debug)]
pub struct LeaseKeys {
    /// String, JSON: `{member: {"joined_at": ms, "entry": n, "leaving": true?, <units_word>: [unit, …]}}`.
    pub members: Arc<str>,
    /// Sorted set: member → deadline in ms.
    pub live: Arc<str>,
    /// Hash: `revision`, `epoch`, `assigned`, and `unit:<unit>` → `<epoch> <member>`.
    pub leases: Arc<str>,
    /// Stream: one entry per revision, the last 256 or so.
    pub control: Arc<str>,
    /// String that exists while an administrator has closed the space.
    pub admin: Arc<str>,
    /// Start of the key that lives as long as a member does; the member's name follows.
    pub heartbeat_prefix: Arc<str>,
    /// What units are called in the members record.
    pub units_field: &'static str,
}

impl LeaseKeys {
    /// Keys that begin with `prefix` and a colon; what a fleet uses.
    pub fn with_prefix(prefix: &str) -> Self {
        let key = |part: &str| format!("{prefix}:{part}").into();
        Self {
            members: key("members"),
            live: key("live"),
            leases: key("held"),
            control: key("control"),
            admin: key("admin"),
            heartbeat_prefix: key("beat:"),
            units_field: "units",
        }
    }

    /// The key that lives as long as the member does.
    pub fn heartbeat_key(&self, member: &MemberId) -> String {
        format!("{}{member}", self.heartbeat_prefix)
    }

    pub(super) fn expected_types(&self) -> [(&str, &'static str); 5] {
        [
            (&self.members, "string"),
            (&self.live, "zset"),
            (&self.leases, "hash"),
            (&self.control, "stream"),
            (&self.admin, "string"),
        ]
    }
}

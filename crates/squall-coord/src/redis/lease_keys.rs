//! The Redis keys of a lease store.
//! It does not choose names: the owner of the store passes a prefix or its own keys
//! (squall-streams).

use std::sync::Arc;

use crate::MemberId;

/// The keys of a lease store. On a cluster all keys must share a hash slot.
#[derive(Clone, Debug)]
pub struct LeaseKeys {
    /// String, JSON: `{member: {"joined_at": ms, "entry": n, "leaving": true?, <units_field>:
    /// [unit, …]}}`.
    pub members: Arc<str>,
    /// Sorted set: member → deadline in ms.
    pub live: Arc<str>,
    /// Hash: `revision`, `epoch`, `assigned`, `of_runnel` while the record lists a member of runnel,
    /// and `unit:<unit>` → `<epoch> <member>`.
    pub leases: Arc<str>,
    /// Stream: one entry per revision; about the last 256.
    pub control: Arc<str>,
    /// String that exists while an administrator has paused grants.
    pub admin: Arc<str>,
    /// Prefix of the key that expires with a member; the member's name follows.
    pub heartbeat_prefix: Arc<str>,
    /// The field of the units in the members record.
    pub units_field: &'static str,
}

impl LeaseKeys {
    /// Keys that begin with `prefix` and a colon, as fleets use them.
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

    /// The key that expires with the member.
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

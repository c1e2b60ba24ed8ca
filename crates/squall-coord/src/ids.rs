//! Ids of the stores: members, units, epochs and revisions.
//! This module does not interpret them; only their order and equality matter. Every module of the
//! crate uses them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A new unique id: 32 random hexadecimal digits.
pub fn unique_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// One running instance that may hold leases. A restarted process is a new member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberId(String);

impl MemberId {
    /// A member with the given name. Two live instances must not share a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// A member with a new unique name.
    pub fn unique() -> Self {
        Self(unique_id())
    }

    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One unit, which at most one member may hold: a partition, a share of the load, the leader role.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitId(String);

impl UnitId {
    /// A unit by its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u32> for UnitId {
    fn from(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fencing number of one grant. Every grant of a store gets a higher epoch than all earlier
/// grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseEpoch(pub u64);

/// The number of a run in its fleet, by which pools recognize requests of an ended run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunEpoch(pub u64);

impl fmt::Display for RunEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LeaseEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the changes that members may have to react to: joins, leaves, expiries, assignments,
/// releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

//! The version of the fleet protocol, which every [`WorkerReport`](super::WorkerReport) and
//! [`RunSpec`](crate::RunSpec) names. It decides nothing: the worker and the leader compare versions.

use serde::{Deserialize, Serialize};
use std::{fmt, num::ParseIntError, str::FromStr};

/// A version of the fleet protocol. The default is the version that this build speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProtocolVersion(u32);

impl ProtocolVersion {
    /// The version that this build speaks. It grows when an old message gets a new meaning or a
    /// reader must know a new one.
    pub const CURRENT: ProtocolVersion = ProtocolVersion(1);

    /// The version of a message that names none.
    pub(crate) const fn unnamed() -> ProtocolVersion {
        ProtocolVersion(1)
    }

    /// The version in a message whose version cannot be read. No build speaks it.
    pub(crate) const UNREADABLE: ProtocolVersion = ProtocolVersion(0);

    pub fn is_current(self) -> bool {
        self == ProtocolVersion::CURRENT
    }
}

impl Default for ProtocolVersion {
    fn default() -> ProtocolVersion {
        ProtocolVersion::CURRENT
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for ProtocolVersion {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ProtocolVersion, ParseIntError> {
        text.parse().map(ProtocolVersion)
    }
}

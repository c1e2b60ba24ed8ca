//! The settings of a member and their validation. [`super::Membership::new`] checks them.

use std::time::Duration;

use crate::{MemberId, UnitId};

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Its name.
    pub member: MemberId,
    /// All units, the same for every member.
    pub units: Vec<UnitId>,
    /// Time between heartbeats. Default 1 s.
    pub heartbeat_interval: Duration,
    /// Time until the member expires without a heartbeat; at least three heartbeat intervals.
    /// Default 3.5 s.
    pub ttl: Duration,
    /// How long a new member waits for others to join before units move to it. Default 250 ms.
    pub join_delay: Duration,
}

/// Invalid timings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MembershipConfigError {
    /// One late heartbeat would end the membership.
    #[error("the time to live {ttl:?} is less than three heartbeat intervals of {heartbeat_interval:?}")]
    TtlTooShort {
        /// Time between heartbeats.
        heartbeat_interval: Duration,
        /// Time until the member expires.
        ttl: Duration,
    },
    /// The heartbeat interval is zero.
    #[error("the heartbeat interval must not be zero")]
    ZeroHeartbeatInterval,
}

impl MembershipConfig {
    /// A member with default timings.
    pub fn new(member: MemberId, units: Vec<UnitId>) -> Self {
        Self {
            member,
            units,
            heartbeat_interval: Duration::from_secs(1),
            ttl: Duration::from_millis(3500),
            join_delay: Duration::from_millis(250),
        }
    }

    pub(super) fn check(&self) -> Result<(), MembershipConfigError> {
        match (self.heartbeat_interval, self.ttl) {
            (Duration::ZERO, _) => Err(MembershipConfigError::ZeroHeartbeatInterval),
            (interval, ttl) if ttl < interval * 3 => {
                Err(MembershipConfigError::TtlTooShort { heartbeat_interval: interval, ttl })
            }
            _ => Ok(()),
        }
    }
}

//! The settings of an engine that do not change what a plan asks of the target. The command line
//! fills them, the bundle carries them to the workers, and the engine obeys them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::duration::bounded;

/// How an engine carries out a plan on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineLimits {
    /// Engine threads. Default: `None`, one per core that the process may use.
    pub threads: Option<usize>,
    /// The most users that an open model may create in the whole run, at least one per thread. Default:
    /// 10,000. At the limit, starts wait for a free user and count as late.
    pub max_users: usize,
    /// Users of an open model that start at once, also if they are not needed yet. Default: none, or
    /// with an `on_start` as the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_users: Option<usize>,
    /// How long users may finish their iterations when the load is over. Default: 10 s. Then the engine
    /// aborts them.
    #[serde(deserialize_with = "bounded")]
    pub grace: Duration,
    /// The least time between two wake-ups of a thread's scheduler. Default: 600 µs. A start may be
    /// this late when starts are dense.
    #[serde(deserialize_with = "bounded")]
    pub slack: Duration,
    /// A start counts as late when it begins this long after its intended time. Default: 10 ms.
    #[serde(deserialize_with = "bounded")]
    pub late_after: Duration,
    /// Whether the engine records the phases of each request (DNS, connect, TLS, first byte, body).
    /// Default: no.
    pub phases: bool,
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits {
            threads: None,
            max_users: 10_000,
            start_users: None,
            grace: Duration::from_secs(10),
            slack: Duration::from_micros(600),
            late_after: Duration::from_millis(10),
            phases: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_have_the_golden_json() {
        let json = r#"{"threads":null,"max_users":10000,"grace":{"secs":10,"nanos":0},"slack":{"secs":0,"nanos":600000},"late_after":{"secs":0,"nanos":10000000},"phases":false}"#;
        assert_eq!(serde_json::to_string(&EngineLimits::default()).unwrap(), json);
        assert_eq!(serde_json::from_str::<EngineLimits>(json).unwrap(), EngineLimits::default());
    }
}

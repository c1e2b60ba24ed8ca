//! The send budget that a worker announces before it uses it. Workers ship it in the delta stream,
//! so its order among their deltas is known; orchestrators derive from it how many requests a lost
//! worker may have sent.

use serde::{Deserialize, Serialize};

/// How many requests one instance of a worker may have sent until its next announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendBudgetReport {
    pub instance: u64,
    /// Requests since the run started.
    pub most: u64,
    /// Most requests of one iteration. `None` if the driver does not know it, or after a redirect.
    pub each: Option<u64>,
}

impl SendBudgetReport {
    /// JSON. Its first byte is `{`, with which no delta starts.
    pub fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("numbers always encode")
    }

    /// `None` if `bytes` hold anything else, such as a delta.
    pub fn decode(bytes: &[u8]) -> Option<SendBudgetReport> {
        bytes.starts_with(b"{").then(|| serde_json::from_slice(bytes).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_budget_has_golden_bytes_and_decodes_back() {
        for (each, bytes) in [
            (None, br#"{"instance":18446744073709551615,"most":7,"each":null}"#.as_slice()),
            (Some(3), br#"{"instance":18446744073709551615,"most":7,"each":3}"#),
        ] {
            let report = SendBudgetReport { instance: u64::MAX, most: 7, each };
            assert_eq!(report.encode(), bytes);
            assert_eq!(SendBudgetReport::decode(bytes), Some(report));
        }
    }

    #[test]
    fn other_bytes_are_not_a_send_budget() {
        for other in [&b""[..], b"\x01abc", b"{", b"{}", br#"{"instance":1,"most":-1,"each":null}"#] {
            assert_eq!(SendBudgetReport::decode(other), None);
        }
    }
}

//! What a member of a fleet says before it sends: how much it may have sent until it says more. Shipped among its deltas.

use serde::{Deserialize, Serialize};

/// How much one life of a worker may have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendBudgetReport {
    pub instance: u64,
    /// Requests in all, from its beginning on.
    pub most: u64,
    /// Requests of one iteration at most, where that is known and none has led to others.
    pub each: Option<u64>,
}

impl SendBudgetReport {
    /// As it is shipped; a delta's bytes never begin like this.
    pub fn to_bytes(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("it is numbers only")
    }

    /// `None` if these are the bytes of something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<SendBudgetReport> {
        bytes.starts_with(b"{").then(|| serde_json::from_slice(bytes).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_from_a_delta_by_its_first_byte() {
        for each in [None, Some(3)] {
            let said = SendBudgetReport { instance: u64::MAX, most: 7, each };
            assert_eq!(SendBudgetReport::from_bytes(&said.to_bytes()), Some(said));
        }
        for other in [&b""[..], b"\x01abc", b"{", b"{}", br#"{"instance":1,"most":-1,"each":null}"#] {
            assert_eq!(SendBudgetReport::from_bytes(other), None);
        }
    }
}

//! Names of the sources of stream entries. One life of a worker has several, because each source
//! numbers its own entries.

use super::{format_instance, parse_instance};
use std::{fmt, str::FromStr};

/// Who ships an entry or draws numbers from a shared counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceName {
    /// Ships deltas and draws numbers: `<instance>.<thread>`. A worker merges its threads and uses
    /// thread 0.
    Thread { instance: u64, thread: u32 },
    /// Ships send budgets: `<instance>.announced`.
    SendBudget { instance: u64 },
}

/// The text names no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a source name: expected <16 hex digits>.<thread> or <16 hex digits>.announced")]
pub struct ParseSourceNameError(String);

impl SourceName {
    pub fn instance(self) -> u64 {
        match self {
            SourceName::Thread { instance, .. } | SourceName::SendBudget { instance } => instance,
        }
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceName::Thread { instance, thread } => write!(f, "{}.{thread}", format_instance(*instance)),
            SourceName::SendBudget { instance } => write!(f, "{}.announced", format_instance(*instance)),
        }
    }
}

impl FromStr for SourceName {
    type Err = ParseSourceNameError;

    fn from_str(text: &str) -> Result<SourceName, ParseSourceNameError> {
        let parse = || {
            let (instance, kind) = text.split_once('.')?;
            let instance = parse_instance(instance)?;
            match kind {
                "announced" => Some(SourceName::SendBudget { instance }),
                thread => Some(SourceName::Thread { instance, thread: thread.parse().ok()? }),
            }
        };
        parse().ok_or_else(|| ParseSourceNameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_names_have_golden_texts_and_parse_back() {
        for (name, text) in [
            (SourceName::Thread { instance: 0xab, thread: 3 }, "00000000000000ab.3"),
            (SourceName::SendBudget { instance: u64::MAX }, "ffffffffffffffff.announced"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
    }

    #[test]
    fn malformed_source_name_is_refused() {
        for text in ["", "7", "x.0", "7.", "7.said"] {
            assert!(text.parse::<SourceName>().is_err(), "{text}");
        }
    }
}

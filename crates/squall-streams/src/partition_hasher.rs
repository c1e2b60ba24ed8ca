//! Chooses the partition of a key. Refuses to depend on what is installed: the hasher is part of a stream's definition.

use std::fmt;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::python_repr::python_repr;

/// How keys become partitions. Both hash the key's Python `repr`, as the seed's system does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PartitionHasher {
    /// The default: fast and well spread.
    #[default]
    Xxh64,
    /// What the seed's system uses where no xxhash package is installed.
    Md5,
}

impl PartitionHasher {
    /// The partition of `key` among `count`.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn partition(self, key: &Value, count: u32) -> u32 {
        self.partition_of_repr(&python_repr(key), count)
    }

    /// The partition of a key whose `repr` is known.
    pub(crate) fn partition_of_repr(self, text: &str, count: u32) -> u32 {
        let partition = match self {
            Self::Xxh64 => xxhash_rust::xxh64::xxh64(text.as_bytes(), 0) % u64::from(count),
            Self::Md5 => {
                let number = u128::from_be_bytes(Md5::digest(text.as_bytes()).into());
                (number % u128::from(count)) as u64
            }
        };
        u32::try_from(partition).expect("less than count")
    }
}

impl fmt::Display for PartitionHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xxh64 => "xxh64",
            Self::Md5 => "md5",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Computed with CPython: `int(hashlib.md5(repr(key).encode()).hexdigest(), 16) % n` and
    /// `xxhash.xxh64(repr(key).encode()).intdigest() % n`.
    #[test]
    fn partition_of_key_equals_runnel() {
        let cases = include!("hash_cases.in");
        for (key, count, md5, xxh64) in cases {
            assert_eq!(PartitionHasher::Md5.partition(&key, count), md5, "md5 {key} of {count}");
            assert_eq!(PartitionHasher::Xxh64.partition(&key, count), xxh64, "xxh64 {key} of {count}");
        }
    }
}

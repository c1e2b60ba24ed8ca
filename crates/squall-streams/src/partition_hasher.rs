//! Maps keys to partitions. The hasher is part of the definition of a stream, so the mapping does
//! not depend on installed packages.

use std::fmt;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::python_repr::python_repr;

/// The hash function that maps keys to partitions. Both variants hash the Python `repr` of the key,
/// as runnel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PartitionHasher {
    /// xxHash64, the default.
    #[default]
    Xxh64,
    /// MD5, which runnel uses if the xxhash package is not installed.
    Md5,
}

impl PartitionHasher {
    /// The partition of `key` among `count` partitions.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn partition(self, key: &Value, count: u32) -> u32 {
        self.partition_of_repr(&python_repr(key), count)
    }

    /// The partition of a key, given as its Python `repr`.
    pub(crate) fn partition_of_repr(self, text: &str, count: u32) -> u32 {
        let partition = match self {
            Self::Xxh64 => xxhash_rust::xxh64::xxh64(text.as_bytes(), 0) % u64::from(count),
            Self::Md5 => {
                let number = u128::from_be_bytes(Md5::digest(text.as_bytes()).into());
                (number % u128::from(count)) as u64
            }
        };
        u32::try_from(partition).expect("the remainder is less than `count`")
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

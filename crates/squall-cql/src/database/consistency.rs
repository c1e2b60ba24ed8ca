//! Consistency levels and compression of the settings as the database driver names them.

use crate::{Consistency, FrameCompression, SerialConsistency};
use scylla::statement;

impl From<Consistency> for statement::Consistency {
    fn from(level: Consistency) -> statement::Consistency {
        match level {
            Consistency::Any => statement::Consistency::Any,
            Consistency::One => statement::Consistency::One,
            Consistency::Two => statement::Consistency::Two,
            Consistency::Three => statement::Consistency::Three,
            Consistency::Quorum => statement::Consistency::Quorum,
            Consistency::All => statement::Consistency::All,
            Consistency::LocalQuorum => statement::Consistency::LocalQuorum,
            Consistency::EachQuorum => statement::Consistency::EachQuorum,
            Consistency::LocalOne => statement::Consistency::LocalOne,
            Consistency::Serial => statement::Consistency::Serial,
            Consistency::LocalSerial => statement::Consistency::LocalSerial,
        }
    }
}

impl From<SerialConsistency> for statement::SerialConsistency {
    fn from(level: SerialConsistency) -> statement::SerialConsistency {
        match level {
            SerialConsistency::Serial => statement::SerialConsistency::Serial,
            SerialConsistency::LocalSerial => statement::SerialConsistency::LocalSerial,
        }
    }
}

impl FrameCompression {
    pub(super) fn of_driver(self) -> Option<scylla::client::Compression> {
        match self {
            FrameCompression::None => None,
            FrameCompression::Lz4 => Some(scylla::client::Compression::Lz4),
            FrameCompression::Snappy => Some(scylla::client::Compression::Snappy),
        }
    }
}

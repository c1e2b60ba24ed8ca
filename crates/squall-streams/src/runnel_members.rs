//! Reads the workers of runnel that run a processor beside Squall's, from runnel's keys. It changes no
//! key. The lease store lists only Squall's workers; `admin` calls this for the others.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value as Json;
use squall_coord::{LeaseKeys, MemberId, SharedConnection};

use crate::admin::AdminError;

/// A live worker of runnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnelMember {
    /// The id that runnel gave it.
    pub id: String,
    /// When it joined, as runnel wrote it.
    pub joined_at: String,
    /// The partitions that runnel has assigned to it.
    pub partitions: Vec<u32>,
    /// Time until it expires without another heartbeat.
    pub expires_in: Duration,
}

/// An entry of the members record. runnel writes `joined_at` as text, Squall as a number.
#[derive(Deserialize)]
struct RunnelEntry {
    joined_at: String,
    partitions: Vec<u32>,
}

/// The workers of runnel whose heartbeat keys have not expired, by id. A record that is not readable
/// has none: the lease store reports it.
pub(crate) async fn read_runnel_members(
    commands: &mut SharedConnection,
    keys: &LeaseKeys,
) -> Result<Vec<RunnelMember>, AdminError> {
    let record: Option<String> = redis::cmd("GET").arg(&*keys.members).query_async(commands).await?;
    let record: BTreeMap<String, Json> =
        record.and_then(|record| serde_json::from_str(&record).ok()).unwrap_or_default();
    let mut members = Vec::new();
    for (id, entry) in record {
        let Ok(RunnelEntry { joined_at, partitions }) = serde_json::from_value(entry) else { continue };
        let heartbeat = keys.heartbeat_key(&MemberId::new(id.clone()));
        let ttl: i64 = redis::cmd("PTTL").arg(heartbeat).query_async(commands).await?;
        // Negative without a heartbeat that expires.
        if let Ok(ttl) = u64::try_from(ttl) {
            members.push(RunnelMember { id, joined_at, partitions, expires_in: Duration::from_millis(ttl) });
        }
    }
    Ok(members)
}

//! Every stream of a namespace with its processors, for a page that shows them. Reads only; a
//! processor's rate is the caller's to compute from two overviews. squall-web uses it.

use std::collections::{BTreeMap, BTreeSet};

use redis::{RedisError, streams::StreamInfoGroupsReply};
use serde::Serialize;

use super::{AdminError, StreamAdmin};
use crate::names::{ProcessorName, StreamName};

/// Keys per step of a scan.
const SCAN_COUNT: usize = 1000;
/// Streams of one overview; a page cannot show more.
const MAX_STREAMS: usize = 200;

/// A stream and its processors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamOverview {
    /// The stream, `app.stream`.
    pub stream: String,
    /// The number of partitions.
    pub partitions: u32,
    /// Events in all partitions, including acknowledged ones.
    pub events: u64,
    /// The processors, sorted by name.
    pub processors: Vec<ProcessorOverview>,
}

/// A processor of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorOverview {
    /// The name that the administrator's commands take, `app.stream.processor`.
    pub name: String,
    /// The processor.
    pub processor: String,
    /// Events that no worker has fetched.
    pub waiting: u64,
    /// Events that a worker has fetched and not acknowledged.
    pub pending: u64,
    /// Acknowledged events since the processor was registered; `None` if the server does not count them.
    pub processed: Option<u64>,
    /// Live workers.
    pub workers: Vec<String>,
    /// All partitions of the stream.
    pub partitions: Vec<PartitionOverview>,
}

/// A partition as one processor sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionOverview {
    /// The partition.
    pub partition: u32,
    /// Events that no worker has fetched.
    pub waiting: u64,
    /// Events that a worker has fetched and not acknowledged.
    pub pending: u64,
    /// The worker that holds the partition.
    pub owner: Option<String>,
    /// Why it is in quarantine; `None` if it is not.
    pub quarantine: Option<serde_json::Value>,
}

impl StreamAdmin {
    /// The streams of the namespace that clients have opened, sorted by name, 200 at most. A scan of all
    /// keys of the server; a cluster is scanned on one node only, so it is refused.
    pub async fn streams(&self) -> Result<Vec<StreamName>, AdminError> {
        if self.client.is_cluster() {
            return Err(AdminError::ClusterScan);
        }
        let prefix = self.namespace.definition_prefix();
        let (mut cursor, mut names) = ("0".to_owned(), BTreeSet::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(SCAN_COUNT);
            let (next, keys): (String, Vec<String>) = scan.query_async(&mut self.commands()).await?;
            names.extend(keys.iter().filter_map(|key| key.strip_prefix(&prefix)).map(str::to_owned));
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        // A key of another program may have the prefix.
        Ok(names.iter().filter_map(|name| StreamName::parse(name).ok()).take(MAX_STREAMS).collect())
    }

    /// One stream and its processors.
    pub async fn overview(&self, name: &StreamName) -> Result<StreamOverview, AdminError> {
        let partitions = self.partition_count(name).await?;
        let mut processors: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let mut events = 0;
        for partition in 0..partitions {
            let key = self.namespace.events_key(name, partition);
            self.expect_key_type(&key, "stream").await?;
            let length: u64 = redis::cmd("XLEN").arg(&key).query_async(&mut self.commands()).await?;
            events += length;
            let groups: Result<StreamInfoGroupsReply, RedisError> =
                redis::cmd("XINFO").arg("GROUPS").arg(&key).query_async(&mut self.commands()).await;
            // Redis returns an error for a key that does not exist, which has no groups.
            for group in groups.map(|reply| reply.groups).unwrap_or_default() {
                let read = group.entries_read.map(|read| (read as u64).saturating_sub(group.pending as u64));
                processors
                    .entry(group.name)
                    .and_modify(|sum| *sum = sum.zip(read).map(|(sum, read)| sum + read))
                    .or_insert(read);
            }
        }
        let mut found = Vec::new();
        for (processor, processed) in processors {
            // A group of another program is not a processor.
            let Ok(processor) = name.processor(&processor) else { continue };
            found.push(self.processor_overview(&processor, processed).await?);
        }
        Ok(StreamOverview { stream: name.to_string(), partitions, events, processors: found })
    }

    async fn processor_overview(
        &self,
        name: &ProcessorName,
        processed: Option<u64>,
    ) -> Result<ProcessorOverview, AdminError> {
        let lag = self.lag(name).await?;
        let reasons = self.quarantined_partitions(name).await?;
        let (members, of_runnel) = (self.members(name).await?, self.runnel_members(name).await?);
        let owner = |partition: u32| {
            let held = members.leases.get(&partition.into()).map(|holder| holder.member.to_string());
            let assigned = || of_runnel.iter().find(|member| member.partitions.contains(&partition));
            held.or_else(|| assigned().map(|member| member.id.clone()))
        };
        let own = members.members.iter().map(|member| member.id.to_string());
        let partitions: Vec<PartitionOverview> = lag
            .iter()
            .map(|lag| PartitionOverview {
                partition: lag.partition,
                waiting: lag.waiting,
                pending: lag.pending,
                owner: owner(lag.partition),
                quarantine: reasons
                    .get(&lag.partition)
                    .map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())),
            })
            .collect();
        Ok(ProcessorOverview {
            name: name.to_string(),
            processor: name.processor().to_owned(),
            waiting: partitions.iter().map(|partition| partition.waiting).sum(),
            pending: partitions.iter().map(|partition| partition.pending).sum(),
            processed,
            workers: own.chain(of_runnel.iter().map(|member| member.id.clone())).collect(),
            partitions,
        })
    }
}

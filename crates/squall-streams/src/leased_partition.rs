//! The fenced steps on one partition: fence, renew, acknowledge and quarantine, each as one script,
//! and [`fetch`] as one command. Makes no decisions: a rejection by the fence is an outcome, not an
//! error. The executor calls it.

mod fetch;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{FromRedisValue, RedisError, Script, ScriptInvocation};
use squall_coord::{LeaseEpoch, MemberId, RedisClient, SharedConnection, StoreError, find_wrong_type};

use self::fetch::ReadProgress;
use crate::{
    entry::EntryId,
    names::{Namespace, ProcessorName},
};

/// The largest number of ids in one script call, because Lua limits the arguments of `unpack`.
pub(crate) const MAX_ACKS: usize = 1000;

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file, ".lua"))));
    };
}
script!(FENCE, "fence");
script!(RENEW, "renew");
script!(UNFENCE, "unfence");
script!(ACK, "ack");
script!(QUARANTINE, "quarantine");

/// A step on a partition failed.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The server did not respond, or returned an error.
    #[error("a Redis command on `{key}` failed")]
    Redis {
        /// The key of the partition's events.
        key: String,
        /// The error of the client or the server.
        #[source]
        source: RedisError,
    },
    /// A key holds another type.
    #[error(transparent)]
    WrongType(StoreError),
    /// A worker of runnel holds the partition, or has died and left its lock.
    #[error("executor `{holder}` of runnel holds `{key}` for up to {expires_in:?} more")]
    LockedByRunnel {
        /// The key of the lock.
        key: String,
        /// The id in the lock.
        holder: String,
        /// When the lock expires unless its holder renews it.
        expires_in: Duration,
    },
    /// The server returned a response of an unknown form.
    #[error("Redis returned an unexpected response for `{key}`; is the server Redis 6.2 or later, or Valkey?")]
    UnexpectedResponse {
        /// The key of the partition's events.
        key: String,
    },
}

impl PartitionError {
    /// Whether a retry can succeed without an operator.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self, Self::WrongType(_))
    }

    /// Whether the consumer group is missing, as after a server restart without data.
    pub(crate) fn is_group_missing(&self) -> bool {
        matches!(self, Self::Redis { source, .. } if source.code() == Some("NOGROUP") || source.to_string().contains("NOGROUP"))
    }
}

/// The outcome of a fenced step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceOutcome<T> {
    Done(T),
    /// This owner has been replaced, or its lease has expired.
    FencedOff,
}

/// One partition under one lease.
#[derive(Clone)]
pub(crate) struct LeasedPartition {
    pub(crate) number: u32,
    pub(crate) epoch: LeaseEpoch,
    pub(crate) events_key: String,
    pub(crate) lock_key: String,
    quarantine_key: String,
    group: String,
    owner: MemberId,
    ttl: Duration,
    read_progress: Arc<ReadProgress>,
    namespace: Namespace,
    processor: ProcessorName,
    commands: SharedConnection,
}

impl LeasedPartition {
    pub(crate) fn new(
        client: &RedisClient,
        namespace: &Namespace,
        name: &ProcessorName,
        number: u32,
        (owner, epoch, ttl): (MemberId, LeaseEpoch, Duration),
    ) -> Self {
        Self {
            number,
            epoch,
            events_key: namespace.events_key(name.stream(), number),
            lock_key: namespace.lock_key(name, number),
            quarantine_key: namespace.quarantine_key(name, number),
            group: name.processor().to_owned(),
            owner,
            ttl,
            read_progress: ReadProgress::new(client.is_cluster()),
            namespace: namespace.clone(),
            processor: name.clone(),
            commands: client.connection(),
        }
    }

    /// Locks out every earlier owner, and every read of this owner whose response was lost. Returns
    /// whether the partition is in quarantine.
    pub(crate) async fn fence(&self) -> Result<FenceOutcome<bool>, PartitionError> {
        let (number, gate) = self.next_gate_key();
        loop {
            let mut lookup = redis::cmd("HGET");
            let open_gate: Option<String> = self
                .map_error(lookup.arg(&self.lock_key).arg("gate").query_async(&mut self.commands.clone()).await)
                .await?;
            let mut call = FENCE.key(&self.lock_key);
            call.key(&self.events_key).key(&self.quarantine_key).key(&gate).key(open_gate.as_ref().unwrap_or(&gate));
            call.arg(self.owner.as_str()).arg(self.epoch.0).arg(self.ttl_ms()).arg(&self.group).arg(number);
            match self.invoke_script::<(i64, Option<String>)>(&call).await? {
                (-2, _) => {} // another fence opened a gate after the lookup; retry
                (-1, _) => return Ok(FenceOutcome::FencedOff),
                (quarantined, delivered) => {
                    self.record_last_delivered(delivered.and_then(|id| EntryId::parse(id.as_bytes())));
                    return Ok(FenceOutcome::Done(quarantined == 1));
                }
            }
        }
    }

    /// Extends the fence by one lease. Returns whether the partition is in quarantine.
    pub(crate) async fn renew(&self) -> Result<FenceOutcome<bool>, PartitionError> {
        let mut call = RENEW.key(&self.lock_key);
        call.key(&self.quarantine_key).key(self.gate_key()).arg(self.epoch.0).arg(self.ttl_ms()).arg(&self.group);
        self.invoke_script(&call).await.map(parse_quarantined)
    }

    pub(crate) async fn unfence(&self) -> Result<(), PartitionError> {
        let mut call = UNFENCE.key(&self.lock_key);
        call.key(self.gate_key()).arg(self.epoch.0);
        self.invoke_script::<i64>(&call).await.map(drop)
    }

    /// Acknowledges at most [`MAX_ACKS`] events.
    pub(crate) async fn ack(&self, ids: &[EntryId]) -> Result<FenceOutcome<()>, PartitionError> {
        let mut call = ACK.key(&self.events_key);
        call.key(&self.lock_key).arg(self.epoch.0).arg(&self.group);
        for id in ids {
            call.arg(id.to_string());
        }
        let count: i64 = self.invoke_script(&call).await?;
        Ok(if count < 0 { FenceOutcome::FencedOff } else { FenceOutcome::Done(()) })
    }

    pub(crate) async fn quarantine(&self, reason: &str) -> Result<FenceOutcome<()>, PartitionError> {
        let mut call = QUARANTINE.key(&self.lock_key);
        call.key(&self.quarantine_key).arg(self.epoch.0).arg(reason);
        let done: i64 = self.invoke_script(&call).await?;
        Ok(if done < 0 { FenceOutcome::FencedOff } else { FenceOutcome::Done(()) })
    }

    fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    async fn invoke_script<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, PartitionError> {
        self.map_error(call.invoke_async(&mut self.commands.clone()).await).await
    }

    /// Maps an error. After WRONGTYPE, finds the key that holds another type.
    async fn map_error<T>(&self, response: Result<T, RedisError>) -> Result<T, PartitionError> {
        let source = match response {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if source.to_string().contains("WRONGTYPE") {
            if let Some(locked) = self.find_runnel_lock().await {
                return Err(locked);
            }
            let keys = [(&*self.lock_key, "hash"), (&*self.events_key, "stream"), (&*self.quarantine_key, "string")];
            if let Some(wrong_type) = find_wrong_type(&mut self.commands.clone(), &keys).await {
                return Err(PartitionError::WrongType(wrong_type));
            }
        }
        Err(PartitionError::Redis { key: self.events_key.clone(), source })
    }

    /// Reads a lock of runnel: a string with the id of its holder, which expires. Squall's lock is a hash.
    async fn find_runnel_lock(&self) -> Option<PartitionError> {
        let key = self.lock_key.clone();
        let mut reads = redis::pipe();
        reads.cmd("PTTL").arg(&key).cmd("GET").arg(&key);
        let (ttl, holder): (i64, String) = reads.query_async(&mut self.commands.clone()).await.ok()?;
        let expires_in = Duration::from_millis(u64::try_from(ttl).ok()?);
        Some(PartitionError::LockedByRunnel { key, holder, expires_in })
    }
}

fn parse_quarantined(response: i64) -> FenceOutcome<bool> {
    if response < 0 { FenceOutcome::FencedOff } else { FenceOutcome::Done(response == 1) }
}

#[cfg(test)]
mod tests;

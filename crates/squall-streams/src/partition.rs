//! The fenced steps on one partition: fence, renew, acknowledge, quarantine, each one script, and [`fetch`], one command.
//! Refuses to decide anything; a refusal by the fence is an answer here, not an error.

mod fetch;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{FromRedisValue, RedisError, Script, ScriptInvocation};
use squall_coord::{SharedConnection, Epoch, RedisClient, MemberId, StoreError, find_wrong_type};

use self::fetch::Reading;
use crate::{
    entry::EntryId,
    names::{Namespace, ProcessorName},
};

/// Lua can unpack only so many arguments at once.
pub(crate) const MOST_ACKS: usize = 1000;

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

/// A step on a partition went wrong.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The server did not answer, or refused.
    #[error("Redis did not do a step on `{key}`")]
    Redis {
        /// The partition's events.
        key: String,
        /// What it said.
        #[source]
        source: RedisError,
    },
    /// A key is in use for something else.
    #[error(transparent)]
    WrongType(StoreError),
    /// The server answered something no script of ours says.
    #[error("Redis answered a step on `{key}` in a way this version does not understand")]
    Answer {
        /// The partition's events.
        key: String,
    },
}

impl PartitionError {
    /// Whether trying again can help without anybody doing anything.
    pub(crate) fn passing(&self) -> bool {
        !matches!(self, Self::WrongType(_))
    }

    /// The group has vanished, as after a restart without data.
    pub(crate) fn no_group(&self) -> bool {
        matches!(self, Self::Redis { source, .. } if source.code() == Some("NOGROUP") || source.to_string().contains("NOGROUP"))
    }
}

/// What a fenced step said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fenced<T> {
    Done(T),
    /// Somebody else is the owner now, or nobody.
    Refused,
}

/// One partition under one lease.
#[derive(Clone)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    pub(crate) epoch: Epoch,
    pub(crate) events: String,
    pub(crate) lock: String,
    quarantine: String,
    group: String,
    owner: MemberId,
    ttl: Duration,
    reading: Arc<Reading>,
    namespace: Namespace,
    name: ProcessorName,
    commands: SharedConnection,
}

impl Partition {
    pub(crate) fn new(
        link: &RedisClient,
        namespace: &Namespace,
        name: &ProcessorName,
        number: u32,
        (owner, epoch, ttl): (MemberId, Epoch, Duration),
    ) -> Self {
        Self {
            number,
            epoch,
            events: namespace.events(name.stream(), number),
            lock: namespace.lock(name, number),
            quarantine: namespace.quarantine(name, number),
            group: name.processor().to_owned(),
            owner,
            ttl,
            reading: Reading::new(link.is_cluster()),
            namespace: namespace.clone(),
            name: name.clone(),
            commands: link.connection(),
        }
    }

    /// Shuts out every earlier owner, and every read that this one has given up on. Says whether the partition is quarantined.
    pub(crate) async fn fence(&self) -> Result<Fenced<bool>, PartitionError> {
        let (number, gate) = self.next_gate();
        loop {
            let mut look = redis::cmd("HGET");
            let open: Option<String> =
                self.judge(look.arg(&self.lock).arg("gate").query_async(&mut self.commands.clone()).await).await?;
            let mut call = FENCE.key(&self.lock);
            call.key(&self.events).key(&self.quarantine).key(&gate).key(open.as_ref().unwrap_or(&gate));
            call.arg(self.owner.as_str()).arg(self.epoch.0).arg(self.ttl_ms()).arg(&self.group).arg(number);
            match self.run::<(i64, Option<String>)>(&call).await? {
                (-2, _) => {} // somebody else has fenced it in between
                (-1, _) => return Ok(Fenced::Refused),
                (quarantined, delivered) => {
                    self.gate_opened(delivered.and_then(|id| EntryId::parse(id.as_bytes())));
                    return Ok(Fenced::Done(quarantined == 1));
                }
            }
        }
    }

    /// Keeps earlier owners shut out. Says whether the partition is quarantined.
    pub(crate) async fn renew(&self) -> Result<Fenced<bool>, PartitionError> {
        let mut call = RENEW.key(&self.lock);
        call.key(&self.quarantine).key(self.gate()).arg(self.epoch.0).arg(self.ttl_ms()).arg(&self.group);
        self.run(&call).await.map(flag)
    }

    pub(crate) async fn unfence(&self) -> Result<(), PartitionError> {
        let mut call = UNFENCE.key(&self.lock);
        call.key(self.gate()).arg(self.epoch.0);
        self.run::<i64>(&call).await.map(drop)
    }

    /// Acknowledges at most [`MOST_ACKS`] events.
    pub(crate) async fn ack(&self, ids: &[EntryId]) -> Result<Fenced<()>, PartitionError> {
        let mut call = ACK.key(&self.events);
        call.key(&self.lock).arg(self.epoch.0).arg(&self.group);
        for id in ids {
            call.arg(id.to_string());
        }
        let count: i64 = self.run(&call).await?;
        Ok(if count < 0 { Fenced::Refused } else { Fenced::Done(()) })
    }

    pub(crate) async fn quarantine(&self, reason: &str) -> Result<Fenced<()>, PartitionError> {
        let mut call = QUARANTINE.key(&self.lock);
        call.key(&self.quarantine).arg(self.epoch.0).arg(reason);
        let done: i64 = self.run(&call).await?;
        Ok(if done < 0 { Fenced::Refused } else { Fenced::Done(()) })
    }

    fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, PartitionError> {
        self.judge(call.invoke_async(&mut self.commands.clone()).await).await
    }

    /// Finds out which key it is if one is of the wrong type.
    async fn judge<T>(&self, answer: Result<T, RedisError>) -> Result<T, PartitionError> {
        let source = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if source.to_string().contains("WRONGTYPE") {
            let keys = [(&*self.lock, "hash"), (&*self.events, "stream"), (&*self.quarantine, "string")];
            if let Some(wrong) = find_wrong_type(&mut self.commands.clone(), &keys).await {
                return Err(PartitionError::WrongType(wrong));
            }
        }
        Err(PartitionError::Redis { key: self.events.clone(), source })
    }
}

fn flag(answer: i64) -> Fenced<bool> {
    if answer < 0 { Fenced::Refused } else { Fenced::Done(answer == 1) }
}

#[cfg(test)]
mod tests;

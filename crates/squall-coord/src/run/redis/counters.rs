//! Counters in Redis: one hash for all counters of a run, with the fields `<counter>:limit`,
//! `:next`, `:out`, `:back` and one field per source.
//! The numbers within a field are separated by spaces, so that a script reads a source with one
//! command.

use std::{collections::BTreeMap, ops::Range};

use redis::{AsyncCommands, Script};

use super::{RUN_RETENTION, RedisRunStore};
use crate::{
    StoreError,
    redis::millis,
    run::counter_store::{BlockGrant, BlockRequest, CounterState, CounterStore, SourceAllocation},
};

pub(super) struct CounterScripts {
    acquire_block: Script,
    write_off: Script,
}

impl CounterScripts {
    pub(super) fn new() -> Self {
        Self {
            acquire_block: Script::new(include_str!("../scripts/acquire_block.lua")),
            write_off: Script::new(include_str!("../scripts/write_off.lua")),
        }
    }
}

impl CounterStore for RedisRunStore {
    async fn acquire_block(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
        request: &BlockRequest,
    ) -> Result<Option<BlockGrant>, StoreError> {
        let keys = self.keys();
        let mut call = self.inner.counters.acquire_block.prepare_invoke();
        call.key(keys.epoch()).key(keys.counters(epoch)).arg(epoch).arg(counter).arg(source);
        call.arg(request.sequence)
            .arg(request.used)
            .arg(request.max_count)
            .arg(request.limit)
            .arg(millis(RUN_RETENTION));
        for block in &request.returned_blocks {
            call.arg(block.start).arg(block.end);
        }
        let granted: Option<(u64, u64, u64, u64)> = self.invoke(&call).await?;
        Ok(granted.map(|(first, end, remaining, held_by_others)| BlockGrant {
            block: first..end,
            remaining,
            held_by_others,
        }))
    }

    async fn counters(&self, epoch: u64) -> Result<BTreeMap<String, CounterState>, StoreError> {
        let reply = self.connection().hgetall(self.keys().counters(epoch)).await;
        let fields: BTreeMap<String, String> = self.check_reply(reply).await?;
        let mut counters: BTreeMap<String, CounterState> = BTreeMap::new();
        for (field, value) in fields {
            parse_field(&mut counters, &field, &value);
        }
        Ok(counters)
    }

    async fn write_off(&self, epoch: u64, counter: &str, source: &str) -> Result<Option<u64>, StoreError> {
        let keys = self.keys();
        let mut call = self.inner.counters.write_off.prepare_invoke();
        call.key(keys.epoch()).key(keys.counters(epoch)).arg(epoch).arg(counter).arg(source);
        self.invoke(&call).await
    }
}

/// Parses one field; foreign fields are skipped.
fn parse_field(counters: &mut BTreeMap<String, CounterState>, field: &str, value: &str) {
    let numbers: Vec<u64> = value.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
    if let Some((name, source)) = field.split_once(":by:") {
        if let [sequence, first, end, granted, returned, used, written_off] = numbers[..] {
            let allocation = SourceAllocation {
                sequence,
                block: first..end,
                allocated: granted,
                returned,
                used,
                written_off: written_off != 0,
            };
            counters.entry(name.to_owned()).or_default().sources.insert(source.to_owned(), allocation);
        }
        return;
    }
    let Some((name, part)) = field.rsplit_once(':') else { return };
    let counter = counters.entry(name.to_owned()).or_default();
    match (part, &numbers[..]) {
        ("limit", [limit]) => counter.limit = *limit,
        ("next", [next]) => counter.next = *next,
        ("back", pairs) => {
            counter.returned_blocks = pairs.chunks_exact(2).map(|pair| Range { start: pair[0], end: pair[1] }).collect()
        }
        _ => {}
    }
}

//! Counters in Redis: one hash for all of a run, `<counter>:limit`, `:next`, `:out`, `:back` and one field for each source. The numbers
//! within a field stand one after the other, so that a script reads a source in one step.

use std::{collections::BTreeMap, ops::Range};

use redis::{AsyncCommands, Script};

use super::{KEEP, RedisRun, millis};
use crate::{
    StoreError,
    run::counter::{Counter, Counters, Draw, Drawn, Holding},
};

pub(super) struct CounterScripts {
    draw: Script,
    write_off: Script,
}

impl CounterScripts {
    pub(super) fn new() -> Self {
        Self {
            draw: Script::new(include_str!("../scripts/draw.lua")),
            write_off: Script::new(include_str!("../scripts/write_off.lua")),
        }
    }
}

impl Counters for RedisRun {
    async fn draw(&self, epoch: u64, counter: &str, source: &str, draw: &Draw) -> Result<Option<Drawn>, StoreError> {
        let keys = self.keys();
        let mut call = self.inner.counters.draw.prepare_invoke();
        call.key(keys.epoch()).key(keys.counters(epoch)).arg(epoch).arg(counter).arg(source);
        call.arg(draw.turn).arg(draw.used).arg(draw.most).arg(draw.limit).arg(millis(KEEP));
        for block in &draw.back {
            call.arg(block.start).arg(block.end);
        }
        let drawn: Option<(u64, u64, u64, u64)> = self.run(&call).await?;
        Ok(drawn.map(|(first, end, left, elsewhere)| Drawn { block: first..end, left, elsewhere }))
    }

    async fn counters(&self, epoch: u64) -> Result<BTreeMap<String, Counter>, StoreError> {
        let answer = self.commands().hgetall(self.keys().counters(epoch)).await;
        let fields: BTreeMap<String, String> = self.told(answer).await?;
        let mut counters: BTreeMap<String, Counter> = BTreeMap::new();
        for (field, value) in fields {
            read(&mut counters, &field, &value);
        }
        Ok(counters)
    }

    async fn write_off(&self, epoch: u64, counter: &str, source: &str) -> Result<Option<u64>, StoreError> {
        let keys = self.keys();
        let mut call = self.inner.counters.write_off.prepare_invoke();
        call.key(keys.epoch()).key(keys.counters(epoch)).arg(epoch).arg(counter).arg(source);
        self.run(&call).await
    }
}

/// Reads one field; one that nobody of us has written is passed over.
fn read(counters: &mut BTreeMap<String, Counter>, field: &str, value: &str) {
    let numbers: Vec<u64> = value.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
    if let Some((name, source)) = field.split_once(":by:") {
        if let [turn, first, end, drawn, returned, used, lost] = numbers[..] {
            let holding = Holding { turn, block: first..end, drawn, returned, used, lost: lost != 0 };
            counters.entry(name.to_owned()).or_default().sources.insert(source.to_owned(), holding);
        }
        return;
    }
    let Some((name, part)) = field.rsplit_once(':') else { return };
    let counter = counters.entry(name.to_owned()).or_default();
    match (part, &numbers[..]) {
        ("limit", [limit]) => counter.limit = *limit,
        ("next", [next]) => counter.next = *next,
        ("back", pairs) => {
            counter.back = pairs.chunks_exact(2).map(|pair| Range { start: pair[0], end: pair[1] }).collect()
        }
        _ => {}
    }
}

//! Numbers of a run that are given out once each: its iterations where it has so many and no more, the rows of its data where each is used
//! once. Drawn in blocks, given back where they were not used, written off where they were with somebody who died. Knows no worker.

use std::{collections::BTreeMap, future::Future, ops::Range};

use crate::StoreError;

/// What one who uses numbers says and asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRequest {
    /// Counts this source's draws from 1; the same one again is answered as it was.
    pub sequence: u64,
    /// Numbers it has used in all.
    pub used: u64,
    /// Blocks it will not use.
    pub returned_blocks: Vec<Range<u64>>,
    /// How many it wants.
    pub max_count: u64,
    /// The numbers there are: 0 and up to here.
    pub limit: u64,
}

/// What it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockGrant {
    /// Its own from now on; empty if there is none.
    pub block: Range<u64>,
    /// That nobody has.
    pub remaining: u64,
    /// That others have and are not known to have used; those of the dead are not among them.
    pub held_by_others: u64,
}

/// A counter as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterState {
    pub limit: u64,
    /// The lowest number that nobody has ever had.
    pub next: u64,
    pub returned_blocks: Vec<Range<u64>>,
    pub sources: BTreeMap<String, SourceAllocation>,
}

/// What one source has of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAllocation {
    pub sequence: u64,
    /// As it was last given.
    pub block: Range<u64>,
    pub allocated: u64,
    pub returned: u64,
    pub used: u64,
    /// Nobody expects it to use what it holds; it may come back.
    pub written_off: bool,
}

/// Counters by name; every method is one atomic step.
pub trait CounterStore {
    /// Gives back, says what was used, and draws; `None` if another run has begun.
    fn acquire_block(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
        request: &BlockRequest,
    ) -> impl Future<Output = Result<Option<BlockGrant>, StoreError>> + Send;

    /// All counters of a run by name.
    fn counters(&self, epoch: u64) -> impl Future<Output = Result<BTreeMap<String, CounterState>, StoreError>> + Send;

    /// Stops waiting for what `source` holds, until it is heard again; says how many numbers that are, or `None` if it was lost already.
    fn write_off(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;
}

impl SourceAllocation {
    /// Numbers it is not known to have used.
    pub fn unused(&self) -> u64 {
        (self.allocated - self.returned).saturating_sub(self.used)
    }
}

impl CounterState {
    /// Numbers that nobody has.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.next) + total_length(&self.returned_blocks)
    }

    /// Numbers that somebody alive may still use.
    pub fn outstanding(&self) -> u64 {
        self.sources.values().filter(|source| !source.written_off).map(SourceAllocation::unused).sum()
    }

    /// Numbers that are known to have been used.
    pub fn used(&self) -> u64 {
        self.sources.values().map(|source| source.used).sum()
    }

    /// Takes one step; the model of the script.
    pub(super) fn allocate(&mut self, source: &str, request: &BlockRequest) -> BlockGrant {
        let last_sequence = self.sources.get(source).map_or(0, |allocation| allocation.sequence);
        if request.sequence > last_sequence {
            self.limit = request.limit;
            self.returned_blocks.extend(request.returned_blocks.iter().cloned());
            let block = self.next_block(request.max_count);
            let allocation = self.sources.entry(source.to_owned()).or_default();
            allocation.sequence = request.sequence;
            allocation.allocated += block.end - block.start;
            allocation.returned += total_length(&request.returned_blocks);
            allocation.used = allocation.used.max(request.used);
            allocation.block = block;
            allocation.written_off = false;
        }
        let allocation = self.sources.get(source);
        let block = allocation
            .filter(|allocation| allocation.sequence == request.sequence)
            .map_or(0..0, |allocation| allocation.block.clone());
        let own_unused = allocation.filter(|allocation| !allocation.written_off).map_or(0, SourceAllocation::unused);
        BlockGrant { block, remaining: self.remaining(), held_by_others: self.outstanding() - own_unused }
    }

    /// A block of at most `most`: first of what came back.
    fn next_block(&mut self, max_count: u64) -> Range<u64> {
        if max_count == 0 {
            return 0..0;
        }
        if let Some(first) = self.returned_blocks.first_mut() {
            let block = first.start..first.end.min(first.start.saturating_add(max_count));
            first.start = block.end;
            if first.start == first.end {
                self.returned_blocks.remove(0);
            }
            return block;
        }
        let block = self.next..self.limit.max(self.next).min(self.next.saturating_add(max_count));
        self.next = block.end;
        if block.is_empty() { 0..0 } else { block }
    }

    pub(super) fn write_off(&mut self, source: &str) -> Option<u64> {
        let allocation = self.sources.get_mut(source).filter(|allocation| !allocation.written_off)?;
        allocation.written_off = true;
        Some(allocation.unused())
    }
}

fn total_length(blocks: &[Range<u64>]) -> u64 {
    blocks.iter().map(|block| block.end - block.start).sum()
}

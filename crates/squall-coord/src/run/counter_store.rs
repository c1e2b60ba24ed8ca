//! Counters of a run: they grant each number once, for the iterations of a run with a limit and for
//! data rows that are used once.
//! Sources acquire numbers in blocks and return unused ones. Numbers of a dead source are written
//! off. The counters do not know which worker a source is; squall-worker acquires blocks and the
//! leader writes them off.

use std::{collections::BTreeMap, future::Future, ops::Range};

use crate::StoreError;

/// A source's request for a block of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRequest {
    /// Counts this source's requests from 1. A repeated request gets the same grant.
    pub sequence: u64,
    /// Numbers that the source has used in total.
    pub used: u64,
    /// Blocks that the source will not use.
    pub returned_blocks: Vec<Range<u64>>,
    /// How many numbers it wants at most.
    pub max_count: u64,
    /// The counter's numbers are 0 up to here, exclusive.
    pub limit: u64,
}

/// The reply to a [`BlockRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockGrant {
    /// The granted block; empty if no number is left.
    pub block: Range<u64>,
    /// Numbers that no source has.
    pub remaining: u64,
    /// Unused numbers of other sources, without those of dead sources.
    pub held_by_others: u64,
}

/// The state of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterState {
    pub limit: u64,
    /// The lowest number that was never granted.
    pub next: u64,
    pub returned_blocks: Vec<Range<u64>>,
    pub sources: BTreeMap<String, SourceAllocation>,
}

/// The numbers of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAllocation {
    pub sequence: u64,
    /// The last granted block.
    pub block: Range<u64>,
    pub allocated: u64,
    pub returned: u64,
    pub used: u64,
    /// The leader does not wait for its unused numbers. It may still return.
    pub written_off: bool,
}

/// Counters by name. Every method is atomic.
pub trait CounterStore {
    /// Returns blocks, reports used numbers and acquires a block. `None` means that another run has
    /// begun.
    fn acquire_block(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
        request: &BlockRequest,
    ) -> impl Future<Output = Result<Option<BlockGrant>, StoreError>> + Send;

    /// All counters of a run by name.
    fn counters(&self, epoch: u64) -> impl Future<Output = Result<BTreeMap<String, CounterState>, StoreError>> + Send;

    /// Writes off the unused numbers of `source` until its next request and returns how many they
    /// are. `None` means that they are written off already or that the source is unknown.
    fn write_off(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;
}

impl SourceAllocation {
    /// Numbers that it has not reported as used.
    pub fn unused(&self) -> u64 {
        (self.allocated - self.returned).saturating_sub(self.used)
    }
}

impl CounterState {
    /// Numbers that no source has.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.next) + total_length(&self.returned_blocks)
    }

    /// Unused numbers of live sources.
    pub fn outstanding(&self) -> u64 {
        self.sources.values().filter(|source| !source.written_off).map(SourceAllocation::unused).sum()
    }

    /// Numbers reported as used.
    pub fn used(&self) -> u64 {
        self.sources.values().map(|source| source.used).sum()
    }

    /// Serves one request; the model of `acquire_block.lua`.
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

    /// The next block of at most `max_count` numbers; returned blocks come first.
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

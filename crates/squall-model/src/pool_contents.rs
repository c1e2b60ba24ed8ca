//! What a scenario wants to find in a pool when its run begins.

/// A pool that the scenario declares. It is emptied for each run, and then holds these things; where there are none they are made as they
/// are asked for, and the pool keeps what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolContents {
    pub pool: String,
    /// One JSON object for each thing; its number here is its name in the pool.
    pub payloads: Vec<String>,
}

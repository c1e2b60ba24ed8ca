//! What a scenario declares a resource pool to contain when its run begins.

/// A declared pool. Each run empties it and fills it with these resources. Without any, users
/// create resources on request, and the pool keeps those it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolContents {
    pub pool: String,
    /// One JSON object for each resource; its index is its name in the pool.
    pub payloads: Vec<String>,
}

//! Both implementations of every store against the same tests, memberships under simulated faults,
//! and Redis connections.

mod counter_store;
mod damaged_store;
mod lease_store;
mod lease_store_equivalence;
mod membership;
mod membership_logs;
mod pool_store;
mod pool_store_equivalence;
mod pool_store_faults;
mod rebalance_simulation;
mod redis_connections;
mod run_store;
mod slot_store;
mod slot_store_equivalence;
mod slot_store_redis;
mod support;

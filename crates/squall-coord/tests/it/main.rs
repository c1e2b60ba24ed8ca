//! The steps of the store against both back ends, and the rebalance protocol under simulated faults.

mod counter_store;
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
mod support;

//! Who is alive and who holds what: members, leases, assignment and sweep over memory or Redis.
//! Refuses to decide what the held things are for; a partition, a virtual user or the leader role are all just units.
//!
//! * [`spread`]: one pure function from units and members to an assignment.
//! * [`LeaseStore`]: the atomic steps, with two back ends of equal meaning, [`MemoryLeaseStore`] and [`RedisLeaseStore`].
//! * [`PoolStore`]: pools of unique things to borrow, [`MemoryPoolStore`] and [`RedisPoolStore`]; [`ResourceHolder`] waits for its turn.
//! * [`RunStore`]: the record of a run that a fleet shares, [`MemoryRunStore`] and [`RedisRunStore`].
//! * [`FleetStores`]: all of these for one fleet.
//! * [`Membership`]: one member's loop; it joins, beats, takes what is assigned to it and gives back what is not.

mod fleet_stores;
mod ids;
mod lease_store;
mod membership;
mod memory_lease_store;
mod pool;
mod redis;
mod run;
mod spread;

pub use fleet_stores::{FleetStores, MemoryFleetStores, RedisFleetStores, fleet_key_prefix};
pub use ids::{Epoch, MemberId, Revision, UnitId};
pub use lease_store::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseSnapshot, LeaseStore, LiveMember, MemberSnapshot, StoreError,
};
pub use membership::{
    LeaseEvent, LeaseValidity, Membership, MembershipConfig, MembershipConfigError, MembershipHandle,
};
pub use memory_lease_store::MemoryLeaseStore;
pub use pool::{
    AcquireError, AllPoolCounts, FillResult, ItemId, MemoryPoolStore, PoolCounts, PoolItem, PoolItemStatus, PoolLease,
    PoolName, PoolNameError, PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore,
    ResourceHolder, TURN_TIMEOUT, add_pool_items, ensure_pool_size,
};
pub use redis::{
    BlockingConnection, LeaseKeys, PoolKeys, RedisClient, RedisConnectError, RedisLeaseStore, RedisPoolStore,
    SharedConnection, find_non_number, find_wrong_type, is_transient,
};
pub use run::{
    BlockGrant, BlockRequest, CompatView, CounterState, CounterStore, MAX_USERS_PER_MOVE, MemoryRunStore,
    RedisRunStore, ReportFields, ReportOutcome, ReportReceipt, RunKeys, RunRecord, RunStore, START_POSITION, SecondRow,
    SeriesKind, ShipOutcome, ShippedDelta, SourceAllocation, UserLocations, UserMove,
};
pub use spread::{UnitAssignment, spread};

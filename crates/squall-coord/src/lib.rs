//! Who is alive and who holds what: members, leases, assignment and sweep over memory or Redis.
//! Refuses to decide what the held things are for; a partition, a virtual user or the leader role are all just units.
//!
//! * [`spread`]: one pure function from units and members to an assignment.
//! * [`Store`]: the atomic steps, with two back ends of equal meaning, [`MemoryStore`] and [`RedisStore`].
//! * [`PoolStore`]: pools of unique things to borrow, [`MemoryPools`] and [`RedisPools`]; [`Borrower`] waits for its turn.
//! * [`RunStore`]: the record of a run that a fleet shares, [`MemoryRun`] and [`RedisRun`].
//! * [`Cell`]: all of these for one fleet.
//! * [`Seat`]: one member's loop; it joins, beats, takes what is assigned to it and gives back what is not.

mod fleet_stores;
mod ids;
mod memory_lease_store;
mod pool;
mod redis;
mod run;
mod membership;
mod spread;
mod lease_store;

pub use fleet_stores::{FleetStores, MemoryFleetStores, RedisFleetStores, fleet_key_prefix};
pub use ids::{Epoch, MemberId, Revision, UnitId};
pub use memory_lease_store::MemoryLeaseStore;
pub use pool::{
    AcquireError, PoolRequestOutcome, PoolRequest, ResourceHolder, AllPoolCounts, PoolLease, PoolItem, ItemId, PoolItemStatus, MemoryPoolStore, TURN_TIMEOUT, PoolCounts,
    PoolName, PoolNameError, PoolStore, PoolReleaseOutcome, FillResult, PoolRequestId, add_pool_items, ensure_pool_size,
};
pub use redis::{
    BlockingConnection, SharedConnection, RedisClient, RedisConnectError, PoolKeys, RedisPoolStore, RedisLeaseStore, LeaseKeys, find_non_number, find_wrong_type,
    is_transient,
};
pub use run::{
    START_POSITION, CounterState, CounterStore, BlockRequest, BlockGrant, ReportReceipt, SourceAllocation, MemoryRunStore, RedisRunStore, WorkerReport, ReportOutcome, RunKeys,
    RunRecord, RunStore, SeriesKind, ShipOutcome, ShippedDelta, CompatView, SecondRow, UserLocations, MAX_USERS_PER_MOVE, UserMove,
};
pub use membership::{LeaseEvent, Membership, MembershipConfig, MembershipConfigError, MembershipHandle, LeaseValidity};
pub use spread::{UnitAssignment, spread};
pub use lease_store::{LeaseAcquireOutcome, HeartbeatOutcome, Lease, MemberSnapshot, LiveMember, LeaseStore, StoreError, LeaseSnapshot};

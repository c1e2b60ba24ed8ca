//! Members, leases, resource pools and the record of a run, in memory or in Redis.
//! This crate does not decide what the held units are for; a partition, a share of the load and the
//! leader role are all units. Workers, orchestrators and squall-streams use it.
//!
//! * [`spread()`]: a pure function from units and members to an assignment.
//! * [`LeaseStore`]: members and leases, in [`MemoryLeaseStore`] or [`RedisLeaseStore`].
//! * [`Membership`]: one member's loop. It joins, sends heartbeats, acquires the units assigned to
//!   it and releases the others.
//! * [`PoolStore`]: pools of unique items, in [`MemoryPoolStore`] or [`RedisPoolStore`];
//!   [`ResourceHolder`] waits for a free item.
//! * [`RunStore`]: the record of the run that a fleet shares, in [`MemoryRunStore`] or
//!   [`RedisRunStore`].
//! * [`SlotStore`]: slots of workers that servers claim for sessions, in [`MemorySlotStore`] or
//!   [`RedisSlotStore`].
//! * [`CompatView`]: users and seconds of a run under vikhry's Redis keys.
//! * [`FleetStores`]: all stores of one fleet.

mod compat;
mod fleet_stores;
mod ids;
mod lease_store;
mod membership;
mod memory_lease_store;
mod pool;
mod redis;
mod run;
mod slots;
mod spread;

pub use compat::{
    CompatView, MAX_USERS_PER_MOVE, MetricEntry, SecondRow, SeriesKind, UserLocation, UserLocations, UserMove,
};
pub use fleet_stores::{FleetStores, MemoryFleetStores, RedisFleetStores, fleet_key_prefix};
pub use ids::{LeaseEpoch, MemberId, Revision, RunEpoch, UnitId, unique_id};
pub use lease_store::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseHolder, LeaseSnapshot, LeaseStore, LiveMember, MemberSnapshot,
    StoreError,
};
pub use membership::{
    LeaseEvent, Membership, MembershipConfig, MembershipConfigError, MembershipHandle, MembershipValidity,
};
pub use memory_lease_store::MemoryLeaseStore;
pub use pool::{
    AcquireError, AllPoolCounts, FillResult, ItemId, MemoryPoolStore, PoolCounts, PoolHolder, PoolItem, PoolItemStatus,
    PoolLease, PoolName, PoolNameError, PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore,
    ResourceHolder, TURN_TIMEOUT, add_pool_items, ensure_pool_size,
};
pub use redis::{
    BlockingConnection, LeaseKeys, PoolKeys, RedisClient, RedisConnectError, RedisLeaseStore, RedisPoolStore,
    SharedConnection, find_non_number, find_wrong_type, is_transient,
};
pub use run::{
    BlockGrant, BlockRequest, CounterState, CounterStore, MemoryRunStore, RedisRunStore, ReportFields, ReportOutcome,
    ReportReceipt, RunCheckpoint, RunKeys, RunRecord, RunStore, START_POSITION, ShipOutcome, ShippedDelta,
    SourceAllocation, WorkerSubscription,
};
pub use slots::{
    ApiKeyScope, AttachOutcome, ClaimOutcome, EndReason, HeldSession, MemorySlotStore, OfferOutcome, RedisSlotStore,
    ReleaseCause, SlotAttach, SlotClaim, SlotGrant, SlotOffer, SlotSessionId, SlotSessionView, SlotSnapshot, SlotStore,
    SlotWorkerId, SlotWorkerView, StoredApiKey, api_key_id, api_key_name,
};
pub use spread::{UnitAssignment, spread};

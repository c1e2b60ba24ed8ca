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

pub use fleet_stores::{FleetStores, MemoryCell, RedisCell, prefix};
pub use ids::{Epoch, MemberId, Revision, UnitId};
pub use memory_lease_store::MemoryStore;
pub use pool::{
    AcquireError, Answer, Ask, Borrower, Counted, Hold, Item, ItemId, Listed, MemoryPools, PATIENCE, PoolCounts,
    PoolName, PoolNameError, PoolStore, Released, Stocked, Ticket, create, ensure,
};
pub use redis::{
    BlockingLink, Commands, Link, LinkError, PoolKeys, RedisPools, RedisStore, SpaceKeys, expect_numbers, expect_types,
    passing,
};
pub use run::{
    BEGINNING, Counter, Counters, Draw, Drawn, Heard, Holding, MemoryRun, RedisRun, Report, Reported, RunKeys,
    RunRecord, RunStore, Series, Shipped, ShippedDelta, Showcase, ShownSecond, ShownUsers, USERS_AT_ONCE, UserMove,
};
pub use membership::{Notice, Seat, SeatConfig, SeatConfigError, SeatHandle, Tenure};
pub use spread::{Assignment, spread};
pub use lease_store::{Acquired, Beat, Lease, Look, Member, Store, StoreError, View};

//! The in-memory stores of a fleet behind a switch: while it is off, every step fails as if the
//! store were unreachable.

use squall_coord::{
    BlockGrant, BlockRequest, CompatView, CounterState, CounterStore, FleetStores, HeartbeatOutcome, Lease,
    LeaseAcquireOutcome, LeaseSnapshot, LeaseStore, MemberId, MemoryFleetStores, MemoryLeaseStore, MemoryPoolStore,
    MemoryRunStore, MetricEntry, ReportFields, ReportOutcome, Revision, RunCheckpoint, RunRecord, RunStore, SecondRow,
    ShipOutcome, ShippedDelta, StoreError, UnitAssignment, UnitId, UserLocations, UserMove,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Access to the stores of a fleet that can be cut. Clones share the switch.
#[derive(Clone)]
pub(crate) struct SwitchedStores {
    stores: MemoryFleetStores,
    reachable: Arc<AtomicBool>,
}

/// One store behind the switch.
#[derive(Clone)]
pub(crate) struct Switched<S> {
    store: S,
    reachable: Arc<AtomicBool>,
}

impl SwitchedStores {
    pub(crate) fn new(stores: &MemoryFleetStores) -> SwitchedStores {
        SwitchedStores { stores: stores.clone(), reachable: Arc::new(AtomicBool::new(true)) }
    }

    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.reachable.store(reachable, Ordering::Relaxed);
    }

    fn switched<S>(&self, store: S) -> Switched<S> {
        Switched { store, reachable: self.reachable.clone() }
    }
}

impl<S> Switched<S> {
    fn reach(&self) -> Result<&S, StoreError> {
        match self.reachable.load(Ordering::Relaxed) {
            true => Ok(&self.store),
            false => Err(StoreError::Unreachable("the test has cut the connection".into())),
        }
    }
}

impl FleetStores for SwitchedStores {
    type Leases = Switched<MemoryLeaseStore>;
    type Run = Switched<MemoryRunStore>;
    type Pools = MemoryPoolStore;

    fn workers(&self) -> Switched<MemoryLeaseStore> {
        self.switched(self.stores.workers())
    }

    fn orchestrators(&self) -> Switched<MemoryLeaseStore> {
        self.switched(self.stores.orchestrators())
    }

    fn run(&self) -> Switched<MemoryRunStore> {
        self.switched(self.stores.run())
    }

    fn pools(&self) -> MemoryPoolStore {
        self.stores.pools()
    }
}

/// Forwards each method to the store behind the switch.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(async fn $name(&self, $($argument: $type),*) -> Result<$result, StoreError> {
            self.reach()?.$name($($argument),*).await
        })*
    };
}

impl LeaseStore for Switched<MemoryLeaseStore> {
    forward! {
        fn join(member: &MemberId, ttl: Duration) -> Revision;
        fn heartbeat(member: &MemberId, ttl: Duration) -> HeartbeatOutcome;
        fn mark_leaving(member: &MemberId) -> ();
        fn leave(member: &MemberId) -> ();
        fn sweep() -> Vec<MemberId>;
        fn snapshot() -> LeaseSnapshot;
        fn assign(expected: Revision, assignment: &UnitAssignment) -> bool;
        fn acquire(member: &MemberId, units: &[UnitId]) -> LeaseAcquireOutcome;
        fn release(member: &MemberId, leases: &[Lease]) -> usize;
    }

    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        self.reach()?.wait_for_change(seen, within).await
    }
}

impl RunStore for Switched<MemoryRunStore> {
    forward! {
        fn read_record() -> RunRecord;
        fn compare_and_set(seen: &RunRecord, state: &str, spec: &str, raise_epoch: bool) -> Option<RunRecord>;
        fn put_bundle(bytes: &[u8]) -> String;
        fn get_bundle(name: &str) -> Option<Vec<u8>>;
        fn report(worker: &str, report: &ReportFields, ttl: Duration) -> ReportOutcome;
        fn remove_worker(worker: &str) -> ();
        fn reports() -> BTreeMap<String, ReportFields>;
        fn ship(epoch: u64, source: &str, seq: u64, delta: &[u8]) -> ShipOutcome;
        fn deltas(epoch: u64, after: &str, most: usize) -> Vec<ShippedDelta>;
        fn save_checkpoint(epoch: u64, before: &str, position: &str, bytes: &[u8]) -> bool;
        fn load_checkpoint(epoch: u64) -> Option<RunCheckpoint>;
        fn set_notes(epoch: u64, notes: &[(String, String)]) -> ();
        fn extend_retention(epoch: u64, bundle: &str) -> ();
        fn notes(epoch: u64) -> BTreeMap<String, String>;
        fn publish(worker: &str, message: &str) -> u64;
    }

    fn subscribe(&self, worker: &str) -> squall_coord::WorkerSubscription {
        self.store.subscribe(worker)
    }
}

impl CounterStore for Switched<MemoryRunStore> {
    forward! {
        fn acquire_block(epoch: u64, counter: &str, source: &str, request: &BlockRequest) -> Option<BlockGrant>;
        fn counters(epoch: u64) -> BTreeMap<String, CounterState>;
        fn write_off(epoch: u64, counter: &str, source: &str) -> Option<u64>;
    }
}

impl CompatView for Switched<MemoryRunStore> {
    forward! {
        fn clear_compat_view(epoch: u64) -> ();
        fn user_locations(below: u64) -> UserLocations;
        fn move_users(epoch: u64, moved: UserMove<'_>) -> bool;
        fn mark_active_users(epoch: u64, worker: &str, users: &[u64], started: bool) -> bool;
        fn active_user_count(worker: &str) -> u64;
        fn extend_report(worker: &str, fields: &ReportFields) -> ();
        fn metric_entries(positions: &mut BTreeMap<String, String>, start: &str) -> Vec<MetricEntry>;
        fn append_metric_entries(entries: &[MetricEntry]) -> ();
        fn append_user_count(epoch: u64, count: u64, source: &str) -> bool;
        fn append_second(epoch: u64, at_ms: u64, rows: &[SecondRow]) -> bool;
    }
}

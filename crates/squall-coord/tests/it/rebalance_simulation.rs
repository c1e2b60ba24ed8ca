//! Rebalancing under pauses, crashes, lost requests and lost replies, in virtual time, one
//! simulation per seed.
//! Each unit stands for a resource that remembers the highest epoch that has fenced it, as a
//! partition's lock does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use squall_coord::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseEvent, LeaseHolder, LeaseSnapshot, LeaseStore, MemberId,
    Membership, MembershipConfig, MembershipValidity, MemoryLeaseStore, Revision, StoreError, UnitAssignment, UnitId,
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::support::{member, units};

const SEEDS: u64 = 300;
const UNITS: u32 = 7;
const FAULT_TIME: Duration = Duration::from_secs(25);
const RECOVERY_TIME: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct Dice(Arc<Mutex<fastrand::Rng>>);

impl Dice {
    fn below(&self, limit: u64) -> u64 {
        self.0.lock().unwrap().u64(..limit)
    }

    fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A process that can be paused and whose requests can be lost.
#[derive(Clone)]
struct Process {
    paused: Arc<AtomicBool>,
    resumed: Arc<Notify>,
    faulty: Arc<AtomicBool>,
    dice: Dice,
}

impl Process {
    /// Called at every point where a real process could be stopped.
    async fn wait_while_paused(&self) {
        let mut resumed = std::pin::pin!(self.resumed.notified());
        resumed.as_mut().enable();
        if self.paused.load(Relaxed) {
            resumed.await;
        }
    }

    fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    fn resume(&self) {
        self.paused.store(false, Relaxed);
        self.resumed.notify_waiters();
    }

    async fn network_hop(&self) -> Result<(), StoreError> {
        self.wait_while_paused().await;
        let faulty = self.faulty.load(Relaxed);
        let slow = faulty && self.dice.one_in(15);
        sleep(Duration::from_micros(self.dice.below(if slow { 1_500_000 } else { 3_000 }))).await;
        if faulty && self.dice.one_in(12) {
            return Err(StoreError::Unreachable("lost".into()));
        }
        Ok(())
    }
}

#[derive(Clone)]
struct FaultyStore {
    store: MemoryLeaseStore,
    process: Process,
}

/// The request can be lost on its way to the store, the reply on its way back.
macro_rules! faulty {
    ($self:ident, $call:expr) => {{
        $self.process.network_hop().await?;
        let answer = $call.await?;
        $self.process.network_hop().await?;
        Ok(answer)
    }};
}

impl LeaseStore for FaultyStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        faulty!(self, self.store.join(member, ttl))
    }
    async fn heartbeat(&self, member: &MemberId, ttl: Duration) -> Result<HeartbeatOutcome, StoreError> {
        faulty!(self, self.store.heartbeat(member, ttl))
    }
    async fn mark_leaving(&self, member: &MemberId) -> Result<(), StoreError> {
        faulty!(self, self.store.mark_leaving(member))
    }
    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        faulty!(self, self.store.leave(member))
    }
    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        faulty!(self, self.store.sweep())
    }
    async fn snapshot(&self) -> Result<LeaseSnapshot, StoreError> {
        faulty!(self, self.store.snapshot())
    }
    async fn assign(&self, expected: Revision, assignment: &UnitAssignment) -> Result<bool, StoreError> {
        faulty!(self, self.store.assign(expected, assignment))
    }
    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<LeaseAcquireOutcome, StoreError> {
        faulty!(self, self.store.acquire(member, units))
    }
    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        faulty!(self, self.store.release(member, leases))
    }
    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        faulty!(self, self.store.wait_for_change(seen, within))
    }
}

/// The resource of a unit: fenced by epoch, processed in order.
#[derive(Default)]
struct Resource {
    fence: u64,
    processed: u64,
    rejected: u64,
}

#[derive(Clone)]
struct World {
    store: MemoryLeaseStore,
    resources: Arc<Mutex<BTreeMap<UnitId, Resource>>>,
    seed: u64,
}

impl World {
    fn fence(&self, lease: &Lease) -> Option<u64> {
        let mut all = self.resources.lock().unwrap();
        let resource = all.get_mut(&lease.unit).unwrap();
        (lease.epoch.0 > resource.fence).then(|| {
            resource.fence = lease.epoch.0;
            resource.processed
        })
    }

    /// Whether the work was accepted; accepted work is always the next in order.
    fn finish(&self, lease: &Lease, number: u64) -> bool {
        let mut all = self.resources.lock().unwrap();
        let resource = all.get_mut(&lease.unit).unwrap();
        if resource.fence != lease.epoch.0 {
            resource.rejected += 1;
            return false;
        }
        assert_eq!(
            number, resource.processed,
            "seed {}: unit {} out of order at epoch {}",
            self.seed, lease.unit, lease.epoch
        );
        resource.processed += 1;
        true
    }
}

/// Processes one unit until it is stopped or fenced, or its lease is no longer valid.
async fn process_unit(
    world: World,
    process: Process,
    own_id: MemberId,
    lease: Lease,
    validity: MembershipValidity,
    stop: CancellationToken,
) -> Lease {
    process.wait_while_paused().await;
    let Some(mut next) = world.fence(&lease) else { return lease };
    while !stop.is_cancelled() && validity.is_valid() {
        // If the local clock trusts the lease, the store must agree.
        let holder = world.store.snapshot().await.unwrap().leases.get(&lease.unit).cloned();
        assert_eq!(
            holder,
            Some(LeaseHolder { member: own_id.clone(), epoch: lease.epoch }),
            "seed {}: {own_id} trusts a lease that it does not hold",
            world.seed
        );
        process.wait_while_paused().await;
        sleep(Duration::from_millis(20 + process.dice.below(200))).await;
        process.wait_while_paused().await;
        if !world.finish(&lease, next) {
            break;
        }
        next += 1;
    }
    lease
}

async fn process_leases(world: World, process: Process, own_id: MemberId, mut handle: squall_coord::MembershipHandle) {
    // By lease and not by unit, because work on a lost lease may end after the next grant of the
    // same unit.
    let mut running: BTreeMap<Lease, CancellationToken> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => {
                let lease: Lease = ended.unwrap();
                running.remove(&lease);
                handle.release(lease);
            }
            event = handle.events.recv() => match event {
                None => return,
                Some(LeaseEvent::Granted(lease)) => {
                    let stop = CancellationToken::new();
                    running.insert(lease.clone(), stop.clone());
                    tasks.spawn(process_unit(world.clone(), process.clone(), own_id.clone(), lease, handle.validity.clone(), stop));
                }
                Some(LeaseEvent::ReturnRequested(lease) | LeaseEvent::Lost(lease)) => {
                    if let Some(stop) = running.get(&lease) { stop.cancel(); }
                }
            },
        }
    }
}

struct SimulatedMember {
    process: Process,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn start_member(world: &World, name: String, dice: &Dice, faulty: &Arc<AtomicBool>) -> SimulatedMember {
    let process =
        Process { paused: Arc::default(), resumed: Arc::default(), faulty: faulty.clone(), dice: dice.clone() };
    let store = FaultyStore { store: world.store.clone(), process: process.clone() };
    let (membership, handle) = Membership::new(store, MembershipConfig::new(member(&name), units(UNITS))).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(membership.run(stop.clone()));
    tasks.spawn(process_leases(world.clone(), process.clone(), member(&name), handle));
    SimulatedMember { process, stop, tasks }
}

/// Runs one simulation; returns how much work was processed and how much a fence rejected.
async fn simulate(seed: u64) -> (u64, u64) {
    let dice = Dice(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))));
    let resources = units(UNITS).into_iter().map(|unit| (unit, Resource::default())).collect();
    let world = World { store: MemoryLeaseStore::new(), resources: Arc::new(Mutex::new(resources)), seed };
    let faulty = Arc::new(AtomicBool::new(true));
    let mut members: Vec<SimulatedMember> =
        (0..3).map(|n| start_member(&world, format!("n{n}"), &dice, &faulty)).collect();
    let mut next_number = members.len();
    let begin = Instant::now();
    while begin.elapsed() < FAULT_TIME {
        sleep(Duration::from_millis(300 + dice.below(1_500))).await;
        let chosen = dice.below(members.len() as u64) as usize;
        match dice.below(6) {
            0 if members.len() > 1 => drop(members.swap_remove(chosen)), // SIGKILL: tasks are aborted
            1 if members.len() > 1 => {
                let mut simulated = members.swap_remove(chosen);
                simulated.stop.cancel();
                let _ = tokio::time::timeout(Duration::from_secs(2), async {
                    while simulated.tasks.join_next().await.is_some() {}
                })
                .await;
            }
            2 | 3 => {
                // SIGSTOP, often past the TTL; the others continue.
                let process = members[chosen].process.clone();
                process.pause();
                sleep(Duration::from_millis(dice.below(7_000))).await;
                process.resume();
            }
            _ if members.len() < 6 => {
                members.push(start_member(&world, format!("n{next_number}"), &dice, &faulty));
                next_number += 1;
            }
            _ => {}
        }
    }
    faulty.store(false, Relaxed);
    let before: Vec<u64> = world.resources.lock().unwrap().values().map(|resource| resource.processed).collect();
    sleep(RECOVERY_TIME).await;
    let snapshot = world.store.snapshot().await.unwrap();
    assert_eq!(snapshot.leases.len(), UNITS as usize, "seed {seed}: every unit is held after the faults: {snapshot:?}");
    let mut shares: BTreeMap<MemberId, u32> = snapshot.members.iter().map(|member| (member.id.clone(), 0)).collect();
    snapshot.leases.values().for_each(|holder| *shares.get_mut(&holder.member).unwrap() += 1);
    assert!(shares.values().max().unwrap() - shares.values().min().unwrap() <= 1, "seed {seed}: unfair {shares:?}");
    let all = world.resources.lock().unwrap();
    for (resource, before) in all.values().zip(before) {
        assert!(resource.processed > before, "seed {seed}: a unit makes no progress");
    }
    (all.values().map(|resource| resource.processed).sum(), all.values().map(|resource| resource.rejected).sum())
}

fn simulate_in_virtual_time(seed: u64) -> (u64, u64) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(simulate(seed))
}

#[test]
fn every_seed_keeps_exclusivity_order_and_progress() {
    let rejected: u64 = (0..SEEDS).map(|seed| simulate_in_virtual_time(seed).1).sum();
    // The simulation is meaningful: without fencing, work of stale owners would have been accepted.
    assert!(rejected > 0, "the simulation never produced a stale owner");
}

#[test]
fn same_seed_gives_the_same_result() {
    assert_eq!(simulate_in_virtual_time(7), simulate_in_virtual_time(7));
}

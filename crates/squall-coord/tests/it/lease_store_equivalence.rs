//! Random operations on both lease stores at once: the memory store is the model for the Lua
//! scripts.

use std::{collections::BTreeMap, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    Lease, LeaseAcquireOutcome, LeaseEpoch, LeaseHolder, LeaseSnapshot, LeaseStore, MemberId, MemoryLeaseStore,
    RedisLeaseStore, Revision, UnitAssignment, UnitId, spread,
};
use squall_testkit::redis::RedisServer;

use crate::support::{AdvanceClock, keys, member, units};

/// Far longer than a test takes, so that only `Step::AdvanceTime` and `Step::PauseMember` make
/// members expire.
const TTL: Duration = Duration::from_secs(100_000);
const UNITS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Heartbeat(u8),
    MarkLeaving(u8),
    Leave(u8),
    Sweep,
    Assign {
        stale: bool,
    },
    Acquire(u8, Vec<u32>),
    /// Releases a unit with its epoch, or with an earlier one.
    Release(u8, u32, bool),
    /// Tenths of the TTL.
    AdvanceTime(u32),
    /// All other members send heartbeats for longer than the TTL: this one was paused and has
    /// expired.
    PauseMember(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0u8..4;
    let step = prop_oneof![
        3 => who.clone().prop_map(Step::Join),
        3 => who.clone().prop_map(Step::Heartbeat),
        1 => who.clone().prop_map(Step::MarkLeaving),
        1 => who.clone().prop_map(Step::Leave),
        1 => Just(Step::Sweep),
        2 => any::<bool>().prop_map(|stale| Step::Assign { stale }),
        4 => (who.clone(), proptest::collection::vec(0..UNITS, 1..4)).prop_map(|(who, units)| Step::Acquire(who, units)),
        3 => (who, 0..UNITS, any::<bool>()).prop_map(|(who, unit, stale)| Step::Release(who, unit, stale)),
        2 => (1u32..8).prop_map(Step::AdvanceTime),
        2 => (0u8..4).prop_map(Step::PauseMember),
    ];
    proptest::collection::vec(step, 1..60)
}

fn numbered_member(who: u8) -> MemberId {
    member(&format!("m{who}"))
}

async fn apply(step: &Step, store: &impl AdvanceClock, snapshot: &LeaseSnapshot) -> String {
    match step {
        Step::Join(who) => format!("{:?}", store.join(&numbered_member(*who), TTL).await.unwrap()),
        Step::Heartbeat(who) => format!("{:?}", store.heartbeat(&numbered_member(*who), TTL).await.unwrap()),
        Step::MarkLeaving(who) => format!("{:?}", store.mark_leaving(&numbered_member(*who)).await.unwrap()),
        Step::Leave(who) => format!("{:?}", store.leave(&numbered_member(*who)).await.unwrap()),
        Step::Sweep => {
            let mut dead = store.sweep().await.unwrap();
            dead.sort();
            format!("{dead:?}")
        }
        Step::Assign { stale } => {
            let members: Vec<MemberId> = snapshot.members.iter().map(|member| member.id.clone()).collect();
            let wanted = spread(&units(UNITS), &members, &snapshot.assignment);
            let revision = Revision(snapshot.revision.0 - u64::from(*stale && snapshot.revision.0 > 0));
            format!("{:?}", store.assign(revision, &wanted).await.unwrap())
        }
        Step::Acquire(who, wanted) => {
            let wanted: Vec<UnitId> = wanted.iter().map(|unit| UnitId::from(*unit)).collect();
            format!("{:?}", store.acquire(&numbered_member(*who), &wanted).await.unwrap())
        }
        Step::Release(who, unit, stale) => {
            let unit = UnitId::from(*unit);
            let epoch = snapshot.leases.get(&unit).map_or(0, |holder| holder.epoch.0).saturating_sub(u64::from(*stale));
            format!(
                "{:?}",
                store.release(&numbered_member(*who), &[Lease { unit, epoch: LeaseEpoch(epoch) }]).await.unwrap()
            )
        }
        Step::PauseMember(who) => {
            let mut outcomes = String::new();
            for _ in 0..3 {
                for other in (0..4).filter(|other| other != who) {
                    outcomes += &format!("{:?}", store.heartbeat(&numbered_member(other), TTL).await.unwrap());
                }
                store.advance(TTL / 10 * 4);
            }
            outcomes + &format!("{:?}", store.heartbeat(&numbered_member(*who), TTL).await.unwrap())
        }
        Step::AdvanceTime(tenths) => format!("{:?}", store.advance(TTL / 10 * *tenths)),
    }
}

type ObservedState = (Revision, Vec<(MemberId, bool)>, UnitAssignment, BTreeMap<UnitId, LeaseHolder>);

/// A snapshot without times, which the two clocks do not share.
fn observed_state(snapshot: LeaseSnapshot) -> ObservedState {
    (
        snapshot.revision,
        snapshot.members.into_iter().map(|m| (m.id, m.leaving)).collect(),
        snapshot.assignment,
        snapshot.leases,
    )
}

/// The invariants after every step.
fn check_invariants(
    step: &Step,
    before: ObservedState,
    after: ObservedState,
    highest_epoch: &mut u64,
) -> Result<(), TestCaseError> {
    let (_, members, _, leases) = &after;
    let known = units(UNITS);
    let newest = *highest_epoch;
    for (unit, held) in leases {
        let LeaseHolder { member: holder, epoch } = held;
        prop_assert!(members.iter().any(|(id, _)| id == holder), "{holder} holds a unit, but is not a member");
        prop_assert!(known.contains(unit), "{unit} is not a known unit");
        // A lease is unchanged, or its epoch is higher than all earlier ones.
        let kept = before.3.get(unit) == Some(held);
        prop_assert!(kept || epoch.0 > newest, "{unit} was granted to {holder} with the old epoch {epoch}");
        *highest_epoch = (*highest_epoch).max(epoch.0);
    }
    let epochs: std::collections::BTreeSet<LeaseEpoch> = leases.values().map(|holder| holder.epoch).collect();
    prop_assert_eq!(epochs.len(), leases.len(), "two units have the same epoch");
    let held: usize = members.iter().map(|(id, _)| leases.values().filter(|holder| holder.member == *id).count()).sum();
    prop_assert_eq!(held, leases.len(), "the counts of members do not add up to the leases");
    if matches!(step, Step::Assign { stale: true } | Step::Release(_, _, true)) && before.0.0 > 0 {
        prop_assert_eq!(before, after, "an outdated operation changed something");
    }
    Ok(())
}

#[test]
fn memory_and_redis_lease_stores_agree() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(squall_coord::RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            let model = MemoryLeaseStore::new();
            let real = RedisLeaseStore::new(&client, keys(&format!("case-{:x}", fastrand::u64(..))));
            let mut highest_epoch = 0;
            for step in &steps {
                let before = model.snapshot().await.unwrap();
                let expected = apply(step, &model, &before).await;
                let got = apply(step, &real, &before).await;
                prop_assert_eq!(expected, got, "{:?}", step);
                let after = observed_state(real.snapshot().await.unwrap());
                prop_assert_eq!(observed_state(model.snapshot().await.unwrap()), after.clone(), "{:?}", step);
                for who in 0..4 {
                    let expected = model.snapshot().await.unwrap().for_member(&numbered_member(who));
                    prop_assert_eq!(expected, real.member_snapshot(&numbered_member(who)).await.unwrap(), "{:?}", step);
                }
                check_invariants(step, observed_state(before), after, &mut highest_epoch)?;
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

/// Many tasks compete for the same units on a real server; two members never hold the same unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_members_never_share_a_unit() {
    let server = RedisServer::start();
    let client = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let holders: std::sync::Arc<Vec<std::sync::atomic::AtomicU32>> =
        std::sync::Arc::new((0..UNITS).map(|_| Default::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for who in 0..8 {
        let store = RedisLeaseStore::new(&client, keys("race"));
        let holders = holders.clone();
        tasks.spawn(async move {
            let own_id = numbered_member(who);
            store.join(&own_id, TTL).await.unwrap();
            for round in 0..150u32 {
                let unit = (round + u32::from(who)) % UNITS;
                let LeaseAcquireOutcome::Granted(grants) = store.acquire(&own_id, &[UnitId::from(unit)]).await.unwrap()
                else {
                    panic!("not a member")
                };
                let Some(epoch) = grants[0] else { continue };
                let at = &holders[unit as usize];
                assert_eq!(at.swap(u32::from(who) + 1, std::sync::atomic::Ordering::SeqCst), 0, "held twice");
                tokio::task::yield_now().await;
                at.store(0, std::sync::atomic::Ordering::SeqCst);
                store.release(&own_id, &[Lease { unit: UnitId::from(unit), epoch }]).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

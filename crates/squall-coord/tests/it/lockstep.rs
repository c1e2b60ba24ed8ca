//! Random steps on both stores at once: the memory store is the oracle for the Lua scripts.

use std::{collections::BTreeMap, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    Epoch, Lease, LeaseAcquireOutcome, LeaseSnapshot, LeaseStore, MemberId, MemoryLeaseStore, RedisLeaseStore,
    Revision, UnitAssignment, UnitId, spread,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Advance, keys, member, units};

/// Far longer than a test takes, so that only `Step::Wait` makes time pass.
const TTL: Duration = Duration::from_secs(100_000);
const UNITS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Beat(u8),
    Retire(u8),
    Leave(u8),
    Sweep,
    Assign {
        stale: bool,
    },
    Acquire(u8, Vec<u32>),
    /// Gives back a unit with the epoch it has, or with one before.
    Release(u8, u32, bool),
    /// Tenths of a life.
    Wait(u32),
    /// Everybody but this one beats while more than a life passes: it was stopped, and wakes up as a stranger.
    Pause(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0u8..4;
    let step = prop_oneof![
        3 => who.clone().prop_map(Step::Join),
        3 => who.clone().prop_map(Step::Beat),
        1 => who.clone().prop_map(Step::Retire),
        1 => who.clone().prop_map(Step::Leave),
        1 => Just(Step::Sweep),
        2 => any::<bool>().prop_map(|stale| Step::Assign { stale }),
        4 => (who.clone(), proptest::collection::vec(0..UNITS, 1..4)).prop_map(|(who, units)| Step::Acquire(who, units)),
        3 => (who, 0..UNITS, any::<bool>()).prop_map(|(who, unit, stale)| Step::Release(who, unit, stale)),
        2 => (1u32..8).prop_map(Step::Wait),
        2 => (0u8..4).prop_map(Step::Pause),
    ];
    proptest::collection::vec(step, 1..60)
}

fn named(who: u8) -> MemberId {
    member(&format!("m{who}"))
}

async fn apply(step: &Step, store: &impl Advance, view: &LeaseSnapshot) -> String {
    match step {
        Step::Join(who) => format!("{:?}", store.join(&named(*who), TTL).await.unwrap()),
        Step::Beat(who) => format!("{:?}", store.heartbeat(&named(*who), TTL).await.unwrap()),
        Step::Retire(who) => format!("{:?}", store.mark_leaving(&named(*who)).await.unwrap()),
        Step::Leave(who) => format!("{:?}", store.leave(&named(*who)).await.unwrap()),
        Step::Sweep => {
            let mut dead = store.sweep().await.unwrap();
            dead.sort();
            format!("{dead:?}")
        }
        Step::Assign { stale } => {
            let members: Vec<MemberId> = view.members.iter().map(|member| member.id.clone()).collect();
            let wanted = spread(&units(UNITS), &members, &view.assignment);
            let revision = Revision(view.revision.0 - u64::from(*stale && view.revision.0 > 0));
            format!("{:?}", store.assign(revision, &wanted).await.unwrap())
        }
        Step::Acquire(who, wanted) => {
            let wanted: Vec<UnitId> = wanted.iter().map(|unit| UnitId::from(*unit)).collect();
            format!("{:?}", store.acquire(&named(*who), &wanted).await.unwrap())
        }
        Step::Release(who, unit, stale) => {
            let unit = UnitId::from(*unit);
            let epoch = view.leases.get(&unit).map_or(0, |(_, epoch)| epoch.0).saturating_sub(u64::from(*stale));
            format!("{:?}", store.release(&named(*who), &[Lease { unit, epoch: Epoch(epoch) }]).await.unwrap())
        }
        Step::Pause(who) => {
            let mut answers = String::new();
            for _ in 0..3 {
                for other in (0..4).filter(|other| other != who) {
                    answers += &format!("{:?}", store.heartbeat(&named(other), TTL).await.unwrap());
                }
                store.advance(TTL / 10 * 4);
            }
            answers + &format!("{:?}", store.heartbeat(&named(*who), TTL).await.unwrap())
        }
        Step::Wait(tenths) => format!("{:?}", store.advance(TTL / 10 * *tenths)),
    }
}

type Facts = (Revision, Vec<(MemberId, bool)>, UnitAssignment, BTreeMap<UnitId, (MemberId, Epoch)>);

/// Everything but times, which the two clocks do not share.
fn facts(view: LeaseSnapshot) -> Facts {
    (view.revision, view.members.into_iter().map(|m| (m.id, m.leaving)).collect(), view.assignment, view.leases)
}

/// What must hold whatever happens.
fn check(step: &Step, before: Facts, after: Facts, granted: &mut u64) -> Result<(), TestCaseError> {
    let (_, members, _, leases) = &after;
    let known = units(UNITS);
    let newest = *granted;
    for (unit, (holder, epoch)) in leases {
        prop_assert!(members.iter().any(|(id, _)| id == holder), "{holder} holds, but is no member");
        prop_assert!(known.contains(unit), "{unit} was made up");
        // A lease is as it was, or a grant newer than all that were ever made.
        let kept = before.3.get(unit) == Some(&(holder.clone(), *epoch));
        prop_assert!(kept || epoch.0 > newest, "{unit} went to {holder} by an old grant {epoch}");
        *granted = (*granted).max(epoch.0);
    }
    let epochs: std::collections::BTreeSet<Epoch> = leases.values().map(|(_, epoch)| *epoch).collect();
    prop_assert_eq!(epochs.len(), leases.len(), "one grant for two units");
    let held: usize = members.iter().map(|(id, _)| leases.values().filter(|(holder, _)| holder == id).count()).sum();
    prop_assert_eq!(held, leases.len(), "the counts of members do not add up to the leases");
    if matches!(step, Step::Assign { stale: true } | Step::Release(_, _, true)) && before.0.0 > 0 {
        prop_assert_eq!(before, after, "a stale step changed something");
    }
    Ok(())
}

#[test]
fn both_stores_give_the_same_answers() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let link = runtime.block_on(squall_coord::RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            let model = MemoryLeaseStore::new();
            let real = RedisLeaseStore::new(&link, keys(&format!("case-{:x}", fastrand::u64(..))));
            let mut granted = 0;
            for step in &steps {
                let before = model.snapshot().await.unwrap();
                let expected = apply(step, &model, &before).await;
                let got = apply(step, &real, &before).await;
                prop_assert_eq!(expected, got, "{:?}", step);
                let after = facts(real.snapshot().await.unwrap());
                prop_assert_eq!(facts(model.snapshot().await.unwrap()), after.clone(), "{:?}", step);
                for who in 0..4 {
                    let expected = model.snapshot().await.unwrap().for_member(&named(who));
                    prop_assert_eq!(expected, real.member_snapshot(&named(who)).await.unwrap(), "{:?}", step);
                }
                check(step, facts(before), after, &mut granted)?;
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

/// Many tasks race for the same units on a real server; nobody ever holds what another holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_members_never_share_a_unit() {
    let server = RedisServer::start();
    let link = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let holders: std::sync::Arc<Vec<std::sync::atomic::AtomicU32>> =
        std::sync::Arc::new((0..UNITS).map(|_| Default::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for who in 0..8 {
        let store = RedisLeaseStore::new(&link, keys("race"));
        let holders = holders.clone();
        tasks.spawn(async move {
            let me = named(who);
            store.join(&me, TTL).await.unwrap();
            for round in 0..150u32 {
                let unit = (round + u32::from(who)) % UNITS;
                let LeaseAcquireOutcome::Granted(grants) = store.acquire(&me, &[UnitId::from(unit)]).await.unwrap()
                else {
                    panic!("gone")
                };
                let Some(epoch) = grants[0] else { continue };
                let at = &holders[unit as usize];
                assert_eq!(at.swap(u32::from(who) + 1, std::sync::atomic::Ordering::SeqCst), 0, "held twice");
                tokio::task::yield_now().await;
                at.store(0, std::sync::atomic::Ordering::SeqCst);
                store.release(&me, &[Lease { unit: UnitId::from(unit), epoch }]).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

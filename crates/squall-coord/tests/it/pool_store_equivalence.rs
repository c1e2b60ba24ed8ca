//! Random operations on the pools of both stores at once: the memory store is the model for the Lua
//! scripts.
//! The server chooses which free item it grants, so outcomes are compared without ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    ItemId, LeaseEpoch, LeaseStore, MemberId, PoolHolder, PoolItem, PoolLease, PoolName, PoolReleaseOutcome,
    PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, RedisClient, RunEpoch,
};
use squall_testkit::redis::RedisServer;

use crate::support::{AdvanceClock, MemoryTestStores, RedisTestStores, TestStores, member};

/// Far longer than a test takes, so that only `Step::AdvanceTime` makes members expire. The turn
/// timeout is 3 s, so a case must be quicker.
const TTL: Duration = Duration::from_secs(100_000);

#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Leave(u8),
    /// Number of items, largest size of the pool, and run: any, the current one, or the previous
    /// one.
    Put(u64, Option<u64>, Option<u64>),
    /// For the current run, or for the previous one.
    Reset(bool),
    NextNumber(Option<u64>),
    /// Member, and whether it waits.
    Request(u8, bool),
    /// Repeats an earlier request.
    RepeatRequest(usize),
    Cancel(usize),
    Release(usize),
    /// By another member, of another grant, or of an earlier run.
    ForgeRelease(usize, u8),
    ReleaseAll(u8),
    Sweep,
    BeginRun,
    /// Tenths of the TTL; 0 is the turn timeout.
    AdvanceTime(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, any) = (0u8..4, any::<usize>());
    let step = prop_oneof![
        4 => who.clone().prop_map(Step::Join),
        1 => who.clone().prop_map(Step::Leave),
        2 => (1u64..8, proptest::option::of(0u64..8), proptest::option::of(0u64..2))
            .prop_map(|(count, limit, before)| Step::Put(count, limit, before)),
        1 => proptest::bool::weighted(0.8).prop_map(Step::Reset),
        2 => proptest::option::of(0u64..5).prop_map(Step::NextNumber),
        8 => (who.clone(), proptest::bool::weighted(0.7)).prop_map(|(who, wait)| Step::Request(who, wait)),
        5 => any.prop_map(Step::RepeatRequest),
        2 => any.prop_map(Step::Cancel),
        5 => any.prop_map(Step::Release),
        2 => (any, 0u8..3).prop_map(|(lease, how)| Step::ForgeRelease(lease, how)),
        1 => who.prop_map(Step::ReleaseAll),
        1 => Just(Step::Sweep),
        1 => Just(Step::BeginRun),
        2 => (0u32..6).prop_map(Step::AdvanceTime),
    ];
    proptest::collection::vec(step, 1..80)
}

fn numbered_member(who: u8) -> MemberId {
    member(&format!("m{who}"))
}

fn pool() -> PoolName {
    PoolName::new("items").unwrap()
}

/// One store with its requests and leases so far; both stores number them alike.
struct StoreUnderTest<C> {
    stores: C,
    requests: Vec<PoolRequest>,
    leases: Vec<PoolLease>,
}

impl<C: TestStores> StoreUnderTest<C> {
    fn new(stores: C) -> Self {
        Self { stores, requests: Vec::new(), leases: Vec::new() }
    }

    async fn request(&mut self, request: &PoolRequest, wait: Duration) -> String {
        match self.stores.pools().try_acquire(request, wait).await.unwrap() {
            PoolRequestOutcome::Granted(lease) => {
                let outcome = format!("granted {} to {} for {}", lease.grant, lease.holder, lease.run);
                if !self.leases.contains(&lease) {
                    self.leases.push(lease);
                }
                outcome
            }
            PoolRequestOutcome::Queued { ahead, .. } => format!("waiting after {ahead}"),
            other => format!("{other:?}"),
        }
    }

    /// Performs a step and returns a comparable outcome.
    async fn apply(&mut self, step: &Step, run: RunEpoch, request_ids: &[PoolRequestId]) -> String {
        let (members, pools) = (self.stores.members().clone(), self.stores.pools().clone());
        match step {
            Step::Join(who) => format!("{:?}", members.join(&numbered_member(*who), TTL).await.unwrap()),
            Step::Leave(who) => format!("{:?}", members.leave(&numbered_member(*who)).await.unwrap()),
            Step::Put(count, limit, before) => {
                let items: Vec<PoolItem> =
                    (1..=*count).map(|n| PoolItem { id: ItemId::from(n), payload: format!("p{n}") }).collect();
                let run = before.map(|before| RunEpoch(run.0 - before));
                format!("{:?}", pools.put(&pool(), &items, *limit, run).await.unwrap())
            }
            Step::Reset(now) => {
                let run = RunEpoch(run.0 - u64::from(!now));
                format!("{:?}", pools.reset_for_run(&pool(), run).await.unwrap())
            }
            Step::NextNumber(limit) => format!("{:?}", pools.next_item_number(&pool(), run, *limit).await.unwrap()),
            Step::Request(who, wait) => {
                let request_id = request_ids[self.requests.len()].clone();
                let request = PoolRequest { pool: pool(), holder: numbered_member(*who), run, request_id };
                self.requests.push(request.clone());
                self.request(&request, if *wait { TTL * 100 } else { Duration::ZERO }).await
            }
            Step::RepeatRequest(which) => match self.requests.get(which % self.requests.len().max(1)).cloned() {
                Some(request) => self.request(&request, TTL * 100).await,
                None => String::new(),
            },
            Step::Cancel(which) => match self.requests.get(which % self.requests.len().max(1)) {
                Some(request) => format!("{:?}", pools.cancel_request(&pool(), &request.request_id).await.unwrap()),
                None => String::new(),
            },
            Step::Release(which) => match self.leases.get(which % self.leases.len().max(1)) {
                Some(lease) => format!("{:?}", pools.release(lease).await.unwrap()),
                None => String::new(),
            },
            Step::ForgeRelease(which, how) => match self.leases.get(which % self.leases.len().max(1)) {
                Some(lease) => {
                    let mut forged = lease.clone();
                    match how {
                        0 => forged.holder = member("stranger"),
                        1 => forged.grant = LeaseEpoch(forged.grant.0 + 1_000_000),
                        _ => forged.run = RunEpoch(0),
                    }
                    let outcome = pools.release(&forged).await.unwrap();
                    assert_ne!(outcome, PoolReleaseOutcome::Released, "a forged release was accepted");
                    format!("{outcome:?}")
                }
                None => String::new(),
            },
            Step::ReleaseAll(who) => format!("{:?}", pools.release_all(&numbered_member(*who)).await.unwrap()),
            Step::Sweep => format!("{:?}", pools.sweep().await.unwrap()),
            Step::BeginRun => format!("{:?}", self.stores.begin_run(run).await),
            Step::AdvanceTime(0) => format!("{:?}", members.advance(squall_coord::TURN_TIMEOUT)),
            Step::AdvanceTime(tenths) => format!("{:?}", members.advance(TTL / 10 * *tenths)),
        }
    }

    /// The state that both stores must agree on. Also checks the invariants of each.
    async fn observed_state(
        &self,
    ) -> (u64, u64, u64, u64, BTreeMap<MemberId, usize>, BTreeSet<(LeaseEpoch, RunEpoch)>) {
        let Some(counts) = self.stores.pools().count_all().await.unwrap().pools.pop() else {
            return Default::default();
        };
        let listed = self.stores.pools().list(&pool(), 1000).await.unwrap();
        let ids: BTreeSet<&ItemId> = listed.iter().map(|item| &item.id).collect();
        assert_eq!(ids.len(), listed.len(), "an item is both free and held: {listed:?}");
        assert_eq!(counts.total, counts.available + counts.held, "an item was lost or invented");
        assert_eq!(counts.total, listed.len() as u64);
        assert!(
            listed.iter().all(|item| item.payload == format!("p{}", item.id)),
            "an id without its payload: {listed:?}"
        );
        let mut holders: BTreeMap<MemberId, usize> = BTreeMap::new();
        let mut grants = BTreeSet::new();
        for PoolHolder { member, run, grant } in listed.into_iter().filter_map(|item| item.held) {
            *holders.entry(member).or_default() += 1;
            assert!(grants.insert((grant, run)), "two items have the same grant");
        }
        assert_eq!(counts.held, grants.len() as u64);
        (counts.total, counts.available, counts.held, counts.waiting, holders, grants)
    }
}

#[test]
fn memory_and_redis_pools_agree_and_lose_no_item() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            let mut model = StoreUnderTest::new(MemoryTestStores::new());
            let mut real = StoreUnderTest::new(RedisTestStores::new(&client, &format!("case-{:x}", fastrand::u64(..))));
            let request_ids: Vec<PoolRequestId> = steps.iter().map(|_| PoolRequestId::unique()).collect();
            let mut run = RunEpoch(1);
            for step in &steps {
                run.0 += u64::from(matches!(step, Step::BeginRun));
                let expected = model.apply(step, run, &request_ids).await;
                let got = real.apply(step, run, &request_ids).await;
                prop_assert_eq!(expected, got, "{:?}", step);
                prop_assert_eq!(model.observed_state().await, real.observed_state().await, "{:?}", step);
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

/// Many holders compete for a few items on a real server; two never hold the same item, and none is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_holders_never_share_an_item() {
    const ITEMS: u64 = 3;
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "race");
    let items: Vec<PoolItem> = (1..=ITEMS).map(|n| PoolItem { id: ItemId::from(n), payload: n.to_string() }).collect();
    let current_users: std::sync::Arc<Vec<std::sync::atomic::AtomicU32>> =
        std::sync::Arc::new((0..=ITEMS).map(|_| Default::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for who in 0..8u8 {
        // Each holder has its own stores, as a process would, and each fills the pool.
        let (stores, current_users, items) =
            (RedisTestStores::new(&client, "race"), current_users.clone(), items.clone());
        tasks.spawn(async move {
            stores.members().join(&numbered_member(who), TTL).await.unwrap();
            let holder = squall_coord::ResourceHolder::new(stores.pools().clone(), numbered_member(who), RunEpoch(1));
            for _ in 0..40 {
                stores.pools().put(&pool(), &items, Some(ITEMS), None).await.unwrap();
                let lease = holder.acquire(&pool(), Duration::from_secs(300)).await.unwrap();
                let at = &current_users[lease.payload.parse::<usize>().unwrap()];
                assert_eq!(at.swap(u32::from(who) + 1, std::sync::atomic::Ordering::SeqCst), 0, "used twice");
                tokio::task::yield_now().await;
                at.store(0, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(holder.release(&lease).await.unwrap(), PoolReleaseOutcome::Released);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let counts = stores.pools().count_all().await.unwrap().pools.remove(0);
    assert_eq!((counts.total, counts.available, counts.held, counts.waiting), (ITEMS, ITEMS, 0, 0));
}

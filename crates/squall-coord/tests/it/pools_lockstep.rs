//! Random steps on the pools of both stores at once: memory is the oracle for the Lua scripts. Which of the free things
//! somebody gets is the server's choice, so answers are compared but for ids, and what they must never be is checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    Epoch, ItemId, LeaseStore, MemberId, PoolItem, PoolLease, PoolName, PoolReleaseOutcome, PoolRequest, PoolRequestId,
    PoolRequestOutcome, PoolStore, RedisClient,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Advance, Cell, MemoryCell, RedisCell, member};

/// Far longer than a test takes, so that only `Step::Pass` makes time pass. Patience is 3 s, so a case must be quicker.
const TTL: Duration = Duration::from_secs(100_000);

#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Kill(u8),
    /// How many, up to how many, and for which run: none, this one, or the one before.
    Put(u64, Option<u64>, Option<u64>),
    /// For this run, or for the one before.
    Renew(bool),
    Number(Option<u64>),
    /// Who, and whether it would wait.
    Ask(u8, bool),
    /// Asks again with an earlier ticket.
    Again(usize),
    Forget(usize),
    Release(usize),
    /// By somebody else, of another grant, or of an earlier run.
    Forge(usize, u8),
    ReleaseAll(u8),
    Sweep,
    BeginRun,
    /// Tenths of a life, or the time of patience.
    Pass(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, any) = (0u8..4, any::<usize>());
    let step = prop_oneof![
        4 => who.clone().prop_map(Step::Join),
        1 => who.clone().prop_map(Step::Kill),
        2 => (1u64..8, proptest::option::of(0u64..8), proptest::option::of(0u64..2))
            .prop_map(|(count, limit, before)| Step::Put(count, limit, before)),
        1 => proptest::bool::weighted(0.8).prop_map(Step::Renew),
        2 => proptest::option::of(0u64..5).prop_map(Step::Number),
        8 => (who.clone(), proptest::bool::weighted(0.7)).prop_map(|(who, wait)| Step::Ask(who, wait)),
        5 => any.prop_map(Step::Again),
        2 => any.prop_map(Step::Forget),
        5 => any.prop_map(Step::Release),
        2 => (any, 0u8..3).prop_map(|(hold, how)| Step::Forge(hold, how)),
        1 => who.prop_map(Step::ReleaseAll),
        1 => Just(Step::Sweep),
        1 => Just(Step::BeginRun),
        2 => (0u32..6).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..80)
}

fn named(who: u8) -> MemberId {
    member(&format!("m{who}"))
}

fn pool() -> PoolName {
    PoolName::new("things").unwrap()
}

/// What one side has seen so far; both sides number their asks and holds alike.
struct Side<C> {
    cell: C,
    asks: Vec<PoolRequest>,
    holds: Vec<PoolLease>,
}

impl<C: Cell> Side<C> {
    fn new(cell: C) -> Self {
        Self { cell, asks: Vec::new(), holds: Vec::new() }
    }

    async fn ask(&mut self, ask: &PoolRequest, wait: Duration) -> String {
        match self.cell.pools().try_acquire(ask, wait).await.unwrap() {
            PoolRequestOutcome::Granted(hold) => {
                let told = format!("granted {} to {} for {}", hold.grant, hold.holder, hold.run);
                if !self.holds.contains(&hold) {
                    self.holds.push(hold);
                }
                told
            }
            PoolRequestOutcome::Queued { ahead, .. } => format!("waiting after {ahead}"),
            other => format!("{other:?}"),
        }
    }

    /// Does a step; the answer is comparable.
    async fn apply(&mut self, step: &Step, run: Epoch, tickets: &[PoolRequestId]) -> String {
        let (members, pools) = (self.cell.members().clone(), self.cell.pools().clone());
        match step {
            Step::Join(who) => format!("{:?}", members.join(&named(*who), TTL).await.unwrap()),
            Step::Kill(who) => format!("{:?}", members.leave(&named(*who)).await.unwrap()),
            Step::Put(count, limit, before) => {
                let items: Vec<PoolItem> =
                    (1..=*count).map(|n| PoolItem { id: ItemId::from(n), payload: format!("p{n}") }).collect();
                let run = before.map(|before| Epoch(run.0 - before));
                format!("{:?}", pools.put(&pool(), &items, *limit, run).await.unwrap())
            }
            Step::Renew(now) => {
                let run = Epoch(run.0 - u64::from(!now));
                format!("{:?}", pools.reset_for_run(&pool(), run).await.unwrap())
            }
            Step::Number(limit) => format!("{:?}", pools.next_item_number(&pool(), run, *limit).await.unwrap()),
            Step::Ask(who, wait) => {
                let ticket = tickets[self.asks.len()].clone();
                let ask = PoolRequest { pool: pool(), holder: named(*who), run, request_id: ticket };
                self.asks.push(ask.clone());
                self.ask(&ask, if *wait { TTL * 100 } else { Duration::ZERO }).await
            }
            Step::Again(which) => match self.asks.get(which % self.asks.len().max(1)).cloned() {
                Some(ask) => self.ask(&ask, TTL * 100).await,
                None => String::new(),
            },
            Step::Forget(which) => match self.asks.get(which % self.asks.len().max(1)) {
                Some(ask) => format!("{:?}", pools.cancel_request(&pool(), &ask.request_id).await.unwrap()),
                None => String::new(),
            },
            Step::Release(which) => match self.holds.get(which % self.holds.len().max(1)) {
                Some(hold) => format!("{:?}", pools.release(hold).await.unwrap()),
                None => String::new(),
            },
            Step::Forge(which, how) => match self.holds.get(which % self.holds.len().max(1)) {
                Some(hold) => {
                    let mut forged = hold.clone();
                    match how {
                        0 => forged.holder = member("nobody"),
                        1 => forged.grant = Epoch(forged.grant.0 + 1_000_000),
                        _ => forged.run = Epoch(0),
                    }
                    let outcome = pools.release(&forged).await.unwrap();
                    assert_ne!(outcome, PoolReleaseOutcome::Released, "a forged release was accepted");
                    format!("{outcome:?}")
                }
                None => String::new(),
            },
            Step::ReleaseAll(who) => format!("{:?}", pools.release_all(&named(*who)).await.unwrap()),
            Step::Sweep => format!("{:?}", pools.sweep().await.unwrap()),
            Step::BeginRun => format!("{:?}", self.cell.begin_run(run).await),
            Step::Pass(0) => format!("{:?}", members.advance(squall_coord::TURN_TIMEOUT)),
            Step::Pass(tenths) => format!("{:?}", members.advance(TTL / 10 * *tenths)),
        }
    }

    /// What both sides must agree on, and checks of what neither may ever show.
    async fn facts(&self) -> (u64, u64, u64, u64, BTreeMap<MemberId, usize>, BTreeSet<(Epoch, Epoch)>) {
        let Some(counts) = self.cell.pools().count_all().await.unwrap().pools.pop() else { return Default::default() };
        let listed = self.cell.pools().list(&pool(), 1000).await.unwrap();
        let ids: BTreeSet<&ItemId> = listed.iter().map(|one| &one.id).collect();
        assert_eq!(ids.len(), listed.len(), "something is both free and held: {listed:?}");
        assert_eq!(counts.total, counts.available + counts.held, "something was lost or made up");
        assert_eq!(counts.total, listed.len() as u64);
        assert!(
            listed.iter().all(|one| one.payload == format!("p{}", one.id)),
            "an id without its payload: {listed:?}"
        );
        let mut holders: BTreeMap<MemberId, usize> = BTreeMap::new();
        let mut grants = BTreeSet::new();
        for (holder, run, grant) in listed.into_iter().filter_map(|one| one.held) {
            *holders.entry(holder).or_default() += 1;
            assert!(grants.insert((grant, run)), "one grant for two things");
        }
        assert_eq!(counts.held, grants.len() as u64);
        (counts.total, counts.available, counts.held, counts.waiting, holders, grants)
    }
}

#[test]
fn both_pools_give_the_same_answers_and_lose_nothing() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let link = runtime.block_on(RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            let mut model = Side::new(MemoryCell::new());
            let mut real = Side::new(RedisCell::new(&link, &format!("case-{:x}", fastrand::u64(..))));
            let tickets: Vec<PoolRequestId> = steps.iter().map(|_| PoolRequestId::unique()).collect();
            let mut run = Epoch(1);
            for step in &steps {
                run.0 += u64::from(matches!(step, Step::BeginRun));
                let expected = model.apply(step, run, &tickets).await;
                let got = real.apply(step, run, &tickets).await;
                prop_assert_eq!(expected, got, "{:?}", step);
                prop_assert_eq!(model.facts().await, real.facts().await, "{:?}", step);
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

/// Many borrowers on a real server want few things; nobody ever has what another has, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_borrowers_never_share_a_thing() {
    const THINGS: u64 = 3;
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "race");
    let items: Vec<PoolItem> = (1..=THINGS).map(|n| PoolItem { id: ItemId::from(n), payload: n.to_string() }).collect();
    let users: std::sync::Arc<Vec<std::sync::atomic::AtomicU32>> =
        std::sync::Arc::new((0..=THINGS).map(|_| Default::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for who in 0..8u8 {
        // Every borrower is a process of its own, and all make sure that the pool is full.
        let (cell, users, items) = (RedisCell::new(&link, "race"), users.clone(), items.clone());
        tasks.spawn(async move {
            cell.members().join(&named(who), TTL).await.unwrap();
            let borrower = squall_coord::ResourceHolder::new(cell.pools().clone(), named(who), Epoch(1));
            for _ in 0..40 {
                cell.pools().put(&pool(), &items, Some(THINGS), None).await.unwrap();
                let hold = borrower.acquire(&pool(), Duration::from_secs(300)).await.unwrap();
                let at = &users[hold.payload.parse::<usize>().unwrap()];
                assert_eq!(at.swap(u32::from(who) + 1, std::sync::atomic::Ordering::SeqCst), 0, "used twice");
                tokio::task::yield_now().await;
                at.store(0, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(borrower.release(&hold).await.unwrap(), PoolReleaseOutcome::Released);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let counts = cell.pools().count_all().await.unwrap().pools.remove(0);
    assert_eq!((counts.total, counts.available, counts.held, counts.waiting), (THINGS, THINGS, 0, 0));
}

//! Random operations on both slot stores at once: the memory store is the model for the Lua scripts.

use std::{collections::BTreeMap, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    ClaimOutcome, HeldSession, MemberId, MemorySlotStore, RedisClient, RedisSlotStore, ReleaseCause, SlotAttach,
    SlotClaim, SlotOffer, SlotSessionId, SlotSnapshot,
};
use squall_testkit::redis::RedisServer;

use crate::slot_store::{AdvanceSlotClock, claim, offer, worker};

/// Far longer than a test takes, so that only `Step::Advance` makes anything expire.
const TTL: Duration = Duration::from_secs(100_000);

#[derive(Clone, Debug)]
enum Step {
    /// Worker, how many of the sessions that the store gave it the worker lists, and whether the next has ended.
    Offer(u8, usize, bool),
    /// Another worker of the name of a worker.
    OfferAgain(u8),
    LeaveWorker(u8),
    RenewServer(u8),
    LeaveServer(u8),
    /// Server, version and key.
    Claim(u8, u8, u8),
    Repeat(usize),
    Release(usize, ReleaseCause),
    Detach(usize),
    /// Claim and server.
    Attach(usize, u8),
    End(usize),
    Drain(u8),
    /// Tenths of the TTL.
    Advance(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, any) = (0u8..3, any::<usize>());
    let causes = prop_oneof![
        6 => Just(ReleaseCause::Ended),
        2 => Just(ReleaseCause::NeverBegan),
        2 => Just(ReleaseCause::WorkerUnreachable),
    ];
    let step = prop_oneof![
        6 => (who.clone(), 0usize..4, proptest::bool::ANY).prop_map(|(who, listed, ended)| Step::Offer(who, listed, ended)),
        1 => who.clone().prop_map(Step::OfferAgain),
        1 => who.clone().prop_map(Step::LeaveWorker),
        4 => (0u8..2).prop_map(Step::RenewServer),
        1 => (0u8..2).prop_map(Step::LeaveServer),
        10 => (0u8..2, 0u8..4, 0u8..3).prop_map(|(server, version, key)| Step::Claim(server, version, key)),
        3 => any.prop_map(Step::Repeat),
        6 => (any, causes).prop_map(|(which, cause)| Step::Release(which, cause)),
        2 => any.prop_map(Step::Detach),
        3 => (any, 0u8..2).prop_map(|(which, server)| Step::Attach(which, server)),
        1 => any.prop_map(Step::End),
        1 => who.prop_map(Step::Drain),
        2 => (1u32..6).prop_map(Step::Advance),
    ];
    proptest::collection::vec(step, 1..80)
}

fn numbered_server(who: u8) -> MemberId {
    MemberId::new(format!("s{who}"))
}

fn numbered_offer(who: u8) -> SlotOffer {
    let versions: &[&str] = if who == 2 { &["1.64", "1.65"] } else { &["1.65"] };
    let versions = versions.iter().map(|&version| version.to_owned()).collect();
    let max_lifetime = (who == 1).then_some(6);
    SlotOffer { versions, max_lifetime, ..offer(&format!("w{who}"), 2) }
}

fn numbered_claim(session: &SlotSessionId, server: u8, version: u8, key: u8) -> SlotClaim {
    let version = ["1.64", "1.65", "1.66"].get(usize::from(version)).map(|&version| version.to_owned());
    SlotClaim {
        session: session.clone(),
        server: numbered_server(server),
        version,
        key: format!("k{key}"),
        key_limit: (key == 0).then_some(2),
        key_queue_limit: (key == 2).then_some(1),
        queue_limit: 4,
        reserved: key == 1,
        wait: TTL / 2,
        listed_within: TTL / 4,
        ..claim()
    }
}

/// One store with the claims so far; both stores get the same.
struct StoreUnderTest<S> {
    store: S,
    claims: Vec<SlotClaim>,
    lifetimes: BTreeMap<u8, u64>,
}

impl<S: AdvanceSlotClock> StoreUnderTest<S> {
    fn new(store: S) -> Self {
        Self { store, claims: Vec::new(), lifetimes: BTreeMap::new() }
    }

    async fn claim(&self, claim: &SlotClaim) -> String {
        match self.store.claim(claim).await.unwrap() {
            ClaimOutcome::Waiting { ahead, .. } => format!("waiting after {ahead}"),
            other => format!("{other:?}"),
        }
    }

    /// The offer of a worker that has `listed` of the sessions that the store gave it.
    async fn offer_of(&mut self, who: u8, listed: usize, next_ended: bool) -> SlotOffer {
        let own = self.store.snapshot().await.unwrap().sessions.into_iter();
        let mut own = own.filter(|session| session.worker == worker(&format!("w{who}")));
        let own_listed = own.by_ref().take(listed);
        let own_listed = own_listed.map(|session| HeldSession {
            id: session.id,
            key: session.key,
            version: session.version,
            server: session.server,
            direct: who == 0,
            detached: session.held && session.attachable,
        });
        let sessions: Vec<HeldSession> = own_listed.collect();
        let ended: Vec<SlotSessionId> = own.take(usize::from(next_ended)).map(|session| session.id).collect();
        let lifetime = self.lifetimes.entry(who).or_default();
        *lifetime += sessions.len() as u64;
        SlotOffer { sessions, ended, lifetime: *lifetime, ..numbered_offer(who) }
    }

    async fn apply(&mut self, step: &Step, ids: &[SlotSessionId]) -> String {
        let store = self.store.clone();
        match step {
            Step::Offer(who, listed, next_ended) => {
                let offer = self.offer_of(*who, *listed, *next_ended).await;
                format!("{:?}", store.offer(&offer, TTL).await.unwrap())
            }
            Step::OfferAgain(who) => {
                let other = SlotOffer { secret: "another".to_owned(), ..numbered_offer(*who) };
                format!("{:?}", store.offer(&other, TTL).await.unwrap())
            }
            Step::LeaveWorker(who) => format!("{:?}", store.leave_worker(&worker(&format!("w{who}"))).await.unwrap()),
            Step::RenewServer(who) => {
                format!("{:?}", store.renew_server(&numbered_server(*who), TTL).await.unwrap())
            }
            Step::LeaveServer(who) => format!("{:?}", store.leave_server(&numbered_server(*who)).await.unwrap()),
            Step::Claim(server, version, key) => {
                let claim = numbered_claim(&ids[self.claims.len()], *server, *version, *key);
                self.claims.push(claim.clone());
                self.claim(&claim).await
            }
            Step::Repeat(which) => match self.claims.get(which % self.claims.len().max(1)) {
                Some(claim) => self.claim(claim).await,
                None => String::new(),
            },
            Step::Release(which, cause) => match self.claims.get(which % self.claims.len().max(1)) {
                Some(claim) => format!("{:?}", store.release(&claim.session, *cause).await.unwrap()),
                None => String::new(),
            },
            Step::Detach(which) => match self.claims.get(which % self.claims.len().max(1)) {
                Some(claim) => format!("{:?}", store.release(&claim.session, ReleaseCause::Detached).await.unwrap()),
                None => String::new(),
            },
            Step::Attach(which, server) => match self.claims.get(which % self.claims.len().max(1)) {
                Some(claim) => {
                    let attach = SlotAttach {
                        session: claim.session.clone(),
                        server: numbered_server(*server),
                        key: Some(claim.key.clone()),
                        listed_within: TTL / 4,
                    };
                    format!("{:?}", store.attach(&attach).await.unwrap())
                }
                None => String::new(),
            },
            Step::End(which) => match self.claims.get(which % self.claims.len().max(1)) {
                Some(claim) => format!("{:?}", store.end_session(&claim.session).await.unwrap()),
                None => String::new(),
            },
            Step::Drain(who) => format!("{:?}", store.drain(&worker(&format!("w{who}"))).await.unwrap()),
            Step::Advance(tenths) => {
                store.advance(TTL / 10 * *tenths);
                String::new()
            }
        }
    }

    /// The state that both stores must agree on, without ages. Also checks the invariants of each.
    async fn observed_state(&self) -> SlotSnapshot {
        let mut snapshot = self.store.snapshot().await.unwrap();
        for session in &mut snapshot.sessions {
            session.age = Duration::ZERO;
        }
        snapshot.queue_oldest_ms.values_mut().for_each(|age| *age = 0);
        for view in &snapshot.workers {
            let sessions = snapshot.sessions.iter().filter(|session| session.worker == view.worker).count();
            assert_eq!(sessions, view.active as usize, "{view:?}");
            assert!(view.active <= view.slots, "more sessions than slots: {view:?}");
        }
        snapshot
    }
}

#[test]
fn memory_and_redis_slots_agree_and_never_exceed_a_worker() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            let prefix = format!("squall-grid:{{case-{:x}}}:", fastrand::u64(..));
            let mut model = StoreUnderTest::new(MemorySlotStore::new());
            let mut real = StoreUnderTest::new(RedisSlotStore::new(&client, &prefix));
            let ids: Vec<SlotSessionId> = steps.iter().map(|_| SlotSessionId::unique()).collect();
            for step in &steps {
                let expected = model.apply(step, &ids).await;
                let got = real.apply(step, &ids).await;
                prop_assert_eq!(expected, got, "{:?}", step);
                prop_assert_eq!(model.observed_state().await, real.observed_state().await, "{:?}", step);
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

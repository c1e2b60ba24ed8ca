//! The behaviour of a slot store, tested in memory and on a real server.

use std::time::Duration;

use squall_coord::{
    ApiKeyScope, AttachOutcome, ClaimOutcome, EndReason, HeldSession, MemberId, MemorySlotStore, RedisClient,
    RedisSlotStore, ReleaseCause, SlotAttach, SlotClaim, SlotGrant, SlotOffer, SlotSessionId, SlotStore, SlotWorkerId,
    StoredApiKey,
};
use squall_testkit::redis::RedisServer;

const TTL: Duration = Duration::from_secs(600);
const DIAL: Duration = Duration::from_secs(100);
const WAIT: Duration = Duration::from_secs(3000);

/// A slot store whose clock can be moved forward.
pub(crate) trait AdvanceSlotClock: SlotStore {
    fn advance(&self, by: Duration);
}

impl AdvanceSlotClock for MemorySlotStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

impl AdvanceSlotClock for RedisSlotStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

macro_rules! on_both_slot_stores {
    ($($case:ident)*) => {
        mod in_memory {
            $(#[tokio::test] async fn $case() { super::$case(squall_coord::MemorySlotStore::new()).await; })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $case() {
                let server = RedisServer::start();
                let client = RedisClient::open(&server.url()).await.unwrap();
                super::$case(RedisSlotStore::new(&client, "squall-grid:{test}:")).await;
            })*
        }
    };
}

on_both_slot_stores! {
    worker_never_gets_more_sessions_than_slots
    claim_of_a_version_that_no_worker_has_is_answered_at_once
    claim_without_a_version_takes_any_worker
    worker_of_several_versions_shares_its_slots_between_them
    claim_waits_while_no_worker_of_its_kind_is_there
    waiting_claims_are_served_in_order
    waiting_claim_that_is_released_leaves_the_queue
    snapshot_tells_how_long_the_oldest_claim_has_waited
    queue_and_key_limits_are_kept
    key_does_not_fill_the_queue_beyond_its_own_limit
    repeated_claim_counts_once
    session_that_its_worker_never_lists_ends
    granted_session_ends_with_its_server_and_a_listed_one_does_not
    direct_session_outlives_its_server
    sessions_of_a_lost_worker_end
    session_that_its_worker_lists_no_more_is_over
    unknown_session_of_an_offer_is_adopted
    released_session_is_not_adopted_by_a_late_offer
    unreachable_worker_gets_no_session_until_its_next_offer
    drained_worker_gets_no_session_and_an_offer_does_not_undo_it
    deleted_session_is_named_in_the_next_offer
    deleted_reserved_session_frees_its_slot_at_once
    deleted_session_whose_client_left_before_its_worker_listed_it_is_named_in_the_next_offer
    states_of_sessions_and_workers_have_names
    worker_near_its_lifetime_limit_is_spared_for_the_others
    worker_at_its_lifetime_limit_gets_no_session
    idle_workers_get_sessions_first_without_a_limit
    server_that_is_not_a_member_cannot_claim
    reserved_session_is_attached_once_and_only_with_its_key
    detached_session_keeps_its_slot_and_is_attached_by_another_server
    api_key_names_are_unique_and_a_revoked_key_is_gone
    revoked_api_key_is_known_for_a_day_and_its_name_can_be_used_again
    waiting_claim_is_told_that_no_worker_has_its_version
    released_session_that_its_worker_still_has_is_ended
    second_worker_of_a_name_is_refused_while_the_first_lives
    offer_is_told_how_many_granted_sessions_have_not_come
    session_that_never_began_costs_no_lifetime_at_once
    session_that_ended_between_two_offers_counts_once
}

pub(crate) fn worker(name: &str) -> SlotWorkerId {
    SlotWorkerId::new("chromium", name).unwrap()
}

pub(crate) fn offer(name: &str, slots: u32) -> SlotOffer {
    SlotOffer {
        worker: worker(name),
        versions: vec!["1.65".to_owned()],
        endpoint: format!("ws://{name}/"),
        secret: format!("secret of {name}"),
        slots,
        lifetime: 0,
        max_lifetime: None,
        draining: false,
        started_ms: 1,
        sessions: Vec::new(),
        ended: Vec::new(),
    }
}

pub(crate) fn server() -> MemberId {
    MemberId::new("server")
}

pub(crate) fn claim() -> SlotClaim {
    SlotClaim {
        session: SlotSessionId::unique(),
        kind: "chromium".to_owned(),
        version: Some("1.65".to_owned()),
        key: String::new(),
        server: server(),
        wait: WAIT,
        listed_within: DIAL,
        reserved: false,
        queue_limit: 100,
        key_limit: None,
        key_queue_limit: None,
    }
}

pub(crate) fn held(claim: &SlotClaim) -> HeldSession {
    HeldSession {
        id: claim.session.clone(),
        key: claim.key.clone(),
        version: claim.version.clone().unwrap(),
        server: claim.server.clone(),
        direct: false,
        detached: false,
    }
}

async fn granted<S: SlotStore>(store: &S, claim: &SlotClaim) -> SlotGrant {
    match store.claim(claim).await.unwrap() {
        ClaimOutcome::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn waiting<S: SlotStore>(store: &S, claim: &SlotClaim) -> u64 {
    match store.claim(claim).await.unwrap() {
        ClaimOutcome::Waiting { ahead, .. } => ahead,
        other => panic!("does not wait: {other:?}"),
    }
}

async fn joined<S: SlotStore>(store: &S, offers: &[SlotOffer]) {
    store.renew_server(&server(), TTL).await.unwrap();
    for offer in offers {
        store.offer(offer, TTL).await.unwrap();
    }
}

async fn active<S: SlotStore>(store: &S) -> u32 {
    store.snapshot().await.unwrap().workers.iter().map(|worker| worker.active).sum()
}

async fn worker_never_gets_more_sessions_than_slots<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 2)]).await;
    let first = claim();
    let grant = granted(&store, &first).await;
    assert_eq!((grant.endpoint.as_str(), grant.secret.as_str()), ("ws://a/", "secret of a"));
    granted(&store, &claim()).await;
    assert_eq!(store.claim(&SlotClaim { wait: Duration::ZERO, ..claim() }).await.unwrap(), ClaimOutcome::QueueFull);
    assert_eq!(active(&store).await, 2);
    assert!(store.release(&first.session, ReleaseCause::Ended).await.unwrap());
    assert!(!store.release(&first.session, ReleaseCause::Ended).await.unwrap());
    assert_eq!(active(&store).await, 1);
    granted(&store, &claim()).await;
}

async fn claim_of_a_version_that_no_worker_has_is_answered_at_once<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1), SlotOffer { versions: vec!["1.64".to_owned()], ..offer("b", 1) }]).await;
    let old = SlotClaim { version: Some("1.58".to_owned()), ..claim() };
    let versions = vec!["1.64".to_owned(), "1.65".to_owned()];
    assert_eq!(store.claim(&old).await.unwrap(), ClaimOutcome::NoVersion(versions));
    assert_eq!(granted(&store, &SlotClaim { version: Some("1.64".to_owned()), ..claim() }).await.worker, worker("b"));
}

async fn claim_without_a_version_takes_any_worker<S: SlotStore>(store: S) {
    joined(&store, &[SlotOffer { versions: vec!["1.64".to_owned()], ..offer("b", 1) }]).await;
    let any = SlotClaim { version: None, ..claim() };
    assert_eq!(granted(&store, &any).await.version, "1.64");
    let (first, second) =
        (SlotClaim { version: None, ..claim() }, SlotClaim { version: Some("1.64".into()), ..claim() });
    waiting(&store, &first).await;
    waiting(&store, &second).await;
    store.release(&any.session, ReleaseCause::Ended).await.unwrap();
    granted(&store, &first).await;
    store.release(&first.session, ReleaseCause::Ended).await.unwrap();
    granted(&store, &second).await;
}

async fn worker_of_several_versions_shares_its_slots_between_them<S: SlotStore>(store: S) {
    let versions = vec!["1.65".to_owned(), "1.64".to_owned()];
    joined(&store, &[SlotOffer { versions: versions.clone(), ..offer("a", 2) }]).await;
    let of = |version: &str| SlotClaim { version: Some(version.to_owned()), ..claim() };
    let (newer, older) = (of("1.65"), of("1.64"));
    assert_eq!(granted(&store, &newer).await.version, "1.65");
    assert_eq!(granted(&store, &older).await.version, "1.64");
    let (next, last) = (of("1.64"), SlotClaim { version: None, ..claim() });
    assert_eq!((waiting(&store, &next).await, waiting(&store, &last).await), (0, 0), "the worker has two slots");
    assert!(store.release(&newer.session, ReleaseCause::Ended).await.unwrap());
    assert!(store.release(&older.session, ReleaseCause::Ended).await.unwrap());
    assert_eq!(granted(&store, &next).await.version, "1.64");
    assert_eq!(granted(&store, &last).await.version, "1.65", "a claim of any version gets the first");
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.workers[0].versions, versions);
    // A host of a version that is away is not offered.
    store.offer(&SlotOffer { sessions: vec![held(&next)], ..offer("a", 2) }, TTL).await.unwrap();
    assert_eq!(store.claim(&of("1.64")).await.unwrap(), ClaimOutcome::NoVersion(vec!["1.65".to_owned()]));
}

async fn claim_waits_while_no_worker_of_its_kind_is_there<S: SlotStore>(store: S) {
    joined(&store, &[]).await;
    let early = claim();
    let ClaimOutcome::Waiting { seen_notifications, .. } = store.claim(&early).await.unwrap() else { panic!() };
    let notified = store.wait_for_grant(&early.session, seen_notifications, WAIT);
    let first_offer = offer("a", 1);
    let (offered, notified) = tokio::join!(store.offer(&first_offer, TTL), notified);
    offered.unwrap();
    notified.unwrap();
    granted(&store, &early).await;
}

async fn waiting_claims_are_served_in_order<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let mut current = claim();
    granted(&store, &current).await;
    let queued: Vec<SlotClaim> = (0..5).map(|_| claim()).collect();
    for (ahead, claim) in queued.iter().enumerate() {
        assert_eq!(waiting(&store, claim).await, ahead as u64);
    }
    for next in queued {
        store.release(&current.session, ReleaseCause::Ended).await.unwrap();
        let newcomer = claim();
        waiting(&store, &newcomer).await;
        granted(&store, &next).await;
        store.release(&newcomer.session, ReleaseCause::Ended).await.unwrap();
        current = next;
    }
    assert!(store.snapshot().await.unwrap().waiting.is_empty());
}

async fn waiting_claim_that_is_released_leaves_the_queue<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let current = claim();
    granted(&store, &current).await;
    let (gone, late, next) = (claim(), SlotClaim { wait: Duration::from_secs(10), ..claim() }, claim());
    for claim in [&gone, &late, &next] {
        waiting(&store, claim).await;
    }
    assert!(store.release(&gone.session, ReleaseCause::Ended).await.unwrap());
    store.advance(Duration::from_secs(11));
    assert_eq!(store.snapshot().await.unwrap().waiting.len(), 1);
    store.release(&current.session, ReleaseCause::Ended).await.unwrap();
    granted(&store, &next).await;
}

async fn snapshot_tells_how_long_the_oldest_claim_has_waited<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[]).await;
    assert!(store.snapshot().await.unwrap().queue_oldest_ms.is_empty());
    let firefox = || SlotClaim { kind: "firefox".to_owned(), ..claim() };
    waiting(&store, &claim()).await;
    store.advance(Duration::from_secs(20));
    let (young, old) = (claim(), firefox());
    waiting(&store, &old).await;
    waiting(&store, &young).await;
    // A repeated claim does not begin to wait again.
    store.advance(Duration::from_secs(40));
    waiting(&store, &old).await;
    let oldest = store.snapshot().await.unwrap().queue_oldest_ms;
    // The clock of Redis runs on during the test.
    assert_eq!((oldest["chromium"] / 10_000, oldest["firefox"] / 10_000), (6, 4), "{oldest:?}");
    store.release(&old.session, ReleaseCause::Ended).await.unwrap();
    assert!(!store.snapshot().await.unwrap().queue_oldest_ms.contains_key("firefox"));
}

async fn queue_and_key_limits_are_kept<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 2)]).await;
    let of_key = || SlotClaim { key: "blue".to_owned(), key_limit: Some(1), queue_limit: 2, ..claim() };
    let blue = of_key();
    granted(&store, &blue).await;
    assert_eq!(store.claim(&of_key()).await.unwrap(), ClaimOutcome::KeyFull);
    let other = || SlotClaim { key: "red".to_owned(), ..of_key() };
    granted(&store, &other()).await;
    assert_eq!(store.claim(&other()).await.unwrap(), ClaimOutcome::KeyFull);
    let open = || SlotClaim { queue_limit: 2, ..claim() };
    waiting(&store, &open()).await;
    waiting(&store, &open()).await;
    assert_eq!(store.claim(&open()).await.unwrap(), ClaimOutcome::QueueFull);
    store.release(&blue.session, ReleaseCause::Ended).await.unwrap();
    waiting(&store, &of_key()).await;
    assert_eq!(store.claim(&of_key()).await.unwrap(), ClaimOutcome::KeyFull);
}

async fn key_does_not_fill_the_queue_beyond_its_own_limit<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let of = |key: &str| SlotClaim { key: key.to_owned(), key_queue_limit: Some(1), ..claim() };
    let (first, second) = (of("blue"), of("blue"));
    granted(&store, &first).await;
    waiting(&store, &second).await;
    assert_eq!(store.claim(&of("blue")).await.unwrap(), ClaimOutcome::KeyQueueFull);
    waiting(&store, &of("red")).await;
    assert!(store.release(&first.session, ReleaseCause::Ended).await.unwrap());
    granted(&store, &second).await;
    waiting(&store, &of("blue")).await;
}

async fn repeated_claim_counts_once<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let (first, second, third) = (claim(), claim(), claim());
    assert_eq!(granted(&store, &first).await, granted(&store, &first).await);
    waiting(&store, &second).await;
    waiting(&store, &third).await;
    assert_eq!((waiting(&store, &second).await, waiting(&store, &third).await), (0, 1));
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.sessions.len(), snapshot.waiting.len(), snapshot.workers[0].lifetime), (1, 2, 1));
}

async fn session_that_its_worker_never_lists_ends<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[offer("a", 2)]).await;
    let (lost, kept) = (claim(), claim());
    granted(&store, &lost).await;
    granted(&store, &kept).await;
    let sessions = vec![held(&kept)];
    store.offer(&SlotOffer { sessions, lifetime: 1, ..offer("a", 2) }, TTL).await.unwrap();
    store.advance(DIAL);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.sessions.iter().map(|session| &session.id).collect::<Vec<_>>(), [&kept.session]);
    assert!(snapshot.sessions[0].held);
}

async fn granted_session_ends_with_its_server_and_a_listed_one_does_not<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[offer("a", 3)]).await;
    let short = Duration::from_secs(5);
    let mortal = MemberId::new("mortal");
    store.renew_server(&mortal, short).await.unwrap();
    let of_mortal = || SlotClaim { server: mortal.clone(), ..claim() };
    let (listed, unlisted) = (of_mortal(), of_mortal());
    granted(&store, &listed).await;
    store.offer(&SlotOffer { sessions: vec![held(&listed)], lifetime: 1, ..offer("a", 2) }, TTL).await.unwrap();
    granted(&store, &unlisted).await;
    let queued = of_mortal();
    waiting(&store, &queued).await;
    assert_eq!(store.renew_server(&mortal, short).await.unwrap().len(), 2);
    store.advance(short);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.sessions.iter().map(|session| &session.id).collect::<Vec<_>>(), [&listed.session]);
    assert_eq!((snapshot.waiting.len(), snapshot.servers), (0, vec![server()]));
    let again = SlotOffer { sessions: vec![held(&listed)], lifetime: 1, ..offer("a", 2) };
    let outcome = store.offer(&again, TTL).await.unwrap();
    assert_eq!(outcome.end, [(listed.session.clone(), EndReason::ServerLost)]);
}

async fn direct_session_outlives_its_server<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let direct = claim();
    granted(&store, &direct).await;
    let list = |direct: bool, claim: &SlotClaim| SlotOffer {
        sessions: vec![HeldSession { direct, ..held(claim) }],
        lifetime: 1,
        ..offer("a", 1)
    };
    store.offer(&list(true, &direct), TTL).await.unwrap();
    store.leave_server(&server()).await.unwrap();
    assert_eq!(store.offer(&list(true, &direct), TTL).await.unwrap().end, []);
    assert_eq!(active(&store).await, 1);
    let relayed = store.offer(&list(false, &direct), TTL).await.unwrap();
    assert_eq!(relayed.end, [(direct.session.clone(), EndReason::ServerLost)]);
}

async fn sessions_of_a_lost_worker_end<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[]).await;
    store.offer(&offer("mortal", 1), Duration::from_secs(5)).await.unwrap();
    let (first, second) = (claim(), claim());
    granted(&store, &first).await;
    waiting(&store, &second).await;
    store.advance(Duration::from_secs(5));
    assert_eq!(active(&store).await, 0);
    assert_eq!(waiting(&store, &second).await, 0);
    store.offer(&offer("b", 1), TTL).await.unwrap();
    assert_eq!(granted(&store, &second).await.worker, worker("b"));
    store.leave_worker(&worker("b")).await.unwrap();
    store.leave_worker(&worker("b")).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.workers.is_empty() && snapshot.sessions.is_empty());
}

async fn session_that_its_worker_lists_no_more_is_over<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let (first, second) = (claim(), claim());
    granted(&store, &first).await;
    waiting(&store, &second).await;
    let listing = SlotOffer { sessions: vec![held(&first)], lifetime: 1, ..offer("a", 1) };
    store.offer(&listing, TTL).await.unwrap();
    waiting(&store, &second).await;
    store.offer(&SlotOffer { lifetime: 1, ..offer("a", 1) }, TTL).await.unwrap();
    granted(&store, &second).await;
    assert_eq!(store.snapshot().await.unwrap().workers[0].lifetime, 2);
}

async fn unknown_session_of_an_offer_is_adopted<S: SlotStore>(store: S) {
    joined(&store, &[]).await;
    let survivor = SlotClaim { key: "blue".to_owned(), ..claim() };
    let listing = SlotOffer { sessions: vec![held(&survivor)], lifetime: 7, ..offer("a", 1) };
    assert!(store.offer(&listing, TTL).await.unwrap().end.is_empty());
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.workers[0].active, snapshot.workers[0].lifetime), (1, 7));
    assert_eq!((snapshot.sessions[0].key.as_str(), &snapshot.sessions[0].server), ("blue", &server()));
    waiting(&store, &claim()).await;
}

async fn released_session_is_not_adopted_by_a_late_offer<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let ended = claim();
    granted(&store, &ended).await;
    store.release(&ended.session, ReleaseCause::Ended).await.unwrap();
    let late = SlotOffer { sessions: vec![held(&ended)], lifetime: 1, ..offer("a", 1) };
    store.offer(&late, TTL).await.unwrap();
    assert_eq!(active(&store).await, 0);
    // A worker that still has the session much later knows better.
    store.advance(Duration::from_secs(11));
    store.offer(&late, TTL).await.unwrap();
    assert_eq!(active(&store).await, 1);
}

async fn unreachable_worker_gets_no_session_until_its_next_offer<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let first = claim();
    granted(&store, &first).await;
    store.release(&first.session, ReleaseCause::WorkerUnreachable).await.unwrap();
    let second = claim();
    waiting(&store, &second).await;
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.workers[0].unreachable, snapshot.workers[0].lifetime), (true, 0));
    store.offer(&offer("a", 1), TTL).await.unwrap();
    granted(&store, &second).await;
}

async fn drained_worker_gets_no_session_and_an_offer_does_not_undo_it<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    assert!(store.drain(&worker("a")).await.unwrap());
    assert!(!store.drain(&worker("b")).await.unwrap());
    waiting(&store, &claim()).await;
    assert!(store.offer(&offer("a", 1), TTL).await.unwrap().drain);
    assert!(store.offer(&offer("a", 1), TTL).await.unwrap().drain);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.workers[0].draining, snapshot.waiting.len()), (true, 1));
}

async fn deleted_session_is_named_in_the_next_offer<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let session = claim();
    granted(&store, &session).await;
    assert!(store.end_session(&session.session).await.unwrap());
    assert!(!store.end_session(&SlotSessionId::unique()).await.unwrap());
    let listing = SlotOffer { sessions: vec![held(&session)], lifetime: 1, ..offer("a", 1) };
    let outcome = store.offer(&listing, TTL).await.unwrap();
    assert_eq!(outcome.end, [(session.session.clone(), EndReason::Deleted)]);
    assert!(store.snapshot().await.unwrap().sessions[0].ending);
}

async fn deleted_reserved_session_frees_its_slot_at_once<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let (reserved, next) = (SlotClaim { reserved: true, ..claim() }, claim());
    granted(&store, &reserved).await;
    waiting(&store, &next).await;
    assert!(store.end_session(&reserved.session).await.unwrap());
    assert!(!store.end_session(&reserved.session).await.unwrap());
    granted(&store, &next).await;
    assert_eq!(store.attach(&attach(&reserved)).await.unwrap(), AttachOutcome::Ended);
}

async fn deleted_session_whose_client_left_before_its_worker_listed_it_is_named_in_the_next_offer<S: SlotStore>(
    store: S,
) {
    joined(&store, &[offer("a", 1)]).await;
    let kept = claim();
    granted(&store, &kept).await;
    assert!(store.release(&kept.session, ReleaseCause::Detached).await.unwrap());
    assert!(store.end_session(&kept.session).await.unwrap());
    let sessions = vec![HeldSession { detached: true, ..held(&kept) }];
    let outcome = store.offer(&SlotOffer { sessions, lifetime: 1, ..offer("a", 1) }, TTL).await.unwrap();
    assert_eq!(outcome.end, [(kept.session.clone(), EndReason::Deleted)]);
}

async fn states_of_sessions_and_workers_have_names<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let session = SlotClaim { reserved: true, ..claim() };
    let list = |detached| SlotOffer {
        sessions: vec![HeldSession { detached, ..held(&session) }],
        lifetime: 1,
        ..offer("a", 1)
    };
    let states = async || {
        let snapshot = store.snapshot().await.unwrap();
        (snapshot.sessions[0].state(), snapshot.workers[0].state())
    };
    granted(&store, &session).await;
    assert_eq!(states().await, ("pending", "available"));
    assert!(matches!(store.attach(&attach(&session)).await.unwrap(), AttachOutcome::Attached { begun: false, .. }));
    assert_eq!(states().await, ("pending", "available"));
    store.offer(&list(false), TTL).await.unwrap();
    assert_eq!(states().await, ("running", "available"));
    store.offer(&list(true), TTL).await.unwrap();
    store.drain(&worker("a")).await.unwrap();
    assert_eq!(states().await, ("detached", "draining"));
    store.end_session(&session.session).await.unwrap();
    assert_eq!(states().await, ("ending", "draining"));
}

fn limited(name: &str, lifetime: u64) -> SlotOffer {
    SlotOffer { max_lifetime: Some(10), lifetime, ..offer(name, 9) }
}

async fn worker_near_its_lifetime_limit_is_spared_for_the_others<S: SlotStore>(store: S) {
    // The margin of two workers with a limit of 10 is 5 sessions.
    joined(&store, &[limited("old", 3), limited("young", 0)]).await;
    let mut order = Vec::new();
    for _ in 0..10 {
        order.push(granted(&store, &claim()).await.worker.name().to_owned());
    }
    assert_eq!(order, ["old", "old", "young", "young", "young", "young", "young", "old", "old", "old"]);
}

async fn worker_at_its_lifetime_limit_gets_no_session<S: SlotStore>(store: S) {
    joined(&store, &[limited("old", 9)]).await;
    granted(&store, &claim()).await;
    waiting(&store, &claim()).await;
}

async fn idle_workers_get_sessions_first_without_a_limit<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 3), offer("b", 3)]).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(granted(&store, &claim()).await.worker.name().to_owned());
    }
    assert_eq!(order, ["a", "b", "a", "b"]);
}

async fn server_that_is_not_a_member_cannot_claim<S: SlotStore>(store: S) {
    store.offer(&offer("a", 1), TTL).await.unwrap();
    assert_eq!(store.claim(&claim()).await.unwrap(), ClaimOutcome::NotMember);
}

fn attach(claim: &SlotClaim) -> SlotAttach {
    SlotAttach { session: claim.session.clone(), server: server(), key: Some(claim.key.clone()), listed_within: DIAL }
}

async fn reserved_session_is_attached_once_and_only_with_its_key<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[offer("a", 2)]).await;
    let reserved = SlotClaim { reserved: true, key: "blue".to_owned(), ..claim() };
    granted(&store, &reserved).await;
    assert!(store.snapshot().await.unwrap().sessions[0].attachable);
    let foreign = SlotAttach { key: Some("red".to_owned()), ..attach(&reserved) };
    assert_eq!(store.attach(&foreign).await.unwrap(), AttachOutcome::Unknown);
    let not_member = SlotAttach { server: MemberId::new("other"), ..attach(&reserved) };
    assert_eq!(store.attach(&not_member).await.unwrap(), AttachOutcome::NotMember);
    let AttachOutcome::Attached { grant, begun: false } = store.attach(&attach(&reserved)).await.unwrap() else {
        panic!()
    };
    assert_eq!(grant.worker, worker("a"));
    assert_eq!(store.attach(&attach(&reserved)).await.unwrap(), AttachOutcome::Taken);
    assert!(store.release(&reserved.session, ReleaseCause::Ended).await.unwrap());
    assert_eq!(store.attach(&attach(&reserved)).await.unwrap(), AttachOutcome::Ended);
    let forgotten = SlotClaim { reserved: true, ..claim() };
    granted(&store, &forgotten).await;
    store.advance(DIAL);
    assert_eq!(store.attach(&attach(&forgotten)).await.unwrap(), AttachOutcome::Unknown);
    assert_eq!(active(&store).await, 0);
}

async fn detached_session_keeps_its_slot_and_is_attached_by_another_server<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let kept = claim();
    granted(&store, &kept).await;
    let list = |server: &MemberId, detached| SlotOffer {
        sessions: vec![HeldSession { server: server.clone(), detached, ..held(&kept) }],
        lifetime: 1,
        ..offer("a", 1)
    };
    store.offer(&list(&server(), false), TTL).await.unwrap();
    assert_eq!(store.attach(&attach(&kept)).await.unwrap(), AttachOutcome::Taken);
    assert!(store.release(&kept.session, ReleaseCause::Detached).await.unwrap());
    store.leave_server(&server()).await.unwrap();
    // A detached session has no server that could be lost.
    assert_eq!(store.offer(&list(&server(), true), TTL).await.unwrap().end, []);
    assert_eq!(active(&store).await, 1);
    let other = MemberId::new("other");
    store.renew_server(&other, TTL).await.unwrap();
    let by_other = SlotAttach { server: other.clone(), ..attach(&kept) };
    assert!(matches!(store.attach(&by_other).await.unwrap(), AttachOutcome::Attached { begun: true, .. }));
    assert_eq!(store.renew_server(&other, TTL).await.unwrap(), std::slice::from_ref(&kept.session));
    store.offer(&list(&other, false), TTL).await.unwrap();
    assert_eq!(store.attach(&by_other).await.unwrap(), AttachOutcome::Taken);
    store.offer(&SlotOffer { lifetime: 1, ..offer("a", 1) }, TTL).await.unwrap();
    assert_eq!(active(&store).await, 0);
}

fn key(name: &str, hash: &str) -> StoredApiKey {
    StoredApiKey {
        name: name.to_owned(),
        hash: hash.to_owned(),
        scope: ApiKeyScope::Client,
        max_sessions: Some(3),
        max_waiting: None,
        created: 7,
    }
}

async fn api_key_names_are_unique_and_a_revoked_key_is_gone<S: SlotStore>(store: S) {
    assert!(store.add_api_key(&key("red", "1")).await.unwrap());
    assert!(store.add_api_key(&key("blue", "2")).await.unwrap());
    assert!(!store.add_api_key(&key("blue", "3")).await.unwrap());
    assert_eq!(store.api_keys().await.unwrap(), [key("blue", "2"), key("red", "1")]);
    assert!(store.revoke_api_key("blue").await.unwrap());
    assert!(!store.revoke_api_key("blue").await.unwrap());
    assert_eq!(store.api_keys().await.unwrap(), [key("red", "1")]);
}

async fn revoked_api_key_is_known_for_a_day_and_its_name_can_be_used_again<S: AdvanceSlotClock>(store: S) {
    let (old, new, other) = (key("blue", "0123456789abcdef"), key("blue", "fedcba9876543210"), key("red", "1"));
    assert!(store.revoked_api_keys().await.unwrap().is_empty());
    for name in ["blue", "red"] {
        assert!(!store.revoke_api_key(name).await.unwrap());
    }
    assert!(store.add_api_key(&old).await.unwrap());
    assert!(store.revoke_api_key("blue").await.unwrap());
    assert!(store.add_api_key(&new).await.unwrap());
    assert_eq!(store.revoked_api_keys().await.unwrap(), ["blue:0123456789ab"]);
    assert_ne!(old.id(), new.id());
    store.advance(Duration::from_secs(86_401));
    assert!(store.add_api_key(&other).await.unwrap());
    assert!(store.revoke_api_key("red").await.unwrap());
    assert_eq!(store.revoked_api_keys().await.unwrap(), ["red:1"]);
    assert_eq!(store.api_keys().await.unwrap(), [new]);
}

async fn waiting_claim_is_told_that_no_worker_has_its_version<S: SlotStore>(store: S) {
    joined(&store, &[]).await;
    let old = SlotClaim { version: Some("1.58".to_owned()), ..claim() };
    waiting(&store, &old).await;
    store.offer(&offer("a", 1), TTL).await.unwrap();
    // With and without a free slot.
    assert_eq!(store.claim(&old).await.unwrap(), ClaimOutcome::NoVersion(vec!["1.65".to_owned()]));
    assert!(store.snapshot().await.unwrap().waiting.is_empty());
    granted(&store, &claim()).await;
    assert_eq!(store.claim(&old).await.unwrap(), ClaimOutcome::NoVersion(vec!["1.65".to_owned()]));
    assert!(!store.release(&old.session, ReleaseCause::Ended).await.unwrap());
}

async fn released_session_that_its_worker_still_has_is_ended<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let left = claim();
    granted(&store, &left).await;
    store.release(&left.session, ReleaseCause::Ended).await.unwrap();
    let sessions = vec![HeldSession { detached: true, ..held(&left) }];
    let late = SlotOffer { sessions, lifetime: 1, ..offer("a", 1) };
    assert_eq!(store.offer(&late, TTL).await.unwrap().end, [(left.session.clone(), EndReason::Deleted)]);
    assert_eq!(active(&store).await, 0);
}

async fn second_worker_of_a_name_is_refused_while_the_first_lives<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[]).await;
    let first = claim();
    store.offer(&offer("a", 1), Duration::from_secs(5)).await.unwrap();
    granted(&store, &first).await;
    let listing = SlotOffer { sessions: vec![held(&first)], lifetime: 1, ..offer("a", 1) };
    store.offer(&listing, Duration::from_secs(5)).await.unwrap();
    let second = SlotOffer { secret: "another".to_owned(), ..offer("a", 1) };
    let refused = store.offer(&second, TTL).await.unwrap();
    assert!(refused.name_taken && refused.end.is_empty(), "{refused:?}");
    assert_eq!(active(&store).await, 1, "the first keeps its session");
    assert!(!store.offer(&listing, Duration::from_secs(5)).await.unwrap().name_taken);
    store.advance(Duration::from_secs(5));
    assert!(!store.offer(&second, TTL).await.unwrap().name_taken, "the first is lost");
    assert!(store.offer(&listing, TTL).await.unwrap().name_taken);
}

async fn offer_is_told_how_many_granted_sessions_have_not_come<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 3)]).await;
    let (reserved, dialled) = (SlotClaim { reserved: true, ..claim() }, claim());
    granted(&store, &reserved).await;
    granted(&store, &dialled).await;
    let draining = |sessions, lifetime| SlotOffer { draining: true, sessions, lifetime, ..offer("a", 3) };
    assert_eq!(store.offer(&draining(Vec::new(), 0), TTL).await.unwrap().pending, 2);
    assert_eq!(store.offer(&draining(vec![held(&dialled)], 1), TTL).await.unwrap().pending, 1);
    assert!(matches!(store.attach(&attach(&reserved)).await.unwrap(), AttachOutcome::Attached { begun: false, .. }));
    let both = vec![held(&dialled), held(&reserved)];
    assert_eq!(store.offer(&draining(both, 2), TTL).await.unwrap().pending, 0);
}

async fn lifetime<S: SlotStore>(store: &S) -> u64 {
    store.snapshot().await.unwrap().workers[0].lifetime
}

async fn session_that_never_began_costs_no_lifetime_at_once<S: AdvanceSlotClock>(store: S) {
    joined(&store, &[SlotOffer { lifetime: 7, ..offer("a", 9) }]).await;
    let mortal = MemberId::new("mortal");
    store.renew_server(&mortal, TTL).await.unwrap();
    let [refused, listed, reserved, lost, silent, begun] = [(); 6].map(|()| claim());
    let (reserved, lost) = (SlotClaim { reserved: true, ..reserved }, SlotClaim { server: mortal.clone(), ..lost });
    for claim in [&refused, &listed, &reserved, &lost, &silent, &begun] {
        granted(&store, claim).await;
    }
    assert_eq!(lifetime(&store).await, 13);
    assert!(store.release(&refused.session, ReleaseCause::NeverBegan).await.unwrap());
    assert!(!store.release(&refused.session, ReleaseCause::NeverBegan).await.unwrap());
    assert_eq!(lifetime(&store).await, 12);
    // The worker lists a session while its browser has not answered.
    let listing = SlotOffer { sessions: vec![held(&listed)], lifetime: 8, ..offer("a", 9) };
    store.offer(&listing, TTL).await.unwrap();
    assert_eq!(lifetime(&store).await, 12);
    store.release(&listed.session, ReleaseCause::NeverBegan).await.unwrap();
    assert_eq!(lifetime(&store).await, 11);
    store.end_session(&reserved.session).await.unwrap();
    assert_eq!(lifetime(&store).await, 10);
    store.leave_server(&mortal).await.unwrap();
    assert_eq!(lifetime(&store).await, 9);
    store.release(&begun.session, ReleaseCause::Ended).await.unwrap();
    assert_eq!(lifetime(&store).await, 9, "a session that is over has been one");
    store.advance(DIAL);
    assert_eq!(lifetime(&store).await, 8, "the worker never listed it");
}

async fn session_that_ended_between_two_offers_counts_once<S: SlotStore>(store: S) {
    joined(&store, &[offer("a", 1)]).await;
    let (short, next) = (claim(), claim());
    granted(&store, &short).await;
    waiting(&store, &next).await;
    // The worker knows earlier than the server's release that it is over.
    let after = SlotOffer { lifetime: 1, ended: vec![short.session.clone()], ..offer("a", 1) };
    assert_eq!(store.offer(&after, TTL).await.unwrap().pending, 0);
    granted(&store, &next).await;
    assert_eq!((active(&store).await, lifetime(&store).await), (1, 2));
    assert!(!store.release(&short.session, ReleaseCause::Ended).await.unwrap());
    assert_eq!((active(&store).await, lifetime(&store).await), (1, 2));
}

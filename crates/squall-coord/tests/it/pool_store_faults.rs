//! Pools on a store that is unreachable for a moment, gets repeated commands, or contains foreign
//! values: nothing is lost, counted twice, or polled without a pause.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use squall_coord::{
    AcquireError, ItemId, LeaseStore, MemberId, PoolCounts, PoolItem, PoolItemStatus, PoolLease, PoolName,
    PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, RedisClient, ResourceHolder,
    Revision, RunEpoch, StoreError, add_pool_items,
};
use squall_testkit::redis::RedisServer;

use crate::support::{MemoryTestStores, RedisTestStores, TestStores, member, on_both_stores};

const TTL: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(120);
const RUN: RunEpoch = RunEpoch(1);

on_both_stores! {
    failed_release_is_retried_at_the_next_call
    run_cleanup_retries_a_failed_release_and_an_aborted_request
}

fn accounts() -> PoolName {
    PoolName::new("accounts").unwrap()
}

fn numbered_items(ids: std::ops::Range<u64>) -> Vec<PoolItem> {
    ids.map(|n| PoolItem { id: ItemId::from(n), payload: format!("p{n}") }).collect()
}

fn unreachable() -> StoreError {
    StoreError::Unreachable("unreachable for a moment".into())
}

/// A pool store that can be unreachable, or deliver no notifications; counts requests.
#[derive(Clone)]
struct FaultyPoolStore<P> {
    pools: P,
    unreachable: Arc<AtomicBool>,
    without_notifications: bool,
    request_count: Arc<AtomicU64>,
}

impl<P: PoolStore> FaultyPoolStore<P> {
    fn wrap(pools: &P) -> Self {
        Self {
            pools: pools.clone(),
            unreachable: Arc::default(),
            without_notifications: false,
            request_count: Arc::default(),
        }
    }

    fn set_unreachable(&self, unreachable: bool) {
        self.unreachable.store(unreachable, Ordering::SeqCst);
    }

    fn reachable(&self) -> Result<&P, StoreError> {
        if self.unreachable.load(Ordering::SeqCst) { Err(unreachable()) } else { Ok(&self.pools) }
    }
}

impl<P: PoolStore> PoolStore for FaultyPoolStore<P> {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<RunEpoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        self.reachable()?.put(pool, items, up_to, run).await
    }
    async fn reset_for_run(&self, pool: &PoolName, run: RunEpoch) -> Result<bool, StoreError> {
        self.reachable()?.reset_for_run(pool, run).await
    }
    async fn next_item_number(
        &self,
        pool: &PoolName,
        run: RunEpoch,
        limit: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        self.reachable()?.next_item_number(pool, run, limit).await
    }
    async fn try_acquire(&self, request: &PoolRequest, wait: Duration) -> Result<PoolRequestOutcome, StoreError> {
        assert!(self.request_count.fetch_add(1, Ordering::SeqCst) < 1000, "requested without a pause");
        self.reachable()?.try_acquire(request, wait).await
    }
    async fn cancel_request(&self, pool: &PoolName, request_id: &PoolRequestId) -> Result<bool, StoreError> {
        self.reachable()?.cancel_request(pool, request_id).await
    }
    async fn wait_for_turn(&self, request: &PoolRequest, seen: Revision, within: Duration) -> Result<(), StoreError> {
        if self.without_notifications {
            Err(unreachable())
        } else {
            self.pools.wait_for_turn(request, seen, within).await
        }
    }
    async fn release(&self, lease: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        self.reachable()?.release(lease).await
    }
    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        self.reachable()?.release_all(holder).await
    }
    async fn sweep(&self) -> Result<u64, StoreError> {
        self.reachable()?.sweep().await
    }
    async fn names(&self) -> Result<Vec<PoolName>, StoreError> {
        self.reachable()?.names().await
    }
    async fn count(&self, pool: &PoolName) -> Result<PoolCounts, StoreError> {
        self.reachable()?.count(pool).await
    }
    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<PoolItemStatus>, StoreError> {
        self.reachable()?.list(pool, limit).await
    }
}

/// A pool with one item, and a holder on a store that can be unreachable.
async fn pool_of_one<C: TestStores>(
    stores: &C,
) -> (FaultyPoolStore<C::Pools>, ResourceHolder<FaultyPoolStore<C::Pools>>) {
    stores.members().join(&member("a"), TTL).await.unwrap();
    stores.pools().put(&accounts(), &numbered_items(1..2), None, None).await.unwrap();
    let faulty = FaultyPoolStore::wrap(stores.pools());
    (faulty.clone(), ResourceHolder::new(faulty, member("a"), RUN))
}

async fn failed_release_is_retried_at_the_next_call(stores: impl TestStores) {
    let (faulty, holder) = pool_of_one(&stores).await;
    let lease = holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    faulty.set_unreachable(true);
    assert!(matches!(holder.release(&lease).await, Err(StoreError::Unreachable(_))));
    faulty.set_unreachable(false);
    let second = holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    assert!(second.grant > lease.grant);
    // The late release must not free the item of its new holder.
    assert_eq!(
        holder.acquire(&accounts(), Duration::ZERO).await.unwrap_err().to_string().find("no `accounts`"),
        Some(0)
    );
    assert_eq!(holder.release(&second).await.unwrap(), PoolReleaseOutcome::Released);
}

async fn run_cleanup_retries_a_failed_release_and_an_aborted_request(stores: impl TestStores) {
    let (faulty, holder) = pool_of_one(&stores).await;
    let cleanup = holder.clone();
    let cleanup = tokio::spawn(async move { cleanup.run_cleanup().await });
    let lease = holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let waiter = holder.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(&accounts(), LONG).await });
    wait_for_counts(&stores, |counts| counts.waiting == 1).await;
    faulty.set_unreachable(true);
    assert!(holder.release(&lease).await.is_err());
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    faulty.set_unreachable(false);
    wait_for_counts(&stores, |counts| (counts.available, counts.held, counts.waiting) == (1, 0, 0)).await;
    holder.finish_cleanup().await;
    cleanup.abort();
}

/// Waits for counts, without a call of a holder.
async fn wait_for_counts(stores: &impl TestStores, matches: impl Fn(&PoolCounts) -> bool) {
    while !matches(&stores.pools().count(&accounts()).await.unwrap()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn broken_pool_does_not_block_the_cleanup_of_another() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "broken");
    let (faulty, holder) = pool_of_one(&stores).await;
    let wallets = PoolName::new("wallets").unwrap();
    stores.pools().put(&wallets, &numbered_items(1..2), None, None).await.unwrap();
    let account = holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let wallet = holder.acquire(&wallets, Duration::ZERO).await.unwrap();
    let (waiting, mut commands) = ("squall:{broken}:resource:accounts:waiting", client.connection());
    let _: () = ::redis::cmd("SET").arg(waiting).arg("x").query_async(&mut commands).await.unwrap();
    assert!(matches!(holder.release(&account).await, Err(StoreError::WrongType { .. })));
    faulty.set_unreachable(true);
    assert!(holder.release(&wallet).await.is_err());
    faulty.set_unreachable(false);
    holder.acquire(&wallets, Duration::ZERO).await.unwrap();
    // Once the foreign key is removed, the first item becomes free too.
    let _: i64 = ::redis::cmd("DEL").arg(waiting).query_async(&mut commands).await.unwrap();
    holder.finish_cleanup().await;
    wait_for_counts(&stores, |counts| counts.available == 1).await;
}

/// Happens if the server accepts no further connection for notifications.
#[tokio::test(start_paused = true)]
async fn waiter_without_notifications_polls_with_a_pause() {
    let stores = MemoryTestStores::new();
    let (mut faulty, holder) = pool_of_one(&stores).await;
    holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    faulty.without_notifications = true;
    let (request_count, without_notifications) =
        (faulty.request_count.clone(), ResourceHolder::new(faulty, member("a"), RUN));
    let error = without_notifications.acquire(&accounts(), Duration::from_secs(10)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Exhausted { .. }), "{error}");
    let request_count = request_count.load(Ordering::SeqCst);
    assert!((3..=10).contains(&request_count), "requested {request_count} times in 10 s");
}

/// Calls of a command since the last reset.
async fn command_calls(client: &RedisClient, command: &str) -> u64 {
    let stats: String = ::redis::cmd("INFO").arg("commandstats").query_async(&mut client.connection()).await.unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

async fn reset_command_calls(client: &RedisClient) {
    let _: () = ::redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut client.connection()).await.unwrap();
}

#[tokio::test]
async fn foreign_entries_in_the_turn_stream_are_read_once() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "foreign");
    let (_, holder) = pool_of_one(&stores).await;
    let lease = holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let entries: [(&str, &[u8], &[u8]); 3] =
        [("7-0", b"x", b"y"), ("8-3", b"tickets", b"\xff"), ("9-9", b"\xff", b"z")];
    for (id, field, value) in entries {
        let mut add = ::redis::cmd("XADD");
        add.arg("squall:{foreign}:resources:calls").arg(id).arg(field).arg(value);
        let _: String = add.query_async(&mut client.connection()).await.unwrap();
    }
    reset_command_calls(&client).await;
    let error = holder.acquire(&accounts(), Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Exhausted { .. }), "{error}");
    let reads = command_calls(&client, "xread").await;
    assert!(reads <= 10, "read {reads} times in half a second");
    // Waiters still receive notifications.
    let waiter = holder.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(&accounts(), LONG).await });
    wait_for_counts(&stores, |counts| counts.waiting == 1).await;
    holder.release(&lease).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// A full pool without free items makes every request ask for a number; none is left.
#[tokio::test]
async fn existing_item_numbers_are_checked_once_per_run() {
    const ITEMS: u64 = 2500;
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "numbers");
    stores.pools().put(&accounts(), &numbered_items(0..ITEMS), None, None).await.unwrap();
    reset_command_calls(&client).await;
    assert_eq!(stores.pools().next_item_number(&accounts(), RUN, Some(ITEMS)).await.unwrap(), None);
    assert!(command_calls(&client, "exists").await <= ITEMS);
    assert!(command_calls(&client, "evalsha").await >= 3, "one script must not check thousands of numbers");
    reset_command_calls(&client).await;
    assert_eq!(stores.pools().next_item_number(&accounts(), RUN, Some(ITEMS)).await.unwrap(), None);
    assert_eq!(command_calls(&client, "exists").await, 0);
    assert_eq!(stores.pools().next_item_number(&accounts(), RUN, None).await.unwrap(), Some(ITEMS));
}

/// Reads all commands that the server receives from now on.
struct CommandMonitor(std::io::Lines<BufReader<TcpStream>>);

impl CommandMonitor {
    fn attach(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        Self(lines)
    }

    /// The next script call with this argument.
    fn next_script_with(&mut self, argument: &str) -> Vec<String> {
        let arguments = |line: String| {
            let arguments = line.split_once("] ").map_or("", |(_, arguments)| arguments).trim_matches('"').to_owned();
            arguments.split("\" \"").map(str::to_owned).collect::<Vec<_>>()
        };
        let mut script = self.0.by_ref().map(|line| arguments(line.unwrap()));
        let script = script
            .find(|arguments| arguments[0].starts_with("EVAL") && arguments.iter().any(|other| other == argument));
        script.expect("MONITOR never ends")
    }
}

/// The cluster client repeats a command when its reply is lost.
#[tokio::test]
async fn repeated_put_script_returns_the_same_reply() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "repeated");
    // The pool has one item, so numbering begins with 2, which exists.
    stores.pools().put(&accounts(), &numbered_items(2..3), None, None).await.unwrap();
    let mut monitor = CommandMonitor::attach(&server);
    let make = |id: ItemId| async move { Ok::<_, StoreError>(format!("made {id}")) };
    let created = add_pool_items(stores.pools(), &accounts(), 3, make).await.unwrap().created;
    assert_eq!(created, [3, 4, 5].map(ItemId::from));
    let script = monitor.next_script_with("made 4");
    let mut second = ::redis::cmd(&script[0]);
    let answer: Vec<i64> = second.arg(&script[1..]).query_async(&mut client.connection()).await.unwrap();
    assert_eq!((answer, stores.pools().count(&accounts()).await.unwrap().total), (vec![0, 1, 1], 4));
}

//! Pools whose store fails for a moment, repeats itself, or has somebody else's values in it: nothing is lost, counted twice or asked
//! for without a pause.

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
    AcquireError, Epoch, ItemId, LeaseStore, MemberId, PoolCounts, PoolItem, PoolItemStatus, PoolLease, PoolName,
    PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, RedisClient, ResourceHolder,
    Revision, StoreError, add_pool_items,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Cell, MemoryCell, RedisCell, both, member};

const TTL: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(120);
const RUN: Epoch = Epoch(1);

both! {
    what_could_not_be_given_back_goes_back_with_the_next_step
    what_is_owed_is_settled_without_another_step
}

fn accounts() -> PoolName {
    PoolName::new("accounts").unwrap()
}

fn numbered(ids: std::ops::Range<u64>) -> Vec<PoolItem> {
    ids.map(|n| PoolItem { id: ItemId::from(n), payload: format!("p{n}") }).collect()
}

fn away() -> StoreError {
    StoreError::Unreachable("away for a moment".into())
}

/// Pools that can be away for a while, and whose waiters can be deaf; counts who asks.
#[derive(Clone)]
struct Shaky<P> {
    pools: P,
    away: Arc<AtomicBool>,
    deaf: bool,
    asks: Arc<AtomicU64>,
}

impl<P: PoolStore> Shaky<P> {
    fn over(pools: &P) -> Self {
        Self { pools: pools.clone(), away: Arc::default(), deaf: false, asks: Arc::default() }
    }

    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn here(&self) -> Result<&P, StoreError> {
        if self.away.load(Ordering::SeqCst) { Err(away()) } else { Ok(&self.pools) }
    }
}

impl<P: PoolStore> PoolStore for Shaky<P> {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<Epoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        self.here()?.put(pool, items, up_to, run).await
    }
    async fn reset_for_run(&self, pool: &PoolName, run: Epoch) -> Result<bool, StoreError> {
        self.here()?.reset_for_run(pool, run).await
    }
    async fn next_item_number(
        &self,
        pool: &PoolName,
        run: Epoch,
        limit: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        self.here()?.next_item_number(pool, run, limit).await
    }
    async fn try_acquire(&self, ask: &PoolRequest, wait: Duration) -> Result<PoolRequestOutcome, StoreError> {
        assert!(self.asks.fetch_add(1, Ordering::SeqCst) < 1000, "asked without a pause");
        self.here()?.try_acquire(ask, wait).await
    }
    async fn cancel_request(&self, pool: &PoolName, ticket: &PoolRequestId) -> Result<bool, StoreError> {
        self.here()?.cancel_request(pool, ticket).await
    }
    async fn wait_for_turn(&self, ask: &PoolRequest, seen: Revision, within: Duration) -> Result<(), StoreError> {
        if self.deaf { Err(away()) } else { self.pools.wait_for_turn(ask, seen, within).await }
    }
    async fn release(&self, hold: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        self.here()?.release(hold).await
    }
    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        self.here()?.release_all(holder).await
    }
    async fn sweep(&self) -> Result<u64, StoreError> {
        self.here()?.sweep().await
    }
    async fn names(&self) -> Result<Vec<PoolName>, StoreError> {
        self.here()?.names().await
    }
    async fn count(&self, pool: &PoolName) -> Result<PoolCounts, StoreError> {
        self.here()?.count(pool).await
    }
    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<PoolItemStatus>, StoreError> {
        self.here()?.list(pool, limit).await
    }
}

/// A pool of one thing, and somebody who may borrow it through a store that can be away.
async fn one_thing<C: Cell>(cell: &C) -> (Shaky<C::Pools>, ResourceHolder<Shaky<C::Pools>>) {
    cell.members().join(&member("a"), TTL).await.unwrap();
    cell.pools().put(&accounts(), &numbered(1..2), None, None).await.unwrap();
    let shaky = Shaky::over(cell.pools());
    (shaky.clone(), ResourceHolder::new(shaky, member("a"), RUN))
}

async fn what_could_not_be_given_back_goes_back_with_the_next_step(cell: impl Cell) {
    let (shaky, borrower) = one_thing(&cell).await;
    let hold = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    shaky.set_away(true);
    assert!(matches!(borrower.release(&hold).await, Err(StoreError::Unreachable(_))));
    shaky.set_away(false);
    let again = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    assert!(again.grant > hold.grant);
    // What was given back late is not given back again over the heads of those who have it now.
    assert_eq!(
        borrower.acquire(&accounts(), Duration::ZERO).await.unwrap_err().to_string().find("no `accounts`"),
        Some(0)
    );
    assert_eq!(borrower.release(&again).await.unwrap(), PoolReleaseOutcome::Released);
}

async fn what_is_owed_is_settled_without_another_step(cell: impl Cell) {
    let (shaky, borrower) = one_thing(&cell).await;
    let settling = borrower.clone();
    let settling = tokio::spawn(async move { settling.run_cleanup().await });
    let hold = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let waiter = borrower.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(&accounts(), LONG).await });
    until(&cell, |counts| counts.waiting == 1).await;
    shaky.set_away(true);
    assert!(borrower.release(&hold).await.is_err());
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    shaky.set_away(false);
    until(&cell, |counts| (counts.available, counts.held, counts.waiting) == (1, 0, 0)).await;
    borrower.finish_cleanup().await;
    settling.abort();
}

/// Waits, without a step of any borrower.
async fn until(cell: &impl Cell, fits: impl Fn(&PoolCounts) -> bool) {
    while !fits(&cell.pools().count(&accounts()).await.unwrap()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_spoilt_pool_keeps_nothing_from_going_back_to_another() {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "spoilt");
    let (shaky, borrower) = one_thing(&cell).await;
    let wallets = PoolName::new("wallets").unwrap();
    cell.pools().put(&wallets, &numbered(1..2), None, None).await.unwrap();
    let account = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let wallet = borrower.acquire(&wallets, Duration::ZERO).await.unwrap();
    let (waiting, mut commands) = ("squall:{spoilt}:resource:accounts:waiting", link.connection());
    let _: () = ::redis::cmd("SET").arg(waiting).arg("x").query_async(&mut commands).await.unwrap();
    assert!(matches!(borrower.release(&account).await, Err(StoreError::WrongType { .. })));
    shaky.set_away(true);
    assert!(borrower.release(&wallet).await.is_err());
    shaky.set_away(false);
    borrower.acquire(&wallets, Duration::ZERO).await.unwrap();
    // And when somebody has removed what spoils it, the other goes back as well.
    let _: i64 = ::redis::cmd("DEL").arg(waiting).query_async(&mut commands).await.unwrap();
    borrower.finish_cleanup().await;
    until(&cell, |counts| counts.available == 1).await;
}

/// Where the server takes no further connection, nobody hears that it was called.
#[tokio::test(start_paused = true)]
async fn who_cannot_hear_asks_again_after_a_pause() {
    let cell = MemoryCell::new();
    let (mut shaky, borrower) = one_thing(&cell).await;
    borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    shaky.deaf = true;
    let (asks, deaf) = (shaky.asks.clone(), ResourceHolder::new(shaky, member("a"), RUN));
    let tired = deaf.acquire(&accounts(), Duration::from_secs(10)).await.unwrap_err();
    assert!(matches!(tired, AcquireError::Exhausted { .. }), "{tired}");
    let asks = asks.load(Ordering::SeqCst);
    assert!((3..=10).contains(&asks), "asked {asks} times in 10 s");
}

/// How often the server has carried out a command since it was last told to forget.
async fn calls(link: &RedisClient, command: &str) -> u64 {
    let stats: String = ::redis::cmd("INFO").arg("commandstats").query_async(&mut link.connection()).await.unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

async fn forget_calls(link: &RedisClient) {
    let _: () = ::redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut link.connection()).await.unwrap();
}

#[tokio::test]
async fn foreign_entries_among_the_calls_are_read_once() {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "foreign");
    let (_, borrower) = one_thing(&cell).await;
    let hold = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
    let entries: [(&str, &[u8], &[u8]); 3] =
        [("7-0", b"x", b"y"), ("8-3", b"tickets", b"\xff"), ("9-9", b"\xff", b"z")];
    for (id, field, value) in entries {
        let mut add = ::redis::cmd("XADD");
        add.arg("squall:{foreign}:resources:calls").arg(id).arg(field).arg(value);
        let _: String = add.query_async(&mut link.connection()).await.unwrap();
    }
    forget_calls(&link).await;
    let tired = borrower.acquire(&accounts(), Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(tired, AcquireError::Exhausted { .. }), "{tired}");
    let reads = calls(&link, "xread").await;
    assert!(reads <= 10, "read {reads} times in half a second");
    // And those who are called are still heard.
    let waiter = borrower.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(&accounts(), LONG).await });
    until(&cell, |counts| counts.waiting == 1).await;
    borrower.release(&hold).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// With as many things as there may be, whoever finds none free asks for a number, and there is none.
#[tokio::test]
async fn numbers_that_are_taken_are_looked_at_once() {
    const THINGS: u64 = 2500;
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "numbers");
    cell.pools().put(&accounts(), &numbered(0..THINGS), None, None).await.unwrap();
    forget_calls(&link).await;
    assert_eq!(cell.pools().next_item_number(&accounts(), RUN, Some(THINGS)).await.unwrap(), None);
    assert!(calls(&link, "exists").await <= THINGS);
    assert!(calls(&link, "evalsha").await >= 3, "no step looks at thousands while everybody waits");
    forget_calls(&link).await;
    assert_eq!(cell.pools().next_item_number(&accounts(), RUN, Some(THINGS)).await.unwrap(), None);
    assert_eq!(calls(&link, "exists").await, 0);
    assert_eq!(cell.pools().next_item_number(&accounts(), RUN, None).await.unwrap(), Some(THINGS));
}

/// Everything the server is told from now on, word by word.
struct Overheard(std::io::Lines<BufReader<TcpStream>>);

impl Overheard {
    fn on(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        Self(lines)
    }

    /// The next script that was told this word.
    fn script_with(&mut self, word: &str) -> Vec<String> {
        let words = |line: String| {
            let words = line.split_once("] ").map_or("", |(_, words)| words).trim_matches('"').to_owned();
            words.split("\" \"").map(str::to_owned).collect::<Vec<_>>()
        };
        let mut told = self.0.by_ref().map(|line| words(line.unwrap()));
        let script = told.find(|words| words[0].starts_with("EVAL") && words.iter().any(|other| other == word));
        script.expect("MONITOR never ends")
    }
}

/// The client of a cluster sends a command again when its answer is lost.
#[tokio::test]
async fn a_repeated_put_is_answered_as_it_was() {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "repeated");
    // One thing, so the numbers begin with 2, which is taken.
    cell.pools().put(&accounts(), &numbered(2..3), None, None).await.unwrap();
    let mut overheard = Overheard::on(&server);
    let make = |id: ItemId| async move { Ok::<_, StoreError>(format!("made {id}")) };
    let created = add_pool_items(cell.pools(), &accounts(), 3, make).await.unwrap().created;
    assert_eq!(created, [3, 4, 5].map(ItemId::from));
    let told = overheard.script_with("made 4");
    let mut again = ::redis::cmd(&told[0]);
    let answer: Vec<i64> = again.arg(&told[1..]).query_async(&mut link.connection()).await.unwrap();
    assert_eq!((answer, cell.pools().count(&accounts()).await.unwrap().total), (vec![0, 1, 1], 4));
}

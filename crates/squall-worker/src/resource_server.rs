//! Keeps the pools for the users of one run in this process: stocks them, borrows for those who ask, gives back what was dropped.
//! The same for a worker of a fleet and for a run that has its pools in its own memory. Decides nothing: who gets what is the store's.

use serde_json::{Map, Value};
use squall_coord::{
    AcquireError, Epoch, FleetStores as _, ItemId, LeaseStore as _, MemberId, MemoryFleetStores, PoolItem, PoolLease,
    PoolName, PoolNameError, PoolStore, ResourceHolder, StoreError,
};
use squall_engine::{GrantedResource, ResourceClient, ResourceError, ResourceRequest};
use squall_model::PoolContents;
use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    task::{JoinHandle, JoinSet},
};
use tracing::debug;

/// Things per step; a step stops everybody else at the store meanwhile.
const PUT_BATCH: usize = 500;

/// The pools of one process live as long as it; nobody beats.
const UNLIMITED_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why the pools of a scenario cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum PoolFillError {
    #[error(transparent)]
    Name(#[from] PoolNameError),
    #[error("cannot fill the pools of the scenario")]
    Store(#[from] StoreError),
}

/// Which things of a pool are this process's, where several have pools of their own: every so-manieth.
#[derive(Debug, Clone, Copy)]
pub struct PoolSlice {
    pub index: u64,
    pub count: u64,
}

impl PoolSlice {
    pub const ALL: PoolSlice = PoolSlice { index: 0, count: 1 };
}

/// Empties and fills the pools of a scenario, once for a run, whoever else does the same at the same time. A pool whose things are made
/// as they are asked for keeps what it has, which goes out before anything is made.
pub(crate) async fn fill_pools<P: PoolStore>(
    pools: &P,
    stock: &[PoolContents],
    run: Epoch,
    portion: PoolSlice,
) -> Result<(), PoolFillError> {
    for one in stock {
        let pool = PoolName::new(one.pool.as_str())?;
        if one.payloads.is_empty() {
            pools.put(&pool, &[], None, Some(run)).await?;
            continue;
        }
        pools.reset_for_run(&pool, run).await?;
        let mine = one.payloads.iter().enumerate().filter(|(at, _)| *at as u64 % portion.count == portion.index);
        let mine: Vec<(usize, &String)> = mine.collect();
        if pools.count(&pool).await?.total >= mine.len() as u64 {
            continue;
        }
        for batch in mine.chunks(PUT_BATCH) {
            let things: Vec<PoolItem> =
                batch.iter().map(|(at, payload)| stored_item(&pool, ItemId::from(*at as u64), payload)).collect();
            pools.put(&pool, &things, None, Some(run)).await?;
        }
    }
    Ok(())
}

/// A line to the pools of a fleet, and the task that serves it until nobody holds the line.
pub(crate) fn serve_fleet_pools<P: PoolStore>(
    pools: P,
    holder: MemberId,
    run: Epoch,
) -> (ResourceClient, JoinHandle<()>) {
    let (lender, asks) = ResourceClient::new();
    let keeper =
        ResourceServer { holder: ResourceHolder::new(pools.clone(), holder, run), pools, run, slice: PoolSlice::ALL };
    (lender, tokio::spawn(keeper.serve(asks)))
}

/// A line to pools in this process, stocked with `stock`, and the task that serves it until nobody holds the line.
pub async fn serve_local_pools(
    stock: &[PoolContents],
    portion: PoolSlice,
) -> Result<(ResourceClient, JoinHandle<()>), PoolFillError> {
    let cell = MemoryFleetStores::default();
    let (holder, run) = (MemberId::new("here"), Epoch(1));
    cell.workers().join(&holder, UNLIMITED_TTL).await?;
    fill_pools(&cell.pools(), stock, run, portion).await?;
    let (lender, asks) = ResourceClient::new();
    let keeper = ResourceServer {
        holder: ResourceHolder::new(cell.pools(), holder, run),
        pools: cell.pools(),
        run,
        slice: portion,
    };
    Ok((lender, tokio::spawn(keeper.serve(asks))))
}

/// The other end of the users' line.
#[derive(Clone)]
struct ResourceServer<P> {
    holder: ResourceHolder<P>,
    pools: P,
    run: Epoch,
    slice: PoolSlice,
}

/// What became of something that was asked for.
enum ResourceOutcome {
    /// Lent; if nobody waited for it any more, its return is on its way.
    Acquired(u64, PoolLease),
    NotHeld,
}

impl<P: PoolStore> ResourceServer<P> {
    async fn serve(self, mut asks: UnboundedReceiver<ResourceRequest>) {
        let mut lent: HashMap<u64, PoolLease> = HashMap::new();
        // Given back before this task knew that it was lent: the answer goes straight to the user.
        let mut early: Vec<u64> = Vec::new();
        let mut under_way: JoinSet<ResourceOutcome> = JoinSet::new();
        let mut next = 0;
        let mut settling = Box::pin(self.holder.run_cleanup());
        loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    None => break,
                    Some(ResourceRequest::Release(number)) => match lent.remove(&number) {
                        Some(hold) => { under_way.spawn(self.clone().release(hold)); }
                        None => early.push(number),
                    },
                    Some(ask) => {
                        next += 1;
                        under_way.spawn(self.clone().handle_request(next, ask));
                    }
                },
                Some(settled) = under_way.join_next(), if !under_way.is_empty() => {
                    if let Ok(ResourceOutcome::Acquired(number, hold)) = settled {
                        match early.iter().position(|known| *known == number) {
                            Some(at) => {
                                early.swap_remove(at);
                                under_way.spawn(self.clone().release(hold));
                            }
                            None => { lent.insert(number, hold); }
                        }
                    }
                }
                never = &mut settling => match never {},
            }
        }
        // One that stands still would keep the others from settling.
        drop(settling);
        while let Some(settled) = under_way.join_next().await {
            if let Ok(ResourceOutcome::Acquired(number, hold)) = settled {
                lent.insert(number, hold);
            }
        }
        for hold in lent.into_values() {
            self.clone().release(hold).await;
        }
        // Whoever waits for this has a limit; what is still owed then goes back with the next run, or with this worker.
        self.holder.finish_cleanup().await;
    }

    async fn handle_request(self, number: u64, ask: ResourceRequest) -> ResourceOutcome {
        match ask {
            ResourceRequest::Acquire { pool, wait, reply: mut answer } => {
                let taken = tokio::select! {
                    taken = self.acquire(&pool, wait) => taken,
                    // The borrower gives up its place in the queue.
                    () = answer.closed() => return ResourceOutcome::NotHeld,
                };
                let told = taken.as_ref().map(|hold| GrantedResource {
                    lease_id: number,
                    id: hold.id.to_string(),
                    payload: hold.payload.clone(),
                });
                answer.send(told.map_err(Clone::clone));
                return taken.map_or(ResourceOutcome::NotHeld, |hold| ResourceOutcome::Acquired(number, hold));
            }
            ResourceRequest::AllocateNumber { pool, limit, reply: answer } => {
                let _ = answer.send(self.next_number(&pool, limit).await);
            }
            ResourceRequest::Add { pool, id, payload, reply: answer } => {
                let _ = answer.send(self.add(&pool, id, payload).await);
            }
            ResourceRequest::Release(_) => {}
        }
        ResourceOutcome::NotHeld
    }

    async fn acquire(&self, pool: &str, wait: Duration) -> Result<PoolLease, ResourceError> {
        self.holder.acquire(&parse_pool_name(pool)?, wait).await.map_err(|error| match error {
            AcquireError::Exhausted { .. } => ResourceError::Exhausted(error.to_string()),
            _ => ResourceError::Refused(error.to_string()),
        })
    }

    async fn next_number(&self, pool: &str, limit: Option<u64>) -> Result<Option<u64>, ResourceError> {
        let (PoolSlice { index: number, count: of }, pool) = (self.slice, parse_pool_name(pool)?);
        loop {
            let given = self.pools.next_item_number(&pool, self.run, limit).await.map_err(rejected)?;
            // Others' numbers are passed over, in a pool that is this process's own; so each names the thing that it is for.
            if given.is_none_or(|given| given % of == number) {
                return Ok(given);
            }
        }
    }

    async fn add(&self, pool: &str, id: String, payload: String) -> Result<(), ResourceError> {
        let (pool, id) = (parse_pool_name(pool)?, ItemId::new(id).map_err(rejected)?);
        let made = stored_item(&pool, id, &payload);
        self.pools.put(&pool, &[made], None, Some(self.run)).await.map(|_| ()).map_err(rejected)
    }

    async fn release(self, hold: PoolLease) -> ResourceOutcome {
        if let Err(error) = self.holder.release(&hold).await {
            // The borrower owes it.
            debug!(pool = %hold.pool, %error, "something could not be given back yet");
        }
        ResourceOutcome::NotHeld
    }
}

/// A thing as it is stored: with what the seed and the API note about theirs, where it has no fields of these names. Everything else stays
/// as it was written.
fn stored_item(pool: &PoolName, id: ItemId, payload: &str) -> PoolItem {
    let fields = serde_json::from_str::<Map<String, Value>>(payload);
    let (Ok(fields), Some(open)) = (fields, payload.trim_end().strip_suffix('}')) else {
        return PoolItem { id, payload: payload.to_owned() };
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let marks =
        [("resource_name", pool.as_str().into()), ("resource_id", id.as_str().into()), ("created_at", now.into())];
    let (mut stored, mut between) = (open.to_owned(), if fields.is_empty() { "" } else { "," });
    for (name, mark) in marks.iter().filter(|(name, _): &&(&str, Value)| !fields.contains_key(*name)) {
        stored += &format!("{between}\"{name}\":{mark}");
        between = ",";
    }
    PoolItem { id, payload: stored + "}" }
}

fn parse_pool_name(pool: &str) -> Result<PoolName, ResourceError> {
    PoolName::new(pool).map_err(rejected)
}

fn rejected(error: impl std::fmt::Display) -> ResourceError {
    ResourceError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{RedisClient, RedisFleetStores};
    use squall_testkit::redis::RedisServer;
    use std::{
        future::Future,
        task::{Context, Waker},
        time::Instant,
    };

    fn stock(count: usize) -> Vec<PoolContents> {
        vec![PoolContents { pool: "users".into(), payloads: (0..count).map(|n| format!("{{\"n\":{n}}}")).collect() }]
    }

    #[tokio::test]
    async fn a_dropped_loan_can_be_borrowed_again() {
        let (lender, serving) = serve_local_pools(&stock(1), PoolSlice::ALL).await.unwrap();
        let loan = lender.acquire("users", Duration::ZERO).await.unwrap();
        assert_eq!((loan.id(), loan.is_valid()), ("0", true));
        assert!(loan.payload().starts_with("{\"n\":0,"), "{}", loan.payload());
        assert!(matches!(lender.acquire("users", Duration::ZERO).await, Err(ResourceError::Exhausted(_))));
        drop(loan);
        let again = lender.acquire("users", Duration::from_secs(60)).await.unwrap();
        lender.invalidate_leases();
        assert!(!again.is_valid());
        drop((again, lender));
        serving.await.unwrap();
    }

    /// The answer was there, and the user was cancelled before it looked.
    #[tokio::test]
    async fn what_was_lent_to_a_user_that_is_gone_can_be_borrowed_again() {
        let (lender, _serving) = serve_local_pools(&stock(1), PoolSlice::ALL).await.unwrap();
        let mut taking = Box::pin(lender.acquire("users", Duration::ZERO));
        assert!(taking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // Others are told that there is none: by then it is lent, and the answer is there.
        while lender.acquire("users", Duration::ZERO).await.is_ok() {}
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(taking);
        assert_eq!(lender.acquire("users", Duration::from_secs(1)).await.unwrap().id(), "0");
    }

    /// Each process has made what is its own: the other's names are none of its things.
    #[tokio::test]
    async fn processes_make_all_that_they_may_make() {
        let mut made = Vec::new();
        for number in 0..2 {
            let (lender, _serving) = serve_local_pools(&[], PoolSlice { index: number, count: 2 }).await.unwrap();
            while let Some(given) = lender.allocate_number("users", Some(7)).await.unwrap() {
                lender.add("users", given.to_string(), "{}".into()).await.unwrap();
                made.push(given);
            }
        }
        made.sort_unstable();
        assert_eq!(made, (0..7).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_given_back_while_the_store_is_away_can_be_borrowed_again() {
        let mut server = RedisServer::start_persistent();
        let cell = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "away");
        let (pools, holder, run) = (cell.pools(), MemberId::new("here"), Epoch(1));
        cell.workers().join(&holder, UNLIMITED_TTL).await.unwrap();
        fill_pools(&pools, &stock(1), run, PoolSlice::ALL).await.unwrap();
        let (users, (lender, serving)) =
            (PoolName::new("users").unwrap(), serve_fleet_pools(pools.clone(), holder, run));
        let loan = lender.acquire("users", Duration::ZERO).await.unwrap();
        server.kill();
        drop(loan);
        while pools.count(&users).await.is_ok() {}
        server.restart();
        // Nobody asks for anything: it goes back by itself.
        let begin = Instant::now();
        while !pools.count(&users).await.is_ok_and(|users| users.available == 1) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is lost");
        }
        // At the end of the run, too.
        let loan = lender.acquire("users", Duration::from_secs(60)).await.unwrap();
        server.kill();
        drop(loan);
        while pools.count(&users).await.is_ok() {}
        drop(lender);
        while pools.count(&users).await.is_ok() {}
        server.restart();
        tokio::time::timeout(Duration::from_secs(60), serving).await.expect("it ends").unwrap();
        assert_eq!(pools.count(&users).await.unwrap().available, 1);
    }

    #[track_caller]
    fn stored(payload: &str, expected: &str) {
        let thing = stored_item(&PoolName::new("users").unwrap(), ItemId::from(7), payload);
        let now = thing.payload.rsplit_once("\"created_at\":").map(|(_, now)| now.trim_end_matches('}'));
        let now = now.filter(|now| now.parse::<f64>().is_ok_and(|now| now > 1e9));
        assert_eq!(thing.payload, expected.replace("NOW", now.unwrap_or("a time")));
    }

    /// What was written is passed on to the letter: numbers may be longer than any machine's.
    #[test]
    fn things_are_stored_with_the_marks_that_they_do_not_have_themselves() {
        let marks = r#""resource_name":"users","resource_id":"7","created_at":NOW}"#;
        stored("{}", &format!("{{{marks}"));
        let long = r#"{"n": 123456789012345678901234567890, "in": {}}"#;
        stored(&format!("{long}\n"), &format!("{},{marks}", &long[..long.len() - 1]));
        let own = r#"{"resource_id":"x","created_at":"then""#;
        stored(&format!("{own}}}"), &format!(r#"{own},"resource_name":"users"}}"#));
        for other in ["", "7", "[{}]", "\"}\""] {
            stored(other, other);
        }
    }

    #[tokio::test]
    async fn who_waits_is_served_in_order_and_who_leaves_is_passed_over() {
        let (lender, _serving) = serve_local_pools(&stock(1), PoolSlice::ALL).await.unwrap();
        let first = lender.acquire("users", Duration::ZERO).await.unwrap();
        let wait = |lender: ResourceClient| async move { lender.acquire("users", Duration::from_secs(600)).await };
        let impatient = tokio::spawn(wait(lender.clone()));
        let second = tokio::spawn(wait(lender.clone()));
        impatient.abort();
        assert!(impatient.await.unwrap_err().is_cancelled());
        drop(first);
        assert_eq!(second.await.unwrap().unwrap().id(), "0");
    }

    #[tokio::test]
    async fn processes_share_things_and_numbers_without_meeting() {
        let mut ids = Vec::new();
        for number in 0..2 {
            let (lender, _serving) = serve_local_pools(&stock(5), PoolSlice { index: number, count: 2 }).await.unwrap();
            while let Ok(loan) = lender.acquire("users", Duration::ZERO).await {
                ids.push(loan.id().to_owned());
                std::mem::forget(loan);
            }
            while let Some(given) = lender.allocate_number("more", Some(7)).await.unwrap() {
                ids.push(format!("more-{given}"));
            }
        }
        ids.sort();
        let expected = (0..5).map(|n| n.to_string()).chain((0..7).map(|n| format!("more-{n}")));
        assert_eq!(ids, expected.collect::<Vec<_>>());
    }

    /// What somebody has put into the pool of a factory is there when a run begins, and nothing is made under its names.
    #[tokio::test]
    async fn what_a_factorys_pool_has_is_kept_and_handed_out_first() {
        let (cell, holder, run) = (MemoryFleetStores::default(), MemberId::new("here"), Epoch(1));
        cell.workers().join(&holder, UNLIMITED_TTL).await.unwrap();
        let (pools, users) = (cell.pools(), PoolName::new("users").unwrap());
        let make = |id: ItemId| async move { Ok::<_, StoreError>(format!("{{\"made\":{id}}}")) };
        squall_coord::ensure_pool_size(&pools, &users, 3, make).await.unwrap();
        let factory = [PoolContents { pool: "users".into(), payloads: Vec::new() }];
        fill_pools(&pools, &factory, run, PoolSlice::ALL).await.unwrap();
        assert_eq!(pools.count(&users).await.unwrap().total, 3);
        let (lender, _serving) = serve_fleet_pools(pools.clone(), holder, run);
        let mut ids = Vec::new();
        while let Ok(loan) = lender.acquire("users", Duration::ZERO).await {
            ids.push(loan.id().to_owned());
            std::mem::forget(loan);
        }
        ids.sort();
        assert_eq!(ids, ["1", "2", "3"]);
        let mut numbers = Vec::new();
        for _ in 0..3 {
            numbers.push(lender.allocate_number("users", None).await.unwrap());
        }
        assert_eq!(numbers, [Some(0), Some(4), Some(5)]);
    }

    #[tokio::test]
    async fn a_pool_that_nobody_declared_is_refused_by_name() {
        let (lender, _serving) = serve_local_pools(&[], PoolSlice::ALL).await.unwrap();
        let error = lender.acquire("users", Duration::from_secs(60)).await.unwrap_err();
        assert!(error.to_string().contains("there is no resource pool `users`"), "{error}");
        lender.add("users", "7".into(), "{}".into()).await.unwrap();
        assert_eq!(lender.acquire("users", Duration::ZERO).await.unwrap().id(), "7");
    }
}

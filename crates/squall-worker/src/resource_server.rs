//! Serves the resource pools of one run to the users of this process: fills the pools, acquires
//! items for users, releases dropped leases. It does not decide which user gets which item: the
//! store does. A worker uses it with the fleet's store, a local run with pools in memory.

use serde_json::{Map, Value};
use squall_coord::{
    AcquireError, FleetStores as _, ItemId, LeaseStore as _, MemberId, MemoryFleetStores, PoolItem, PoolLease,
    PoolName, PoolNameError, PoolStore, ResourceHolder, RunEpoch, StoreError,
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

/// Items per call. The store serves no other client during a call.
const PUT_BATCH: usize = 500;

/// Pools in memory live as long as the process, without heartbeats.
const UNLIMITED_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why the pools of a scenario cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum PoolFillError {
    #[error(transparent)]
    Name(#[from] PoolNameError),
    #[error("cannot fill the pools of the scenario")]
    Store(#[from] StoreError),
}

/// The items of a pool that belong to this process, if several processes have pools in memory:
/// those whose index modulo `count` is `index`.
#[derive(Debug, Clone, Copy)]
pub struct PoolSlice {
    pub index: u64,
    pub count: u64,
}

impl PoolSlice {
    pub const ALL: PoolSlice = PoolSlice { index: 0, count: 1 };
}

/// Empties and fills the pools of a scenario, once for a run even if several workers do so at the
/// same time. A pool whose items are made on demand keeps its items, and users get those before new
/// ones are made.
pub(crate) async fn fill_pools<P: PoolStore>(
    pools: &P,
    contents: &[PoolContents],
    run: RunEpoch,
    slice: PoolSlice,
) -> Result<(), PoolFillError> {
    for declared in contents {
        let pool = PoolName::new(declared.pool.as_str())?;
        if declared.payloads.is_empty() {
            pools.put(&pool, &[], None, Some(run)).await?;
            continue;
        }
        pools.reset_for_run(&pool, run).await?;
        let mine = declared.payloads.iter().enumerate().filter(|(at, _)| *at as u64 % slice.count == slice.index);
        let mine: Vec<(usize, &String)> = mine.collect();
        if pools.count(&pool).await?.total >= mine.len() as u64 {
            continue;
        }
        for batch in mine.chunks(PUT_BATCH) {
            let items: Vec<PoolItem> =
                batch.iter().map(|(at, payload)| stored_item(&pool, ItemId::from(*at as u64), payload)).collect();
            pools.put(&pool, &items, None, Some(run)).await?;
        }
    }
    Ok(())
}

/// A client of the fleet's pools, and the task that serves it until the last clone of the client is
/// dropped.
pub(crate) fn serve_fleet_pools<P: PoolStore>(
    pools: P,
    holder: MemberId,
    run: RunEpoch,
) -> (ResourceClient, JoinHandle<()>) {
    let (client, requests) = ResourceClient::new();
    let server =
        ResourceServer { holder: ResourceHolder::new(pools.clone(), holder, run), pools, run, slice: PoolSlice::ALL };
    (client, tokio::spawn(server.serve(requests)))
}

/// A client of pools in memory with `contents`, and the task that serves it until the last clone of
/// the client is dropped.
pub async fn serve_local_pools(
    contents: &[PoolContents],
    slice: PoolSlice,
) -> Result<(ResourceClient, JoinHandle<()>), PoolFillError> {
    let stores = MemoryFleetStores::default();
    let (holder, run) = (MemberId::new("here"), RunEpoch(1));
    stores.workers().join(&holder, UNLIMITED_TTL).await?;
    fill_pools(&stores.pools(), contents, run, slice).await?;
    let (client, requests) = ResourceClient::new();
    let server =
        ResourceServer { holder: ResourceHolder::new(stores.pools(), holder, run), pools: stores.pools(), run, slice };
    Ok((client, tokio::spawn(server.serve(requests))))
}

/// Handles the requests of the users' clients.
#[derive(Clone)]
struct ResourceServer<P> {
    holder: ResourceHolder<P>,
    pools: P,
    run: RunEpoch,
    slice: PoolSlice,
}

/// The result of a request.
enum ResourceOutcome {
    /// The item is leased under this number. If the user did not wait for it, its release is
    /// already in the queue.
    Acquired(u64, PoolLease),
    NotHeld,
}

impl<P: PoolStore> ResourceServer<P> {
    async fn serve(self, mut requests: UnboundedReceiver<ResourceRequest>) {
        let mut leases: HashMap<u64, PoolLease> = HashMap::new();
        // Leases that were released before this task knew of them: the reply goes directly to the
        // user.
        let mut released_early: Vec<u64> = Vec::new();
        let mut pending: JoinSet<ResourceOutcome> = JoinSet::new();
        let mut next_number = 0;
        let mut cleanup = Box::pin(self.holder.run_cleanup());
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    None => break,
                    Some(ResourceRequest::Release(number)) => match leases.remove(&number) {
                        Some(lease) => { pending.spawn(self.clone().release(lease)); }
                        None => released_early.push(number),
                    },
                    Some(request) => {
                        next_number += 1;
                        pending.spawn(self.clone().handle_request(next_number, request));
                    }
                },
                Some(finished) = pending.join_next(), if !pending.is_empty() => {
                    if let Ok(ResourceOutcome::Acquired(number, lease)) = finished {
                        match released_early.iter().position(|known| *known == number) {
                            Some(at) => {
                                released_early.swap_remove(at);
                                pending.spawn(self.clone().release(lease));
                            }
                            None => { leases.insert(number, lease); }
                        }
                    }
                }
                never = &mut cleanup => match never {},
            }
        }
        // An unpolled cleanup could keep the releases below from finishing.
        drop(cleanup);
        while let Some(finished) = pending.join_next().await {
            if let Ok(ResourceOutcome::Acquired(number, lease)) = finished {
                leases.insert(number, lease);
            }
        }
        for lease in leases.into_values() {
            self.clone().release(lease).await;
        }
        // `WorkerRun` waits for this with a timeout. Items that are still held then are released
        // with the next run or when this worker leaves.
        self.holder.finish_cleanup().await;
    }

    async fn handle_request(self, number: u64, request: ResourceRequest) -> ResourceOutcome {
        match request {
            ResourceRequest::Acquire { pool, wait, mut reply } => {
                let acquired = tokio::select! {
                    acquired = self.acquire(&pool, wait) => acquired,
                    // The user does not wait any longer; dropping the call leaves the queue.
                    () = reply.closed() => return ResourceOutcome::NotHeld,
                };
                let granted = acquired.as_ref().map(|lease| GrantedResource {
                    lease_id: number,
                    id: lease.id.to_string(),
                    payload: lease.payload.clone(),
                });
                reply.send(granted.map_err(Clone::clone));
                return acquired.map_or(ResourceOutcome::NotHeld, |lease| ResourceOutcome::Acquired(number, lease));
            }
            ResourceRequest::AllocateNumber { pool, limit, reply } => {
                let _ = reply.send(self.next_number(&pool, limit).await);
            }
            ResourceRequest::Add { pool, id, payload, reply } => {
                let _ = reply.send(self.add(&pool, id, payload).await);
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
        let (PoolSlice { index, count }, pool) = (self.slice, parse_pool_name(pool)?);
        loop {
            let number = self.pools.next_item_number(&pool, self.run, limit).await.map_err(rejected)?;
            // The pool is this process's own, so it hands out the numbers of other processes as
            // well; those are skipped.
            if number.is_none_or(|number| number % count == index) {
                return Ok(number);
            }
        }
    }

    async fn add(&self, pool: &str, id: String, payload: String) -> Result<(), ResourceError> {
        let (pool, id) = (parse_pool_name(pool)?, ItemId::new(id).map_err(rejected)?);
        let item = stored_item(&pool, id, &payload);
        self.pools.put(&pool, &[item], None, Some(self.run)).await.map(|_| ()).map_err(rejected)
    }

    async fn release(self, lease: PoolLease) -> ResourceOutcome {
        if let Err(error) = self.holder.release(&lease).await {
            // The holder's cleanup tries again.
            debug!(pool = %lease.pool, %error, "the worker could not release an item; it tries again");
        }
        ResourceOutcome::NotHeld
    }
}

/// The item as the store keeps it: with the fields that vikhry and the web API add to theirs,
/// unless it has fields of these names. The rest of the payload stays byte for byte.
fn stored_item(pool: &PoolName, id: ItemId, payload: &str) -> PoolItem {
    let fields = serde_json::from_str::<Map<String, Value>>(payload);
    let (Ok(fields), Some(open)) = (fields, payload.trim_end().strip_suffix('}')) else {
        return PoolItem { id, payload: payload.to_owned() };
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let added =
        [("resource_name", pool.as_str().into()), ("resource_id", id.as_str().into()), ("created_at", now.into())];
    let (mut stored, mut between) = (open.to_owned(), if fields.is_empty() { "" } else { "," });
    for (name, value) in added.iter().filter(|(name, _): &&(&str, Value)| !fields.contains_key(*name)) {
        stored += &format!("{between}\"{name}\":{value}");
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

    fn contents(count: usize) -> Vec<PoolContents> {
        vec![PoolContents { pool: "users".into(), payloads: (0..count).map(|n| format!("{{\"n\":{n}}}")).collect() }]
    }

    #[tokio::test]
    async fn dropped_lease_can_be_acquired_again() {
        let (client, server_task) = serve_local_pools(&contents(1), PoolSlice::ALL).await.unwrap();
        let lease = client.acquire("users", Duration::ZERO).await.unwrap();
        assert_eq!((lease.id(), lease.is_valid()), ("0", true));
        assert!(lease.payload().starts_with("{\"n\":0,"), "{}", lease.payload());
        assert!(matches!(client.acquire("users", Duration::ZERO).await, Err(ResourceError::Exhausted(_))));
        drop(lease);
        let again = client.acquire("users", Duration::from_secs(60)).await.unwrap();
        client.invalidate_leases();
        assert!(!again.is_valid());
        drop((again, client));
        server_task.await.unwrap();
    }

    /// The reply was sent, and the user was cancelled before it read it.
    #[tokio::test]
    async fn item_leased_to_a_cancelled_user_can_be_acquired_again() {
        let (client, _server_task) = serve_local_pools(&contents(1), PoolSlice::ALL).await.unwrap();
        let mut acquiring = Box::pin(client.acquire("users", Duration::ZERO));
        assert!(acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // When another request finds no item, the item is leased and the reply sent.
        while client.acquire("users", Duration::ZERO).await.is_ok() {}
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(acquiring);
        assert_eq!(client.acquire("users", Duration::from_secs(1)).await.unwrap().id(), "0");
    }

    #[tokio::test]
    async fn processes_allocate_every_number_once() {
        let mut allocated = Vec::new();
        for index in 0..2 {
            let (client, _server_task) = serve_local_pools(&[], PoolSlice { index, count: 2 }).await.unwrap();
            while let Some(number) = client.allocate_number("users", Some(7)).await.unwrap() {
                client.add("users", number.to_string(), "{}".into()).await.unwrap();
                allocated.push(number);
            }
        }
        allocated.sort_unstable();
        assert_eq!(allocated, (0..7).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lease_released_while_the_store_is_away_can_be_acquired_again() {
        let mut server = RedisServer::start_persistent();
        let stores = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "away");
        let (pools, holder, run) = (stores.pools(), MemberId::new("here"), RunEpoch(1));
        stores.workers().join(&holder, UNLIMITED_TTL).await.unwrap();
        fill_pools(&pools, &contents(1), run, PoolSlice::ALL).await.unwrap();
        let (users, (client, server_task)) =
            (PoolName::new("users").unwrap(), serve_fleet_pools(pools.clone(), holder, run));
        let lease = client.acquire("users", Duration::ZERO).await.unwrap();
        server.kill();
        drop(lease);
        while pools.count(&users).await.is_ok() {}
        server.restart();
        // Without any request, the cleanup releases it.
        let begin = Instant::now();
        while !pools.count(&users).await.is_ok_and(|users| users.available == 1) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the item is lost");
        }
        // The same at the end of the run.
        let lease = client.acquire("users", Duration::from_secs(60)).await.unwrap();
        server.kill();
        drop(lease);
        while pools.count(&users).await.is_ok() {}
        drop(client);
        while pools.count(&users).await.is_ok() {}
        server.restart();
        tokio::time::timeout(Duration::from_secs(60), server_task).await.expect("the server task ends").unwrap();
        assert_eq!(pools.count(&users).await.unwrap().available, 1);
    }

    #[track_caller]
    fn check_stored(payload: &str, expected: &str) {
        let item = stored_item(&PoolName::new("users").unwrap(), ItemId::from(7), payload);
        let now = item.payload.rsplit_once("\"created_at\":").map(|(_, now)| now.trim_end_matches('}'));
        let now = now.filter(|now| now.parse::<u64>().is_ok_and(|now| now > 1_000_000_000));
        assert_eq!(item.payload, expected.replace("NOW", now.unwrap_or("a time")));
    }

    /// The payload is not parsed and written again, because its numbers may exceed 64 bits.
    #[test]
    fn stored_item_gets_only_the_fields_it_lacks() {
        let added = r#""resource_name":"users","resource_id":"7","created_at":NOW}"#;
        check_stored("{}", &format!("{{{added}"));
        let long = r#"{"n": 123456789012345678901234567890, "in": {}}"#;
        check_stored(&format!("{long}\n"), &format!("{},{added}", &long[..long.len() - 1]));
        let own = r#"{"resource_id":"x","created_at":"then""#;
        check_stored(&format!("{own}}}"), &format!(r#"{own},"resource_name":"users"}}"#));
        for other in ["", "7", "[{}]", "\"}\""] {
            check_stored(other, other);
        }
    }

    #[tokio::test]
    async fn waiting_users_are_served_in_order_without_cancelled_ones() {
        let (client, _server_task) = serve_local_pools(&contents(1), PoolSlice::ALL).await.unwrap();
        let first = client.acquire("users", Duration::ZERO).await.unwrap();
        let wait = |client: ResourceClient| async move { client.acquire("users", Duration::from_secs(600)).await };
        let impatient = tokio::spawn(wait(client.clone()));
        let second = tokio::spawn(wait(client.clone()));
        impatient.abort();
        assert!(impatient.await.unwrap_err().is_cancelled());
        drop(first);
        assert_eq!(second.await.unwrap().unwrap().id(), "0");
    }

    #[tokio::test]
    async fn processes_split_items_and_numbers_without_overlap() {
        let mut ids = Vec::new();
        for index in 0..2 {
            let (client, _server_task) = serve_local_pools(&contents(5), PoolSlice { index, count: 2 }).await.unwrap();
            while let Ok(lease) = client.acquire("users", Duration::ZERO).await {
                ids.push(lease.id().to_owned());
                std::mem::forget(lease);
            }
            while let Some(number) = client.allocate_number("more", Some(7)).await.unwrap() {
                ids.push(format!("more-{number}"));
            }
        }
        ids.sort();
        let expected = (0..5).map(|n| n.to_string()).chain((0..7).map(|n| format!("more-{n}")));
        assert_eq!(ids, expected.collect::<Vec<_>>());
    }

    /// Items that were in the pool before the run keep their ids, and new items get other ones.
    #[tokio::test]
    async fn pool_filled_on_demand_hands_out_its_old_items_first() {
        let (stores, holder, run) = (MemoryFleetStores::default(), MemberId::new("here"), RunEpoch(1));
        stores.workers().join(&holder, UNLIMITED_TTL).await.unwrap();
        let (pools, users) = (stores.pools(), PoolName::new("users").unwrap());
        let make = |id: ItemId| async move { Ok::<_, StoreError>(format!("{{\"made\":{id}}}")) };
        squall_coord::ensure_pool_size(&pools, &users, 3, make).await.unwrap();
        let factory = [PoolContents { pool: "users".into(), payloads: Vec::new() }];
        fill_pools(&pools, &factory, run, PoolSlice::ALL).await.unwrap();
        assert_eq!(pools.count(&users).await.unwrap().total, 3);
        let (client, _server_task) = serve_fleet_pools(pools.clone(), holder, run);
        let mut ids = Vec::new();
        while let Ok(lease) = client.acquire("users", Duration::ZERO).await {
            ids.push(lease.id().to_owned());
            std::mem::forget(lease);
        }
        ids.sort();
        assert_eq!(ids, ["1", "2", "3"]);
        let mut numbers = Vec::new();
        for _ in 0..3 {
            numbers.push(client.allocate_number("users", None).await.unwrap());
        }
        assert_eq!(numbers, [Some(0), Some(4), Some(5)]);
    }

    #[tokio::test]
    async fn undeclared_pool_is_refused_by_name() {
        let (client, _server_task) = serve_local_pools(&[], PoolSlice::ALL).await.unwrap();
        let error = client.acquire("users", Duration::from_secs(60)).await.unwrap_err();
        assert!(error.to_string().contains("there is no resource pool `users`"), "{error}");
        client.add("users", "7".into(), "{}".into()).await.unwrap();
        assert_eq!(client.acquire("users", Duration::ZERO).await.unwrap().id(), "7");
    }
}

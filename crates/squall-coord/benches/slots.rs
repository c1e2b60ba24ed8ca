//! The time that Redis needs to choose a worker for a session, and to release the session, by Redis' own
//! statistics. Nothing of a grid except its store runs.
//!
//! usage: cargo bench -p squall-coord --bench slots -- [CALLS]
//! (default: 2000 claims with 10, 100, 1,000 and 5,000 workers)

use std::time::Duration;

use squall_coord::{
    ClaimOutcome, MemberId, RedisClient, RedisSlotStore, ReleaseCause, SlotClaim, SlotOffer, SlotSessionId, SlotStore,
    SlotWorkerId,
};
use squall_testkit::redis::RedisServer;

/// Longer than a measurement takes.
const TTL: Duration = Duration::from_secs(600);

fn offer(number: u64) -> SlotOffer {
    SlotOffer {
        worker: SlotWorkerId::new("chromium", &format!("w{number}")).expect("a name"),
        versions: vec!["1.65".to_owned()],
        endpoint: format!("ws://10.0.0.1:{number}/"),
        secret: "0123456789abcdef0123456789abcdef".to_owned(),
        slots: 5,
        lifetime: number % 50,
        max_lifetime: Some(1_000_000),
        draining: false,
        started_ms: 1,
        sessions: Vec::new(),
        ended: Vec::new(),
    }
}

fn claim(server: &MemberId) -> SlotClaim {
    SlotClaim {
        session: SlotSessionId::unique(),
        kind: "chromium".to_owned(),
        version: Some("1.65".to_owned()),
        key: "ci".to_owned(),
        server: server.clone(),
        wait: TTL,
        listed_within: TTL,
        reserved: false,
        queue_limit: 100,
        key_limit: None,
        key_queue_limit: None,
    }
}

/// Microseconds of scripts since the last reset.
async fn script_time(client: &RedisClient) -> u64 {
    let info: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut client.connection()).await.expect("Redis answers");
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap_or_default();
    let time = line.split(',').find_map(|pair| pair.strip_prefix("usec="));
    time.and_then(|text| text.parse().ok()).expect("the script ran")
}

async fn reset(client: &RedisClient) {
    redis::cmd("CONFIG").arg("RESETSTAT").query_async::<()>(&mut client.connection()).await.expect("Redis answers");
}

/// The median, because a busy machine interrupts Redis now and then.
fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn measure(workers: u64, calls: usize) {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.expect("Redis is there");
    let (store, server) = (RedisSlotStore::new(&client, "squall-grid:{bench}:"), MemberId::new("server"));
    store.renew_server(&server, TTL).await.expect("a member");
    for number in 1..=workers {
        store.offer(&offer(number), TTL).await.expect("an offer");
    }
    // Half of the slots are taken, and at most 1,000.
    let held = (workers * 5 / 2).min(1000);
    for _ in 0..held {
        assert!(matches!(store.claim(&claim(&server)).await.expect("Redis answers"), ClaimOutcome::Granted(_)));
    }
    let (mut claiming, mut releasing) = (Vec::new(), Vec::new());
    for _ in 0..calls {
        let claim = claim(&server);
        reset(&client).await;
        assert!(matches!(store.claim(&claim).await.expect("Redis answers"), ClaimOutcome::Granted(_)));
        claiming.push(script_time(&client).await);
        reset(&client).await;
        store.release(&claim.session, ReleaseCause::Ended).await.expect("Redis answers");
        releasing.push(script_time(&client).await);
    }
    println!("{workers:>7} {:>12} {:>15}", median(claiming), median(releasing));
}

fn main() {
    let calls = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(2000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("workers    claim, µs     release, µs     (time in Redis, median of {calls} calls)");
    for workers in [10, 100, 1000, 5000] {
        runtime.block_on(measure(workers, calls));
    }
}

//! The record of a run in both stores: the same operations have the same outcomes, and outdated
//! ones change nothing.

use std::time::Duration;

use squall_coord::{
    CompatView, CounterStore, MemoryRunStore, RedisClient, RedisRunStore, ReportFields, ReportOutcome, RunKeys,
    RunRecord, RunStore, START_POSITION, ShipOutcome, StoreError, UserLocation, UserMove,
};
use squall_testkit::{fault_proxy::FaultProxy, redis::RedisServer};

async fn redis_run(server: &RedisServer) -> RedisRunStore {
    RedisRunStore::new(&RedisClient::open(&server.url()).await.expect("the server runs"), RunKeys::new("squall:{t}:"))
}

/// The parts of a record that both stores must agree on.
fn comparable(record: RunRecord) -> (String, u64, u64, String) {
    (record.state, record.epoch, record.revision, record.spec)
}

/// Performs random operations and returns all outcomes as texts.
async fn run_random_steps<R: RunStore>(run: &R, seed: u64) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcomes = Vec::new();
    let mut old_record = run.read_record().await.unwrap();
    // Positions are valid only within their run.
    let mut last_read = (0, START_POSITION.to_owned());
    for step in 0..120 {
        let epoch = run.read_record().await.unwrap().epoch.saturating_sub(u64::from(random.u8(..8) == 0));
        let outcome = match random.u8(..9) {
            0 => {
                let seen = if random.bool() { run.read_record().await.unwrap() } else { old_record.clone() };
                let done =
                    run.compare_and_set(&seen, &format!("S{step}"), &format!("{{{step}}}"), random.u8(..4) == 0).await;
                format!("{:?}", done.unwrap().map(comparable))
            }
            1 => {
                old_record = run.read_record().await.unwrap();
                format!("{:?}", comparable(old_record.clone()))
            }
            2..=4 => {
                let (source, seq) = (format!("s{}", random.u8(..3)), random.u64(..6));
                format!("{:?}", run.ship(epoch, &source, seq, format!("d{step}").as_bytes()).await.unwrap())
            }
            5 => {
                let deltas = run.deltas(epoch, START_POSITION, random.usize(1..5)).await.unwrap();
                last_read = (epoch, deltas.last().map_or(START_POSITION.to_owned(), |delta| delta.position.clone()));
                format!("{:?}", deltas.into_iter().map(|delta| delta.bytes).collect::<Vec<_>>())
            }
            6 => {
                let saved = run.load_checkpoint(epoch).await.unwrap();
                let saved_position = saved.map_or(START_POSITION.to_owned(), |saved| saved.position);
                let previous = if random.u8(..4) > 0 { saved_position } else { "9-9".to_owned() };
                let position = if last_read.0 == epoch { &last_read.1 } else { START_POSITION };
                let saved = run.save_checkpoint(epoch, &previous, position, &[step]).await.unwrap();
                format!("{saved} {:?}", run.load_checkpoint(epoch).await.unwrap().map(|saved| saved.data))
            }
            7 => {
                let note = (format!("n{}", random.u8(..3)), step.to_string());
                run.set_notes(epoch, &[note]).await.unwrap();
                format!("{:?}", run.notes(epoch).await.unwrap())
            }
            _ => {
                let worker = format!("w{}", random.u8(..3));
                let instance = random.u8(..2).to_string();
                let report: ReportFields = [("ready", step.to_string()), ("instance", instance)]
                    .map(|(field, value)| (field.to_owned(), value))
                    .into();
                let outcome = match random.bool() {
                    true => match run.report(&worker, &report, Duration::from_secs(60)).await.unwrap() {
                        ReportOutcome::Accepted(_) => "heard",
                        ReportOutcome::NameTaken(_) => "taken",
                    },
                    false => {
                        run.remove_worker(&worker).await.unwrap();
                        "forgotten"
                    }
                };
                let reports = run.reports().await.unwrap();
                let worker_text = |(id, report): (&String, &ReportFields)| format!("{id}={:?}", report.get("ready"));
                format!("{outcome}: {}", reports.iter().map(worker_text).collect::<Vec<_>>().join(" "))
            }
        };
        outcomes.push(outcome);
    }
    outcomes
}

#[tokio::test]
async fn memory_and_redis_run_stores_agree() {
    for seed in 0..20 {
        let server = RedisServer::start();
        let (model, real) = (
            run_random_steps(&MemoryRunStore::new(), seed).await,
            run_random_steps(&redis_run(&server).await, seed).await,
        );
        assert_eq!(model, real, "seed {seed}");
    }
}

async fn check_one_of_two_starts_wins<R: RunStore>(run: R) {
    let seen = run.read_record().await.unwrap();
    let begin = || run.compare_and_set(&seen, "PREPARING", "{}", true);
    let (first, second) = tokio::join!(begin(), begin());
    let record: Vec<_> = [first.unwrap(), second.unwrap()].into_iter().flatten().collect();
    assert_eq!(record.len(), 1, "epoch and state change together, once");
    assert_eq!((record[0].epoch, record[0].state.as_str()), (1, "PREPARING"));
}

#[tokio::test]
async fn concurrent_starts_begin_one_run() {
    check_one_of_two_starts_wins(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    check_one_of_two_starts_wins(redis_run(&server).await).await;
}

/// If `test:epoch` is lost, a run gets the number of an older run and must not report its data.
#[tokio::test]
async fn run_with_a_reused_epoch_starts_empty() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let client = RedisClient::open(&server.url()).await.unwrap();
    for attempt in 0..2 {
        let record =
            run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap();
        assert_eq!(record.epoch, 1, "time {attempt}");
        assert_eq!(run.deltas(1, START_POSITION, 10).await.unwrap(), [], "time {attempt}");
        assert!(
            run.load_checkpoint(1).await.unwrap().is_none() && run.notes(1).await.unwrap().is_empty(),
            "time {attempt}"
        );
        assert!(run.counters(1).await.unwrap().is_empty(), "time {attempt}");
        assert_eq!(run.ship(1, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended, "time {attempt}");
        assert!(run.save_checkpoint(1, START_POSITION, "1-1", b"made").await.unwrap(), "time {attempt}");
        run.set_notes(1, &[("a".to_owned(), "b".to_owned())]).await.unwrap();
        let _: i64 = redis::cmd("DEL").arg(run.keys().epoch()).query_async(&mut client.connection()).await.unwrap();
    }
}

/// A worker must not take it for another run and end its load.
#[tokio::test]
async fn ship_with_a_non_numeric_epoch_is_an_error() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let epoch =
        run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
    let client = RedisClient::open(&server.url()).await.unwrap();
    let set = async |value: String| {
        let key = run.keys().epoch();
        let _: () = redis::cmd("SET").arg(key).arg(value).query_async(&mut client.connection()).await.unwrap();
    };
    set("{garbage".to_owned()).await;
    let error = run.ship(epoch, "a", 0, b"0").await.expect_err("the current run is unknown");
    assert!(matches!(&error, StoreError::WrongType { key, .. } if *key == run.keys().epoch()), "{error}");
    set(epoch.to_string()).await;
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended);
}

async fn check_deltas_are_appended_once_in_order<R: RunStore>(run: R) {
    let seen = run.read_record().await.unwrap();
    let epoch = run.compare_and_set(&seen, "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended);
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Duplicate);
    assert_eq!(run.ship(epoch, "a", 2, b"2").await.unwrap(), ShipOutcome::Gap(1));
    assert_eq!(run.ship(epoch - 1, "a", 1, b"1").await.unwrap(), ShipOutcome::RunEnded);
    assert_eq!(run.deltas(epoch, START_POSITION, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn delta_is_appended_once_and_only_to_its_run() {
    check_deltas_are_appended_once_in_order(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    check_deltas_are_appended_once_in_order(redis_run(&server).await).await;
}

#[tokio::test]
async fn published_message_reaches_the_subscriber() {
    async fn check<R: RunStore>(run: R) {
        let mut messages = run.subscribe("w1");
        // Redis subscribes in the background; memory subscribes at once.
        let first = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                if run.publish("w1", "up").await.unwrap() > 0 {
                    return messages.recv().await;
                }
                tokio::task::yield_now().await;
            }
        });
        let first = first.await.expect("a message arrives").expect("the subscription is open");
        assert!(first.is_empty() || first == b"up");
    }
    check(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    check(redis_run(&server).await).await;
}

#[tokio::test]
async fn dropping_a_subscription_unsubscribes() {
    async fn check<R: RunStore>(run: R) {
        let subscription = run.subscribe("w1");
        wait_for_subscribers(&run, 1).await;
        drop(subscription);
        wait_for_subscribers(&run, 0).await;
    }
    check(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    check(redis_run(&server).await).await;
}

async fn wait_for_subscribers<R: RunStore>(run: &R, expected: u64) {
    while run.publish("w1", "up").await.unwrap() != expected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn wrong_key_type_error_names_the_key() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let mut connection = RedisClient::open(&server.url()).await.unwrap().connection();
    redis::cmd("SADD").arg(run.keys().spec()).arg("x").query_async::<()>(&mut connection).await.unwrap();
    let error = run.read_record().await.unwrap_err().to_string();
    assert!(error.contains("test:order") && error.contains("set"), "{error}");
}

#[tokio::test]
async fn unreadable_report_does_not_hide_others() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let healthy: ReportFields = [("status".to_owned(), "healthy".to_owned())].into();
    run.report("good", &healthy, Duration::from_secs(600)).await.unwrap();
    let mut connection = RedisClient::open(&server.url()).await.unwrap().connection();
    for (name, command, value) in [("list", "RPUSH", &b"x"[..]), ("bytes", "HSET", b"\xff")] {
        redis::cmd("SADD").arg(run.keys().workers()).arg(name).query_async::<()>(&mut connection).await.unwrap();
        let mut foreign = redis::cmd(command);
        foreign.arg(run.keys().status(name));
        if command == "HSET" {
            foreign.arg("status");
        }
        foreign.arg(value).query_async::<()>(&mut connection).await.unwrap();
    }
    let reports = run.reports().await.unwrap();
    let status = |name: &str| reports[name]["status"].as_str();
    assert_eq!([status("good"), status("list"), status("bytes")], ["healthy", "unhealthy", "unhealthy"]);
}

/// The timeout grows with the size of the value, so a large bundle passes a slow connection.
#[tokio::test]
async fn large_bundle_is_transferred_over_a_slow_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = RedisClient::open(&format!("redis://127.0.0.1:{}/", proxy.port())).await.unwrap();
    let run = RedisRunStore::new(&client, RunKeys::new("squall:{t}:"));
    let bundle: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    // A quarter of a MiB per second: slower than the timeout of an ordinary command allows.
    proxy.delay(Duration::from_millis(60));
    let name = run.put_bundle(&bundle).await.unwrap();
    assert!(run.get_bundle(&name).await.unwrap().is_some_and(|saved| saved == bundle));
    // Small values do not wait behind it.
    proxy.heal();
    assert_eq!(run.get_bundle("none").await.unwrap(), None);
}

/// The remaining users have higher numbers than there are users.
#[tokio::test]
async fn user_locations_finds_users_after_a_partial_removal() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true)
        .await
        .unwrap()
        .expect("no other client changes the record");
    let users: Vec<u64> = (0..3000).collect();
    for part in users.chunks(1000) {
        let added = UserMove { users: part, from: None, to: Some("w"), running: true };
        assert!(run.move_users(1, added).await.unwrap());
    }
    let removed = UserMove { users: &users[..1000], from: Some("w"), to: None, running: false };
    assert!(run.move_users(1, removed).await.unwrap());
    // Foreign members of the set are skipped.
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut add = redis::cmd("SADD");
    add.arg(run.keys().users()).arg("x").arg("-1").arg("1000000").arg("18446744073709551616").arg(&b"\xff"[..]);
    let added: u64 = add.query_async(&mut client.connection()).await.unwrap();
    assert_eq!(added, 5);
    let worker_text = run.user_locations(1_000_000).await.unwrap();
    assert!(worker_text.keys().copied().eq(1000..3000), "{:?}", worker_text.keys());
    assert!(
        worker_text
            .values()
            .all(|position| position.as_ref() == Some(&UserLocation { worker: "w".to_owned(), running: true }))
    );
}

/// The same data expires in Redis.
#[tokio::test]
async fn memory_run_store_drops_runs_after_a_day() {
    let hours = |count: u64| Duration::from_secs(count * 3600);
    let run = MemoryRunStore::new();
    let name = run.put_bundle(b"plan").await.unwrap();
    run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true)
        .await
        .unwrap()
        .expect("no other client changes the record");
    assert_eq!(run.ship(1, "s", 0, b"d").await.unwrap(), ShipOutcome::Appended);
    assert!(run.save_checkpoint(1, START_POSITION, "1-0", b"made").await.unwrap());
    run.set_notes(1, &[("n".to_owned(), "v".to_owned())]).await.unwrap();
    // A run in progress keeps its data.
    for _ in 0..3 {
        run.advance(hours(20));
        run.extend_retention(1, &name).await.unwrap();
    }
    assert_eq!(run.get_bundle(&name).await.unwrap().as_deref(), Some(&b"plan"[..]));
    assert_eq!((run.notes(1).await.unwrap().len(), run.deltas(1, START_POSITION, 9).await.unwrap().len()), (1, 1));
    run.advance(hours(25));
    assert_eq!((run.get_bundle(&name).await.unwrap(), run.load_checkpoint(1).await.unwrap()), (None, None));
    assert_eq!((run.notes(1).await.unwrap().len(), run.deltas(1, START_POSITION, 9).await.unwrap().len()), (0, 0));
    assert_eq!(run.read_record().await.unwrap().epoch, 1, "the record stays");
}

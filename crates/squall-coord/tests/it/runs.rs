//! The record of a run on both back ends: the same steps give the same answers, and stale ones change nothing.

use std::time::Duration;

use squall_coord::{
    CompatView, CounterStore, MemoryRunStore, RedisClient, RedisRunStore, ReportFields, ReportOutcome, RunKeys,
    RunRecord, RunStore, START_POSITION, ShipOutcome, StoreError, UserMove,
};
use squall_testkit::{fault_proxy::FaultProxy, redis::RedisServer};

async fn redis_run(server: &RedisServer) -> RedisRunStore {
    RedisRunStore::new(&RedisClient::open(&server.url()).await.expect("the server runs"), RunKeys::new("squall:{t}:"))
}

/// What must be the same of a record.
fn core(record: RunRecord) -> (String, u64, u64, String) {
    (record.state, record.epoch, record.revision, record.spec)
}

/// One random life of a record; everything that was answered, in words.
async fn live<R: RunStore>(run: &R, seed: u64) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut said = Vec::new();
    let mut old = run.read_record().await.unwrap();
    // Places mean something only within their run.
    let mut read = (0, START_POSITION.to_owned());
    for step in 0..120 {
        let epoch = run.read_record().await.unwrap().epoch.saturating_sub(u64::from(random.u8(..8) == 0));
        let told = match random.u8(..9) {
            0 => {
                let seen = if random.bool() { run.read_record().await.unwrap() } else { old.clone() };
                let done =
                    run.compare_and_set(&seen, &format!("S{step}"), &format!("{{{step}}}"), random.u8(..4) == 0).await;
                format!("{:?}", done.unwrap().map(core))
            }
            1 => {
                old = run.read_record().await.unwrap();
                format!("{:?}", core(old.clone()))
            }
            2..=4 => {
                let (source, seq) = (format!("s{}", random.u8(..3)), random.u64(..6));
                format!("{:?}", run.ship(epoch, &source, seq, format!("d{step}").as_bytes()).await.unwrap())
            }
            5 => {
                let deltas = run.deltas(epoch, START_POSITION, random.usize(1..5)).await.unwrap();
                read = (epoch, deltas.last().map_or(START_POSITION.to_owned(), |delta| delta.position.clone()));
                format!("{:?}", deltas.into_iter().map(|delta| delta.bytes).collect::<Vec<_>>())
            }
            6 => {
                let saved =
                    run.load_checkpoint(epoch).await.unwrap().map_or(START_POSITION.to_owned(), |(place, _)| place);
                let before = if random.u8(..4) > 0 { saved } else { "9-9".to_owned() };
                let place = if read.0 == epoch { &read.1 } else { START_POSITION };
                let kept = run.save_checkpoint(epoch, &before, place, &[step]).await.unwrap();
                format!("{kept} {:?}", run.load_checkpoint(epoch).await.unwrap().map(|(_, made)| made))
            }
            7 => {
                let note = (format!("n{}", random.u8(..3)), step.to_string());
                run.set_notes(epoch, &[note]).await.unwrap();
                format!("{:?}", run.notes(epoch).await.unwrap())
            }
            _ => {
                let worker = format!("w{}", random.u8(..3));
                let life = random.u8(..2).to_string();
                let report: ReportFields = [("ready", step.to_string()), ("instance", life)]
                    .map(|(field, value)| (field.to_owned(), value))
                    .into();
                let told = match random.bool() {
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
                let shown = |(id, report): (&String, &ReportFields)| format!("{id}={:?}", report.get("ready"));
                format!("{told}: {}", reports.iter().map(shown).collect::<Vec<_>>().join(" "))
            }
        };
        said.push(told);
    }
    said
}

#[tokio::test]
async fn redis_answers_as_memory_does() {
    for seed in 0..20 {
        let server = RedisServer::start();
        let (model, real) = (live(&MemoryRunStore::new(), seed).await, live(&redis_run(&server).await, seed).await);
        assert_eq!(model, real, "seed {seed}");
    }
}

async fn only_one_of_two_begins<R: RunStore>(run: R) {
    let seen = run.read_record().await.unwrap();
    let begin = || run.compare_and_set(&seen, "PREPARING", "{}", true);
    let (first, second) = tokio::join!(begin(), begin());
    let begun: Vec<_> = [first.unwrap(), second.unwrap()].into_iter().flatten().collect();
    assert_eq!(begun.len(), 1, "epoch and state change together, once");
    assert_eq!((begun[0].epoch, begun[0].state.as_str()), (1, "PREPARING"));
}

#[tokio::test]
async fn a_run_begins_once() {
    only_one_of_two_begins(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    only_one_of_two_begins(redis_run(&server).await).await;
}

/// Found by a reader: after `test:epoch` was lost, runs reported the numbers of older ones that had had their number.
#[tokio::test]
async fn a_run_finds_nothing_of_one_that_had_its_number() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let link = RedisClient::open(&server.url()).await.unwrap();
    for time in 0..2 {
        let begun =
            run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap();
        assert_eq!(begun.epoch, 1, "time {time}");
        assert_eq!(run.deltas(1, START_POSITION, 10).await.unwrap(), [], "time {time}");
        assert!(
            run.load_checkpoint(1).await.unwrap().is_none() && run.notes(1).await.unwrap().is_empty(),
            "time {time}"
        );
        assert!(run.counters(1).await.unwrap().is_empty(), "time {time}");
        assert_eq!(run.ship(1, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended, "time {time}");
        assert!(run.save_checkpoint(1, START_POSITION, "1-1", b"made").await.unwrap(), "time {time}");
        run.set_notes(1, &[("a".to_owned(), "b".to_owned())]).await.unwrap();
        let _: i64 = redis::cmd("DEL").arg(run.keys().epoch()).query_async(&mut link.connection()).await.unwrap();
    }
}

/// Found by a reader: workers took it for another run, and ended the load of theirs.
#[tokio::test]
async fn an_epoch_that_is_no_number_makes_no_delta_stale() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let epoch =
        run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
    let link = RedisClient::open(&server.url()).await.unwrap();
    let set = async |value: String| {
        let key = run.keys().epoch();
        let _: () = redis::cmd("SET").arg(key).arg(value).query_async(&mut link.connection()).await.unwrap();
    };
    set("{garbage".to_owned()).await;
    let error = run.ship(epoch, "a", 0, b"0").await.expect_err("nobody can say which run is on");
    assert!(matches!(&error, StoreError::WrongType { key, .. } if *key == run.keys().epoch()), "{error}");
    set(epoch.to_string()).await;
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended);
}

async fn deltas_go_in_once_and_in_order<R: RunStore>(run: R) {
    let seen = run.read_record().await.unwrap();
    let epoch = run.compare_and_set(&seen, "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Appended);
    assert_eq!(run.ship(epoch, "a", 0, b"0").await.unwrap(), ShipOutcome::Duplicate);
    assert_eq!(run.ship(epoch, "a", 2, b"2").await.unwrap(), ShipOutcome::Gap(1));
    assert_eq!(run.ship(epoch - 1, "a", 1, b"1").await.unwrap(), ShipOutcome::RunEnded);
    assert_eq!(run.deltas(epoch, START_POSITION, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_delta_is_shipped_once_and_only_into_its_run() {
    deltas_go_in_once_and_in_order(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    deltas_go_in_once_and_in_order(redis_run(&server).await).await;
}

#[tokio::test]
async fn a_wake_up_reaches_whoever_listens() {
    async fn check<R: RunStore>(run: R) {
        let mut heard = run.subscribe("w1");
        // Redis says when it has subscribed; memory always has.
        let first = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                if run.publish("w1", "up").await.unwrap() > 0 {
                    return heard.recv().await;
                }
                tokio::task::yield_now().await;
            }
        });
        let first = first.await.expect("somebody listens").expect("it is still there");
        assert!(first.is_empty() || first == b"up");
    }
    check(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    check(redis_run(&server).await).await;
}

#[tokio::test]
async fn a_key_of_somebody_else_is_named() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let mut commands = RedisClient::open(&server.url()).await.unwrap().connection();
    redis::cmd("SADD").arg(run.keys().spec()).arg("x").query_async::<()>(&mut commands).await.unwrap();
    let error = run.read_record().await.unwrap_err().to_string();
    assert!(error.contains("test:order") && error.contains("set"), "{error}");
}

#[tokio::test]
async fn a_report_that_is_none_hides_no_other() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    let healthy: ReportFields = [("status".to_owned(), "healthy".to_owned())].into();
    run.report("good", &healthy, Duration::from_secs(600)).await.unwrap();
    let mut commands = RedisClient::open(&server.url()).await.unwrap().connection();
    for (name, command, value) in [("list", "RPUSH", &b"x"[..]), ("bytes", "HSET", b"\xff")] {
        redis::cmd("SADD").arg(run.keys().workers()).arg(name).query_async::<()>(&mut commands).await.unwrap();
        let mut foreign = redis::cmd(command);
        foreign.arg(run.keys().status(name));
        if command == "HSET" {
            foreign.arg("status");
        }
        foreign.arg(value).query_async::<()>(&mut commands).await.unwrap();
    }
    let reports = run.reports().await.unwrap();
    let status = |name: &str| reports[name]["status"].as_str();
    assert_eq!([status("good"), status("list"), status("bytes")], ["healthy", "unhealthy", "unhealthy"]);
}

/// A fixed time for every answer made a slow way impassable for large plans, however often it was tried.
#[tokio::test]
async fn a_large_plan_has_the_time_that_it_takes() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let link = RedisClient::open(&format!("redis://127.0.0.1:{}/", proxy.port())).await.unwrap();
    let run = RedisRunStore::new(&link, RunKeys::new("squall:{t}:"));
    let plan: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    // A quarter of a MiB per second: longer than a beat's answer may take.
    proxy.delay(Duration::from_millis(60));
    let name = run.put_bundle(&plan).await.unwrap();
    assert!(run.get_bundle(&name).await.unwrap().is_some_and(|kept| kept == plan));
    // Whoever asks for little is not held up by it.
    proxy.heal();
    assert_eq!(run.get_bundle("none").await.unwrap(), None);
}

/// Found by a reader: the numbers were thought to be those below their count, so that what was left above stayed for ever.
#[tokio::test]
async fn users_are_found_where_an_earlier_leader_has_taken_some_down() {
    let server = RedisServer::start();
    let run = redis_run(&server).await;
    run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().expect("alone");
    let users: Vec<u64> = (0..3000).collect();
    for part in users.chunks(1000) {
        let moved = UserMove { users: part, from: None, to: Some("w"), running: true };
        assert!(run.move_users(1, moved).await.unwrap());
    }
    let gone = UserMove { users: &users[..1000], from: Some("w"), to: None, running: false };
    assert!(run.move_users(1, gone).await.unwrap());
    // What is not ours in the set is left alone.
    let link = RedisClient::open(&server.url()).await.unwrap();
    let mut add = redis::cmd("SADD");
    add.arg(run.keys().users()).arg("x").arg("-1").arg("1000000").arg("18446744073709551616").arg(&b"\xff"[..]);
    let added: u64 = add.query_async(&mut link.connection()).await.unwrap();
    assert_eq!(added, 5);
    let shown = run.user_locations(1_000_000).await.unwrap();
    assert!(shown.keys().copied().eq(1000..3000), "{:?}", shown.keys());
    assert!(shown.values().all(|place| place.as_ref() == Some(&("w".to_owned(), true))));
}

/// As in Redis, where the same keys expire.
#[tokio::test]
async fn a_fleet_in_one_process_forgets_runs_after_a_day() {
    const HOURS: fn(u64) -> Duration = |hours| Duration::from_secs(hours * 3600);
    let run = MemoryRunStore::new();
    let name = run.put_bundle(b"plan").await.unwrap();
    run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().expect("alone");
    assert_eq!(run.ship(1, "s", 0, b"d").await.unwrap(), ShipOutcome::Appended);
    assert!(run.save_checkpoint(1, START_POSITION, "1-0", b"made").await.unwrap());
    run.set_notes(1, &[("n".to_owned(), "v".to_owned())]).await.unwrap();
    // A run that goes on keeps what it needs.
    for _ in 0..3 {
        run.advance(HOURS(20));
        run.extend_retention(1, &name).await.unwrap();
    }
    assert_eq!(run.get_bundle(&name).await.unwrap().as_deref(), Some(&b"plan"[..]));
    assert_eq!((run.notes(1).await.unwrap().len(), run.deltas(1, START_POSITION, 9).await.unwrap().len()), (1, 1));
    run.advance(HOURS(25));
    assert_eq!((run.get_bundle(&name).await.unwrap(), run.load_checkpoint(1).await.unwrap()), (None, None));
    assert_eq!((run.notes(1).await.unwrap().len(), run.deltas(1, START_POSITION, 9).await.unwrap().len()), (0, 0));
    assert_eq!(run.read_record().await.unwrap().epoch, 1, "the record stays");
}

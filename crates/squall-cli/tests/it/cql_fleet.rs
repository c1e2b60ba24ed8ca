//! `squall cql --cluster` with real workers, a real Redis and a real Cassandra: every key of a sequence is
//! used once, also when workers die and join.

use crate::support::{RunningProcess, TestFolder, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use squall_testkit::{cassandra::Cassandra, redis::RedisServer};

/// Short enough for a test to wait for, and longer than the delays of a busy machine.
const EXPIRY: &str = "12s";

struct CqlFleet {
    folder: TestFolder,
    redis: RedisServer,
    workers: Vec<RunningProcess>,
}

impl CqlFleet {
    fn new(workers: usize) -> CqlFleet {
        let mut fleet = CqlFleet { folder: TestFolder::new(), redis: RedisServer::start(), workers: Vec::new() };
        (0..workers).for_each(|_| fleet.join());
        fleet
    }

    /// Starts a worker and waits until it has joined.
    fn join(&mut self) {
        let id = format!("w{}", self.workers.len());
        let mut worker =
            self.folder.start(&["worker", "--redis", &self.redis.url(), "--id", &id, "--expires-after", EXPIRY]);
        worker.wait_for_line("joined");
        self.workers.push(worker);
    }

    /// Starts `command` on the fleet in a keyspace of the test's own. The result is in result.json.
    fn start(&self, keyspace: &str, command: &[&str]) -> RunningProcess {
        self.start_with(keyspace, command, &["--json", "result.json"])
    }

    fn start_with(&self, keyspace: &str, command: &[&str], outputs: &[&str]) -> RunningProcess {
        self.start_logging(keyspace, command, "interval=1s", outputs)
    }

    fn start_logging(&self, keyspace: &str, command: &[&str], interval: &str, outputs: &[&str]) -> RunningProcess {
        let (port, keyspace) = (format!("native={}", Cassandra::shared().port()), format!("keyspace={keyspace}"));
        let connection = ["-node", "127.0.0.1", "-port", port.as_str()];
        // A profile has its own schema.
        let schema = ["-schema", keyspace.as_str()];
        let schema = if command[0] == "user" { &[][..] } else { &schema[..] };
        let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];
        let log = ["-log", "no-settings", "hdrfile=run.hdr", interval];
        let redis = self.redis.url();
        let fleet = ["--cluster", redis.as_str()];
        self.folder.start(&[&["cql"], command, schema, &connection, &login, &log, &fleet, outputs].concat())
    }
}

/// The rows of a table; 0 while it does not exist.
fn rows(table: &str) -> u64 {
    let statement = format!("SELECT COUNT(*) FROM {table}");
    match Cassandra::shared().query(&statement) {
        Ok(_) => Cassandra::shared().count(&statement) as u64,
        Err(_) => 0,
    }
}

fn number(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {result}"))
}

#[test]
fn workers_of_a_fleet_write_every_key_of_a_sequence_once() {
    let fleet = CqlFleet::new(2);
    let command = ["write", "n=2000", "no-warmup", "-pop", "seq=1..2000", "no-wrap", "-rate", "threads=8"];
    let ended = fleet.start("fleet_exact", &command).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = fleet.folder.json("result.json");
    assert_eq!((number(&result, "/totals/requests"), number(&result, "/totals/errors")), (2000, 0));
    assert_eq!(number(&result, "/accounting/lost_at_most"), 0, "{result}");
    assert_eq!(rows("fleet_exact.standard1"), 2000);
    assert!(ended.stdout.contains("Total partitions          :      2,000"), "{ended:?}");
    assert!(fleet.folder.read("run.hdr").contains("\nTag=WRITE-st,"), "the merged log has intervals");
}

#[test]
fn a_fleet_without_store_or_worker_is_known_before_the_database_is_changed() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let closed = format!("redis://{}", closed.expect("a free port"));
    let no_worker = CqlFleet::new(0);
    let failed = |store: &str, code, reason: &str| {
        let port = format!("native={}", Cassandra::shared().port());
        let command = ["cql", "write", "n=1", "-rate", "threads=1", "-schema", "keyspace=fleet_absent", "-port", &port];
        let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra", "--cluster", store];
        let ended = no_worker.folder.squall(&[&command[..], &login].concat());
        assert!(ended.code == code && ended.stderr.contains(reason), "{ended:?}");
        assert!(!ended.stdout.contains("Connected to cluster"), "{ended:?}");
    };
    failed(&closed, 3, "cannot connect to Redis at");
    failed(&no_worker.redis.url(), 2, "no worker is alive: start one");
}

#[test]
fn a_failed_operation_of_a_fleet_ends_the_run_with_failure() {
    let fleet = CqlFleet::new(1);
    let write = ["write", "n=1", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"];
    assert_eq!(fleet.start("fleet_failure", &write).end().code, 0);
    let missing = ["read", "n=20", "no-warmup", "-pop", "seq=101..120", "-rate", "threads=2", "-errors"];
    let ended = fleet.start("fleet_failure", &[&missing[..], &["retries=0"]].concat()).end();
    assert!(ended.code == 1 && ended.stdout.ends_with("\nFAILURE\n"), "{ended:?}");
    assert!(ended.stderr.contains("operations failed on the workers"), "{ended:?}");
    let ended = fleet.start("fleet_failure", &[&missing[..], &["ignore"]].concat()).end();
    assert!(ended.stdout.ends_with("\nEND\n"), "{ended:?}");
}

#[test]
fn workers_of_a_fleet_write_every_partition_of_a_profile_once() {
    let fleet = CqlFleet::new(2);
    fleet.folder.write(
        "orders.yaml",
        "keyspace: fleet_user\n\
         keyspace_definition: |\n  CREATE KEYSPACE fleet_user WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1};\n\
         table: orders\n\
         table_definition: |\n  CREATE TABLE orders (customer bigint PRIMARY KEY, total int)\n\
         insert:\n  partitions: uniform(1..4)\n\
         queries:\n  one: {cql: 'SELECT * FROM orders WHERE customer = ?'}\n\
         token_range_queries:\n  scan: {columns: '*'}\n",
    );
    let sequence = ["n=1500", "no-warmup", "-pop", "seq=1..1500", "no-wrap", "-rate", "threads=8"];
    let insert = [&["user", "profile=orders.yaml", "ops(insert=1)"], &sequence[..]].concat();
    let ended = fleet.start("fleet_user", &insert).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(rows("fleet_user.orders"), 1500, "every seed once, also with several partitions per operation");
    assert!(ended.stdout.contains("Total partitions          :      1,500"), "{ended:?}");
    let result = fleet.folder.json("result.json");
    let operations = number(&result, "/totals/requests");
    assert!((1500 / 4..1500).contains(&operations), "{operations} operations of 1 to 4 partitions");
    assert_eq!(number(&result, "/accounting/lost_at_most"), 0, "{result}");

    let validate = [&["user", "profile=orders.yaml", "ops(validate=1,one=1)"], &sequence[..]].concat();
    let ended = fleet.start("fleet_user", &validate).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(number(&fleet.folder.json("result.json"), "/totals/requests"), 1500);

    // One node has two ranges, and each of them five parts.
    let scan = ["duration=1h", "no-warmup", "-rate", "threads=6", "-tokenrange", "split-factor=5"];
    let ended = fleet.start("fleet_user", &[&["user", "profile=orders.yaml", "ops(scan=1)"], &scan[..]].concat()).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("Total partitions          :      1,500"), "every row is read once: {ended:?}");
    let result = fleet.folder.json("result.json");
    let ranges = result["metrics"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "scan:ranges"));
    assert_eq!(ranges.map(|ranges| number(ranges, "/requests")), Some(10), "{result}");

    let refused = |words: &[&str], reason: &str| {
        let command = [&["user", "profile=orders.yaml"], words].concat();
        let ended = fleet.start("fleet_user", &command).end();
        assert!(ended.code == 2 && ended.stderr.contains(reason), "{ended:?}");
    };
    refused(&["ops(scan=1)", "n=5", "-rate", "threads=2"], "n= with scan, a token-range query");
    let lookback = ["ops(insert=1)", "n=5", "-pop", "seq=1..5", "no-wrap", "read-lookback=fixed(1)"];
    refused(&[&lookback[..], &["-rate", "threads=2"]].concat(), "no-wrap with read-lookback=");
    let revisits = ["ops(insert=1)", "n=5", "-insert", "visits=fixed(2)", "-pop", "seq=1..5", "no-wrap"];
    refused(&[&revisits[..], &["-rate", "threads=2"]].concat(), "no-wrap with -insert visits=");
}

#[test]
fn a_fleet_ends_after_the_last_partition_and_shows_its_last_interval() {
    let fleet = CqlFleet::new(2);
    fleet.folder.write(
        "events.yaml",
        "keyspace: fleet_last\n\
         keyspace_definition: |\n  CREATE KEYSPACE fleet_last WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1};\n\
         table: events\n\
         table_definition: |\n  CREATE TABLE events (id bigint PRIMARY KEY, total int)\n",
    );
    // Ten operations write all partitions; the rest of 1,000 starts would take three minutes.
    let command = ["user", "profile=events.yaml", "ops(insert=1)", "n=1000", "no-warmup"];
    let shape = ["-insert", "partitions=fixed(100)", "batchtype=unlogged", "-pop", "seq=1..1000"];
    let rate = ["-rate", "threads=4", "fixed=5/s"];
    let command = [&command[..], &shape, &rate].concat();
    let ended = fleet.start_logging("fleet_last", &command, "interval=60s", &["--json", "result.json"]).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(rows("fleet_last.events"), 1000);
    let result = fleet.folder.json("result.json");
    // The workers may share the last partitions.
    let operations = number(&result, "/totals/requests");
    assert!((10..=12).contains(&operations) && number(&result, "/fleet/missed_starts") == 0, "{result}");
    assert!(number(&result, "/totals/iterations") < 500, "the run ends after the last partition: {result}");
    // All of the run is one interval that is not full.
    assert!(ended.stdout.contains(&format!("\ntotal,            {operations},")), "{ended:?}");
    assert_eq!(fleet.folder.read("run.hdr").matches("\nTag=insert-st,").count(), 1);
}

#[test]
fn no_key_repeats_when_a_worker_dies_and_another_joins() {
    let mut fleet = CqlFleet::new(2);
    let command = ["counter_write", "duration=1h", "no-warmup", "-pop", "seq=1..10M", "-rate", "threads=8"];
    let rate = ["fixed=200/s", "-errors", "retries=0"];
    let run = fleet.start("fleet_faults", &[&command[..], &rate].concat());
    let (table, largest) = ("fleet_faults.counter1", "SELECT MAX(\"C0\") FROM fleet_faults.counter1");
    wait_until("rows of both workers", || rows(table) > 100);
    fleet.workers[0].signal(Signal::KILL);
    fleet.join();
    let at_join = rows(table);
    // The rate is reached again when the remaining workers hold the shares of the killed one.
    wait_until("rows after the change", || rows(table) > at_join + 1000);
    run.interrupt();
    let ended = run.end();
    assert_eq!(ended.code, 130, "{ended:?}");
    let (result, written) = (fleet.folder.json("result.json"), rows(table));
    let (reported, lost) = (number(&result, "/totals/requests"), number(&result, "/accounting/lost_at_most"));
    assert_eq!(Cassandra::shared().count(largest), 1, "no key was written twice");
    assert!((reported..=reported + lost).contains(&written), "{reported} reported, {lost} lost, {written} written");
}

#[test]
fn a_fleet_searches_threads_and_ends_by_the_standard_error() {
    let fleet = CqlFleet::new(2);
    let steps = ["write", "n=50", "no-warmup", "truncate=always", "-rate", "threads>=2", "threads<=4"];
    let ended = fleet.start_with("fleet_steps", &steps, &[]).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    for threads in [2, 4] {
        assert!(ended.stdout.contains(&format!("\n{threads} threadCount, total, ")), "{ended:?}");
    }
    assert_eq!(rows("fleet_steps.standard1"), 50);

    let until = ["write", "err<0.9", "n>2", "n<4", "no-warmup", "-rate", "threads=4", "throttle=200/s"];
    let ended = fleet.start("fleet_steps", &until).end();
    assert!(ended.code == 0 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    let result = fleet.folder.json("result.json");
    // About 800 at 200/s; workers that make load until the drain is given up make more than 20,000.
    let (requests, errors) = (number(&result, "/totals/requests"), number(&result, "/totals/errors"));
    assert!(0 < requests && requests < 10_000 && errors == 0, "{result}");
}

#[test]
fn workers_of_a_fleet_visit_their_own_partitions_again() {
    let fleet = CqlFleet::new(2);
    fleet.folder.write(
        "visits.yaml",
        "keyspace: fleet_visits\n\
         keyspace_definition: |\n  CREATE KEYSPACE fleet_visits WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1};\n\
         table: orders\n\
         table_definition: |\n  CREATE TABLE orders (customer bigint, line int, total int, \
         PRIMARY KEY (customer, line))\n\
         columnspec:\n  - {name: line, cluster: fixed(6), population: uniform(1..100B)}\n",
    );
    // Each visit writes two of the six rows of a partition.
    let insert = ["user", "profile=visits.yaml", "ops(insert=1)", "n=900", "no-warmup", "-rate", "threads=6"];
    let visits = ["-insert", "visits=fixed(3)", "revisit=uniform(1..8)", "-pop", "seq=1..100000"];
    let ended = fleet.start("fleet_visits", &[&insert[..], &visits].concat()).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(number(&fleet.folder.json("result.json"), "/totals/requests"), 900, "n= counts visits");
    assert_eq!(rows("fleet_visits.orders"), 1800, "no row was written twice");
}

#[test]
fn reads_of_a_fleet_look_back_at_rows_that_are_written() {
    let fleet = CqlFleet::new(2);
    // The row that a read takes while nothing is written.
    let first = ["write", "n=1", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"];
    assert_eq!(fleet.start("fleet_lookback", &first).end().code, 0);
    let mixed = ["mixed", "ratio(read=1,write=1)", "n=2000", "no-warmup", "-rate", "threads=8"];
    let lookback = ["-pop", "seq=1..100000", "read-lookback=uniform(1..300)"];
    let ended = fleet.start("fleet_lookback", &[&mixed[..], &lookback].concat()).end();
    assert_eq!(ended.code, 0, "every read found its row: {ended:?}");
    let result = fleet.folder.json("result.json");
    assert_eq!((number(&result, "/totals/requests"), number(&result, "/totals/errors")), (2000, 0));
}

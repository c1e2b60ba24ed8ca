//! `squall cql user` against a real Cassandra: inserts, validation, queries and token ranges of user
//! profiles. Rows are counted by the CQL client of squall-testkit.

use crate::{
    cql::figure,
    support::{FinishedProcess, TestFolder},
};
use squall_testkit::cassandra::Cassandra;

const LOGIN: [&str; 5] = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];

/// Ten rows in each partition: five values of `c`, two of `d`.
const ORDERS: &str = "\
specname: orders
keyspace: @KS@
keyspace_definition: |
  CREATE KEYSPACE @KS@ WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
table: orders
table_definition: |
  CREATE TABLE orders (p bigint, c int, d text, v int, w text, PRIMARY KEY (p, c, d))
  WITH CLUSTERING ORDER BY (c DESC, d ASC)
columnspec:
  - {name: c, cluster: fixed(5)}
  - {name: d, cluster: fixed(2)}
queries:
  one_row: {cql: 'select v from orders where p = ? and c = ? and d = ?', fields: samerow}
  partition: {cql: 'SELECT * FROM orders WHERE p = ? LIMIT 4', consistencyLevel: ONE}
  if_equal: {cql: 'update orders set w = ? where p = ? and c = ? and d = ? if v = ?', fields: samerow, serialConsistencyLevel: LOCAL_SERIAL}
  by_name: {cql: 'select * from orders where p = ? and c in ?'}
token_range_queries:
  scan: {columns: '*', page_size: 7}
";

/// Runs `squall cql user` with a profile in a keyspace of the test's own.
fn user(keyspace: &str, words: &[&str]) -> FinishedProcess {
    user_with(&[("orders.yaml", &ORDERS.replace("@KS@", keyspace))], words)
}

fn user_with(profiles: &[(&str, &str)], words: &[&str]) -> FinishedProcess {
    let folder = TestFolder::new();
    profiles.iter().for_each(|(name, text)| _ = folder.write(name, text));
    let names: Vec<&str> = profiles.iter().map(|(name, _)| *name).collect();
    let (profile, port) = (format!("profile={}", names.join(",")), format!("native={}", Cassandra::shared().port()));
    let connection = ["-node", "127.0.0.1", "-port", &port];
    folder.squall(&[&["cql", "user", &profile], words, &connection, &LOGIN, &["-log", "no-settings"]].concat())
}

fn count(keyspace: &str, table: &str) -> i64 {
    Cassandra::shared().count(&format!("SELECT COUNT(*) FROM {keyspace}.{table}"))
}

#[track_caller]
fn passed(ended: FinishedProcess) -> FinishedProcess {
    assert!(ended.code == 0 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    ended
}

#[test]
fn inserted_partitions_are_validated_queried_and_scanned() {
    let keyspace = "user_orders";
    let inserted = passed(user(keyspace, &["ops(insert=1)", "n=20", "no-warmup", "-rate", "threads=4"]));
    assert!(figure(&inserted, "Total partitions").starts_with("20 "), "{inserted:?}");
    assert!(inserted.stdout.contains("Running [insert] with 4 threads for 20 iteration\n"), "{inserted:?}");
    assert_eq!(count(keyspace, "orders"), 200);
    let words = ["ops(validate=1)", "n=200", "no-warmup", "-pop", "seq=1..20", "-rate", "threads=4"];
    passed(user(keyspace, &words));
    let words = ["ops(one_row=1)", "n=40", "no-warmup", "-pop", "seq=1..20", "-rate", "threads=4"];
    let read = passed(user(keyspace, &words));
    let rate = |name| figure(&read, name).split(' ').next().unwrap_or_default().to_owned();
    assert_eq!(rate("Row rate"), rate("Partition rate"), "each query finds its row: {read:?}");
    // A range ends the run after its last page, with every partition counted once.
    let words = ["ops(scan=1)", "duration=1h", "no-warmup", "-rate", "threads=3", "-tokenrange", "split-factor=5"];
    let scanned = passed(user(keyspace, &words));
    assert!(figure(&scanned, "Total partitions").starts_with("20 "), "{scanned:?}");
    assert!(figure(&scanned, "Total errors").starts_with('0'), "{scanned:?}");
    // Users that find no range do not use up the operations of the others.
    let scanned = passed(user(keyspace, &["ops(scan=1)", "n=25", "no-warmup", "-rate", "threads=12"]));
    assert!(scanned.stdout.contains("\ntotal,            25,"), "{scanned:?}");
}

#[test]
fn a_scan_at_a_rate_reads_every_range_to_its_end() {
    let keyspace = "user_rate";
    passed(user(keyspace, &["ops(insert=1)", "n=20", "no-warmup", "-rate", "threads=4"]));
    // Users that wait for a start do not keep a range that they have begun.
    let words = ["ops(scan=1)", "duration=1h", "no-warmup", "-rate", "threads=30", "throttle=60/s"];
    let scanned = passed(user(keyspace, &[&words[..], &["-tokenrange", "split-factor=5"]].concat()));
    assert!(figure(&scanned, "Total partitions").starts_with("20 "), "{scanned:?}");
}

#[test]
fn a_changed_a_missing_and_a_surplus_row_fail_the_validation() {
    let keyspace = "user_differs";
    let profile = ORDERS.replace("@KS@", keyspace).replace("fixed(5)", "fixed(1)").replace("fixed(2)", "fixed(1)");
    let user = |words: &[&str]| user_with(&[("orders.yaml", &profile)], words);
    let validate = || user(&["ops(validate=1)", "n=30", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"]);
    let insert = || passed(user(&["ops(insert=1)", "n=1", "no-warmup", "-rate", "threads=1"]));
    insert();
    passed(validate());
    let failed = |reason: &str| {
        let ended = validate();
        assert!(ended.code == 1 && ended.stdout.ends_with("FAILURE\n"), "{ended:?}");
        assert!(ended.stderr.contains("Operation x0 on key(s) [") && ended.stderr.contains(reason), "{ended:?}");
    };
    let cassandra = Cassandra::shared();
    cassandra.query(&format!("TRUNCATE {keyspace}.orders")).expect("the table can be emptied");
    failed("MISSING_ROW");
    insert();
    let words = ["ops(if_equal=1)", "n=1", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"];
    passed(user(&words));
    passed(validate());
    // Values below every generated one, which are at least 1: another row of the same partition.
    let key = cassandra.count(&format!("SELECT p FROM {keyspace}.orders"));
    let surplus = format!("INSERT INTO {keyspace}.orders (p, c, d, v) VALUES ({key}, -5, '', 1)");
    cassandra.query(&surplus).expect("a row can be added");
    let ended = user(&["ops(validate=1)", "n=60", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"]);
    assert!(ended.code == 1 && ended.stderr.contains("VALIDATION"), "{ended:?}");
}

#[test]
fn n_counts_partitions_and_the_last_batch_is_cut() {
    let keyspace = "user_batches";
    let words = [
        "ops(insert=1)",
        "n=20",
        "no-warmup",
        "-rate",
        "threads=1",
        "-insert",
        "partitions=fixed(7)",
        "batchtype=unlogged",
    ];
    let inserted = passed(user(keyspace, &words));
    assert!(figure(&inserted, "Total partitions").starts_with("20 "), "{inserted:?}");
    let last = inserted.stdout.lines().rfind(|line| line.starts_with("total,")).expect("a table");
    assert_eq!(last.split(',').nth(1).map(str::trim), Some("3"), "{inserted:?}");
    assert_eq!(count(keyspace, "orders"), 200);
    let logged = user(keyspace, &["ops(insert=1)", "n=1", "no-warmup", "-insert", "partitions=fixed(10k)"]);
    assert!(logged.code == 2 && logged.stderr.contains("a logged batch has at most 65,535"), "{logged:?}");
}

#[test]
fn visits_spread_a_partition_over_operations_and_select_leaves_rows_out() {
    let keyspace = "user_visits";
    // A third of a partition, twice, and the rest: 3 + 3 + 3 + 1 rows.
    let words =
        ["ops(insert=1)", "n=8", "no-warmup", "-rate", "threads=1", "-insert", "visits=fixed(3)", "revisit=fixed(1)"];
    passed(user(keyspace, &words));
    assert_eq!(count(keyspace, "orders"), 20);
    passed(user(keyspace, &["ops(validate=1)", "n=30", "no-warmup", "-pop", "seq=1..2", "-rate", "threads=2"]));
    let keyspace = "user_select";
    let words = [
        "ops(insert=1)",
        "n=100",
        "no-warmup",
        "-rate",
        "threads=2",
        "-insert",
        "select-ratio=fixed(1)/2",
        "row-population-ratio=fixed(1)/2",
    ];
    passed(user(keyspace, &words));
    // Half of 1,000 rows, with six standard deviations.
    let rows = count(keyspace, "orders");
    assert!((405..=595).contains(&rows), "{rows}");
    let second = format!("SELECT COUNT(w) FROM {keyspace}.orders");
    assert_eq!(Cassandra::shared().count(&second), 0, "the second of two columns is empty");
}

#[test]
fn several_profiles_run_beside_each_other() {
    let cars = "\
keyspace: user_cars
keyspace_definition: |
  CREATE KEYSPACE user_cars WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}
table: cars
table_definition: CREATE TABLE cars (id uuid PRIMARY KEY, seen counter)
extra_definitions: ['CREATE TABLE spare (id uuid PRIMARY KEY)']
queries:
  by_id: {cql: select * from cars where id = ?}
";
    let orders = ORDERS.replace("@KS@", "user_several");
    let profiles = [("orders.yaml", orders.as_str()), ("cars.yaml", cars)];
    let words = [
        "ops(insert=1,user_cars.cars.insert=1)",
        "n=60",
        "no-warmup",
        "-pop",
        "seq=1..30",
        "-rate",
        "threads=3",
        "-insert",
        "partitions=fixed(2)",
    ];
    let inserted = passed(user_with(&profiles, &words));
    for name in ["insert", "user_cars.cars.insert"] {
        assert!(inserted.stdout.contains(&format!("\n{name},")), "{inserted:?}");
    }
    assert_eq!(count("user_cars", "spare"), 0);
    let cars = count("user_cars", "cars");
    assert!(cars > 0 && count("user_several", "orders") > 0, "{cars} cars");
    let words = ["ops(partition=1,user_cars.cars.by_id=1)", "n=40", "-pop", "seq=1..30", "-rate", "threads=3"];
    let read = passed(user_with(&profiles, &words));
    assert!(read.stdout.contains("Warming up partition with 10 iterations...\n"), "{read:?}");
}

#[test]
fn rows_of_every_type_are_validated() {
    // Some seeds have the same key, and each insert would add to a list that is not frozen.
    let types = include_str!("../../../squall-cql/tests/data/types.yaml").replace("javaks", "user_types");
    let types = types.replace("v_list list<int>", "v_list frozen<list<int>>");
    let keys = include_str!("../../../squall-cql/tests/data/keys.yaml").replace("javaks", "user_types");
    for profile in [types, keys] {
        let user = |words: &[&str]| passed(user_with(&[("p.yaml", &profile)], words));
        user(&["ops(insert=1)", "n=30", "no-warmup", "-rate", "threads=2"]);
        user(&["ops(validate=1)", "n=200", "no-warmup", "-pop", "seq=1..30", "-rate", "threads=4"]);
    }
}

#[test]
fn rows_with_a_static_column_are_validated() {
    let profile = "\
keyspace: user_static
keyspace_definition: |
  CREATE KEYSPACE user_static WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
table: orders
table_definition: CREATE TABLE orders (id bigint, line int, v int, name text static, PRIMARY KEY (id, line))
columnspec:
  - {name: line, cluster: fixed(3)}
";
    let user = |words: &[&str]| user_with(&[("p.yaml", profile)], words);
    passed(user(&["ops(insert=1)", "n=20", "no-warmup", "-rate", "threads=2"]));
    passed(user(&["ops(validate=1)", "n=60", "no-warmup", "-pop", "seq=1..20", "-rate", "threads=2"]));
}

#[test]
fn mistakes_of_a_profile_are_named() {
    let failed = |ended: FinishedProcess, reason: &str| {
        assert!(ended.code == 2 && ended.stderr.contains(reason), "{ended:?}");
    };
    failed(user("user_wrong", &["ops(isnert=1)", "n=1"]), "has no operation isnert: did you mean insert?");
    failed(user("user_wrong", &["ops(by_name=1)", "n=1"]), "its argument in(c) is no column of orders");
    let profile = "keyspace: user_wrong\ntable: nothing\n";
    failed(
        user_with(&[("p.yaml", profile)], &["ops(insert=1)", "n=1"]),
        "the database has no table user_wrong.nothing",
    );
    let profile = "keyspace: user_wrong\ntable: orders\nqueries: {q: {cql: selec v}}\n";
    failed(user_with(&[("p.yaml", profile)], &["ops(q=1)", "n=1"]), "cannot prepare q: line 1:0");
    failed(user_with(&[("p.yaml", "keyspace: a\n")], &["ops(insert=1)", "n=1"]), "p.yaml:1: ");
    let map = "\
keyspace: user_wrong
table: maps
table_definition: CREATE TABLE maps (id int PRIMARY KEY, m map<int, int>, v int)
";
    failed(user_with(&[("p.yaml", map)], &["ops(insert=1)", "n=1"]), "the column m has the type map<int, int>");
    let words = ["ops(insert=1)", "n=1", "no-warmup", "-rate", "threads=1", "-errors", "skip-unsupported-columns"];
    passed(user_with(&[("p.yaml", map)], &words));
    assert_eq!(count("user_wrong", "maps"), 1);
}

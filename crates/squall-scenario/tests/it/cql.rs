//! CQL statements in scenarios: their language, and a real Cassandra beside the built-in shop.

use squall_engine::{Driver, DriverThread, ThreadRecorder};
use squall_metrics::{MetricDelta, MetricKind, RecorderConfig};
use squall_scenario::{NoFiles, RawLoad, Scenario, ScenarioOverrides, Sourced};
use squall_target::TargetEndpoint;
use squall_testkit::cassandra::{CASSANDRA_USER, Cassandra};
use std::{collections::BTreeMap, time::Instant};

use crate::{
    examples,
    harness::{MemoryFiles, RecordedRun, block_on, run, target, with_files},
};

/// A keyspace of the test's own with this table.
fn create(keyspace: &str, table: &str) -> &'static Cassandra {
    let server = Cassandra::shared();
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    server.query(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}")).expect("a new keyspace");
    server.query(&format!("CREATE TABLE {keyspace}.{table}")).expect("a new table");
    server
}

/// `[cql]` for the shared server.
fn settings(keyspace: &str) -> String {
    let port = Cassandra::shared().port();
    format!(
        "[cql]\nnodes = [\"127.0.0.1\"]\nport = {port}\nuser = \"{CASSANDRA_USER}\"\npassword = \"@secret.txt\"\n\
         keyspace = \"{keyspace}\"\n"
    )
}

fn cql_scenario(target: &squall_target::TargetServer, keyspace: &str, rest: &str) -> Scenario {
    let files = MemoryFiles(BTreeMap::from([("secret.txt", "cassandra\n")]));
    with_files(target, &format!("{}{rest}", settings(keyspace)), files)
}

fn metric<'r>(recorded: &'r RecordedRun, name: &str) -> &'r MetricDelta {
    let found = recorded.metrics.iter().find(|metric| metric.key.name == name);
    found.unwrap_or_else(|| panic!("no metric {name}"))
}

#[test]
fn values_pass_between_requests_and_statements_of_one_task() {
    let (target, server) = (target(), create("mixed", "orders (id int PRIMARY KEY, name text, product int)"));
    let task = r#"
[[task]]
name = "order"
[[task.step]]
name = "product"
get = "/api/products/7"
extract = { name = "$.name", product = "$.id" }
[[task.step]]
name = "store"
statement = "INSERT INTO orders (id, name, product) VALUES (?, ?, ?)"
values = ["{{ iteration() }}", "{{ name }}", "{{ product }}"]
[[task.step]]
name = "compare"
statement = "SELECT name, product FROM orders WHERE id = ?"
values = ["{{ iteration() }}"]
expect = { rows = 1, columns = { name = "Copper Compass 7" }, max_ms = 60000 }
extract = { stored = "product", none = { column = "absent", default = "-" } }
[[task.step]]
name = "again"
get = "/api/products/{{ stored }}"
expect = { json = { "$.name" = "{{ name }}" } }
"#;
    let (recorded, completed) = run(&cql_scenario(&target, "mixed", task), 3);
    assert_eq!(completed, [true, true, true], "{:?}", recorded.notes());
    let expected = ["order/product: HTTP_200×3", "order/store: OK×3", "order/compare: OK×3", "order/again: HTTP_200×3"];
    assert_eq!(recorded.lines(MetricKind::Request), expected);
    assert_eq!(recorded.lines(MetricKind::Group), ["order: OK×3"]);
    assert_eq!(target.requests_of(TargetEndpoint::Product), 6);
    assert_eq!(server.count("SELECT COUNT(*) FROM mixed.orders"), 3);
    assert_eq!(metric(&recorded, "order/compare:rows").requests(), 3);
    let compare = metric(&recorded, "order/compare");
    assert!(compare.bytes_in > 0 && compare.bytes_out > 0, "rows are received bytes, values are sent ones");
    assert_eq!((recorded.engine.begun, recorded.engine.recorded), (12, 12));
}

#[test]
fn every_type_takes_its_written_form_and_returns_it() {
    let (target, table) = (
        target(),
        "all (k int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, \
        g double, h float, i inet, j smallint, l text, m time, n timestamp, o timeuuid, p tinyint, q uuid, r varint, \
        s list<int>, t set<text>, u map<text, int>, v tuple<int, text>, w duration, x frozen<map<int, text>>)",
    );
    create("types", table);
    let task = r#"
[[task]]
name = "write"
kind = "cql"
statement = "INSERT INTO all (k,a,b,c,d,e,f,g,h,i,j,l,m,n,o,p,q,r,s,t,u,v,w,x) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
values = [1, "a", "-9000000000", "0x0aff", true, "2026-01-31", "12.50", 1.5, "0.1", "::1", 7, 5, "13:30:54.2",
    2026-01-31T13:30:00Z, "123e4567-e89b-12d3-a456-426614174000", -1, "{{ uuid() }}",
    "170141183460469231731687303715884105727", [1, "{{ user() }}"], ["b", "a"], { x = 1 }, [1, "t"], "1mo2d3h",
    { "5" = "five" }]
[[task]]
name = "read"
kind = "cql"
statement = "SELECT * FROM all WHERE k = 1"
[task.expect]
rows = 1
[task.expect.columns]
a = "a"
b = "-9000000000"
c = "0x0aff"
d = true
e = "2026-01-31"
f = "12.50"
g = 1.5
h = "0.1"
i = "::1"
j = 7
l = "5"
m = "13:30:54.2"
n = "2026-01-31T13:30:00.000Z"
o = "123e4567-e89b-12d3-a456-426614174000"
p = -1
r = "170141183460469231731687303715884105727"
s = "[1,3]"
t = '["a","b"]'
u = '{"x":1}'
v = '[1,"t"]'
w = "1mo2d10800000000000ns"
x = '{"5":"five"}'
"#;
    let (recorded, completed) = run(&cql_scenario(&target, "types", task), 1);
    assert_eq!(completed, [true, true], "{:?}", recorded.notes());
}

#[test]
fn generated_values_stay_within_their_population_and_pages_are_read_to_the_end() {
    let (target, server) = (target(), create("generated", "rows (p int, c int, t text, PRIMARY KEY (p, c))"));
    let task = r#"
[[task]]
name = "write"
kind = "cql"
statement = "INSERT INTO rows (p, c, t) VALUES (1, ?, ?)"
values = [{ population = "uniform(1..1000)" }, { population = "fixed(5)", size = "fixed(12)" }]
"#;
    let (recorded, completed) = run(&cql_scenario(&target, "generated", task), 60);
    assert!(completed.iter().all(|completed| *completed), "{:?}", recorded.notes());
    let written = server.count("SELECT COUNT(*) FROM generated.rows");
    assert!((40..=60).contains(&written), "{written} different values of 1000 in 60 draws");
    assert_eq!(metric(&recorded, "write").bytes_out, 60 * (4 + 12), "an int and a text are sent bytes");
    assert_eq!(server.count("SELECT COUNT(*) FROM generated.rows WHERE p = 1 AND c >= 1 AND c <= 1000"), written);
    let read = format!(
        "[[task]]\nname = \"read\"\nkind = \"cql\"\nstatement = \"SELECT t FROM rows WHERE p = 1\"\npage_size = 7\n\
         expect = {{ rows = {written} }}\nextract = {{ text = \"t\" }}\n"
    );
    let (recorded, completed) = run(&cql_scenario(&target, "generated", &read), 1);
    assert_eq!(completed, [true], "{:?}", recorded.notes());
    let rows = metric(&recorded, "read:rows");
    assert_eq!(rows.service.max() / 1_000_000, written as u64, "one row is recorded as 1 ms");
}

#[test]
fn the_timeout_of_a_statement_covers_all_its_pages() {
    let (target, server) = (target(), create("paged", "rows (p int, c int, PRIMARY KEY (p, c))"));
    let rows: Vec<String> = (0..3000).map(|c| format!("INSERT INTO paged.rows (p, c) VALUES (1, {c})")).collect();
    server.query(&format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", rows.join("; "))).expect("the rows are written");
    // No database answers 3,000 requests, one after the other, in this time.
    let task = r#"
[[task]]
name = "read"
[[task.step]]
name = "pages"
statement = "SELECT c FROM rows WHERE p = 1"
page_size = 1
timeout = "80ms"
"#;
    let (recorded, completed) = run(&cql_scenario(&target, "paged", task), 1);
    assert_eq!(completed, [false]);
    let codes: Vec<String> =
        metric(&recorded, "read/pages").outcomes.iter().map(|(outcome, _)| outcome.code.to_string()).collect();
    assert_eq!(codes, ["CLIENT_TIMEOUT"], "{:?}", recorded.notes());
}

#[test]
fn failures_have_the_codes_of_the_database_and_name_their_line() {
    let (target, _) = (target(), create("failures", "t (k int PRIMARY KEY, v int)"));
    let task = r#"
[[task]]
name = "unavailable"
kind = "cql"
statement = "SELECT * FROM t WHERE k = 1"
consistency = "TWO"
[[task]]
name = "rows"
kind = "cql"
statement = "SELECT * FROM t WHERE k = 1"
expect = { rows = 1 }
[[task]]
name = "column"
kind = "cql"
statement = "SELECT COUNT(*) AS n FROM t"
expect = { columns = { n = 7 } }
[[task]]
name = "extract"
kind = "cql"
statement = "SELECT v FROM t WHERE k = 1"
extract = { v = "v" }
[[task]]
name = "value"
kind = "cql"
statement = "SELECT v FROM t WHERE k = ?"
values = ["x{{ user() }}"]
"#;
    let (recorded, completed) = run(&cql_scenario(&target, "failures", task), 1);
    assert_eq!(completed, [false; 5]);
    let expected =
        ["unavailable: UNAVAILABLE×1", "rows: ROWS×1", "column: COLUMN×1", "extract: EXTRACT×1", "value: BAD_VALUE×1"];
    assert_eq!(recorded.lines(MetricKind::Request), expected);
    let notes = recorded.notes().join("\n");
    for part in [
        "Cannot achieve consistency level TWO (node 127.0.0.1, data centre",
        "expected 1 row, got 0 (shop.toml:14)",
        "expected n to be \"7\", got \"0\" (shop.toml:19)",
        "cannot extract `v` from column v: there is no row (shop.toml:24)",
        "value 1 (column k, int): \"x3\" is not a whole number of 32 bits (shop.toml:29)",
    ] {
        assert!(notes.contains(part), "{part:?} is not in\n{notes}");
    }
}

/// Why the thread of a scenario cannot connect.
fn refusal(text: &str) -> String {
    let scenario = Scenario::parse("shop.toml", text, &mut NoFiles, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let mut thread = scenario.driver().thread(recorder).expect("a sound scenario");
        thread.connect().await.expect_err("the database refuses").to_string()
    })
}

#[test]
fn a_database_that_cannot_be_used_is_an_error_before_the_run() {
    create("refused", "t (k int PRIMARY KEY)");
    let port = Cassandra::shared().port();
    let text = |settings: &str, statement: &str| {
        format!("[cql]\nport = {port}\n{settings}\n[[task]]\nname = \"a\"\nkind = \"cql\"\n{statement}\n")
    };
    let login = "user = \"cassandra\"\npassword = \"cassandra\"\nkeyspace = \"refused\"";
    let select = "statement = \"SELECT * FROM t\"";
    assert!(refusal(&text("", select)).contains("wants a password: add `user` and `password` to [cql]"));
    let wrong = refusal(&text("user = \"cassandra\"\npassword = \"wrong\"", select));
    assert!(wrong.contains("cannot connect to 127.0.0.1") && wrong.contains("cassandra"), "{wrong}");
    let table = refusal(&text(login, "statement = \"SELECT * FROM absent\""));
    assert!(table.starts_with("shop.toml:6: cannot prepare `SELECT * FROM absent`: "), "{table}");
    let value = refusal(&text(login, "statement = \"SELECT * FROM t WHERE k = ?\"\nvalues = [\"one\"]"));
    assert_eq!(value, "shop.toml:6: value 1 (column k, int): \"one\" is not a whole number of 32 bits");
    let centre = refusal(&text(&format!("{login}\ndatacenter = \"mars\""), select));
    assert!(centre.contains("no node of the cluster is in the data centre mars"), "{centre}");

    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let text = text(login, select).replace(&format!("port = {port}"), &format!("port = {}", address_port(&silent)));
    let silent_text = refusal(&text);
    assert!(silent_text.contains("did not answer within 10 s: check `nodes` and `port` of [cql]"), "{silent_text}");
    drop(silent);
    assert!(refusal(&text).contains("cannot connect to 127.0.0.1"));
}

fn address_port(listener: &std::net::TcpListener) -> u16 {
    listener.local_addr().expect("bound").port()
}

#[test]
fn the_example_counts_what_shop_and_database_have() {
    let target = target();
    let table =
        "orders (customer int, number bigint, total int, placed timestamp, note text, PRIMARY KEY (customer, number))";
    let server = create("shop", table);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/cql.toml");
    let node = Sourced::from_flag("--param", format!("127.0.0.1:{}", server.port()));
    let overrides = ScenarioOverrides {
        target: Some(Sourced::from_flag("--target", target.url(""))),
        load: RawLoad { duration: Some(Sourced::from_flag("--for", "2s")), ..RawLoad::default() },
        variables: vec![("node".to_owned(), node)],
        ..ScenarioOverrides::default()
    };
    let deltas = block_on(examples::run(&examples::parse(&path, overrides)));
    let count = |name: &str| -> u64 {
        let metrics = deltas.iter().flat_map(|delta| &delta.metrics);
        metrics.filter(|metric| metric.key.name == name).map(|metric| metric.requests()).sum()
    };
    let errors: Vec<_> = deltas.iter().flat_map(|delta| &delta.errors).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(count("order/product") > 0 && count("latest") > 0);
    assert_eq!(count("order/product"), target.requests());
    assert_eq!(count("order/store") as i64, server.count("SELECT COUNT(*) FROM shop.orders"));
    assert_eq!((count("order/compare"), count("latest:rows")), (count("order/store"), count("latest")));
}

#[track_caller]
fn rejected(rest: &str, expected: &[&str]) {
    let text = format!("target = \"http://127.0.0.1:1\"\n{rest}");
    let errors =
        Scenario::parse("shop.toml", &text, &mut NoFiles, ScenarioOverrides::default()).expect_err("a mistake");
    let errors = errors.to_string();
    for part in expected {
        assert!(errors.contains(part), "{part:?} is not in\n{errors}");
    }
}

#[test]
fn mistakes_in_statements_are_reported_with_their_line() {
    let task = |rest: &str| format!("[[task]]\nname = \"a\"\nkind = \"cql\"\n{rest}");
    rejected(&task(""), &["shop.toml:2:1: the CQL task `a` has no statement", "add statement ="]);
    rejected(&task("get = \"/\""), &["shop.toml:5:1: unknown key `get`"]);
    let misspelt = "[[task]]\nname = \"a\"\nkind = \"cqll\"\nstatement = \"SELECT t FROM r\"\nexpect = { rows = 1 }";
    let only = "shop.toml:4:8: there is no kind of task `cqll`\n 4 | kind = \"cqll\"\n   |        ^^^^^^\n   hint: did you mean `cql`?";
    rejected(misspelt, &[only, "1 problem found"]);
    rejected("[[task]]\nname = \"a\"\nstatement = \"x\"", &["unknown key `statement`"]);
    let select = "statement = \"SELECT * FROM t WHERE k = ?\"";
    rejected(&task(select), &["shop.toml:5:13: the statement has 1 ?, and there are 0 values", "one value for each ?"]);
    rejected(&task(&format!("{select}\nvalues = [1, 2]")), &["there are 2 values"]);
    rejected(&task(&format!("{select}\nvalues = 1")), &["`values` must be a list with one value for each ?"]);
    rejected(&task(&format!("{select}\nvalues = [\"{{{{ nam }}}}\"]")), &["unknown variable `nam`"]);
    let generated = |text: &str| task(&format!("{select}\nvalues = [{{ population = \"{text}\" }}]"));
    rejected(&generated("uniform(1)"), &["shop.toml:6:26: \"1\" is not a range"]);
    rejected(&generated("seq(1..9)"), &["`seq` counts in each thread by itself: write {{ iteration() }}"]);
    rejected(&task(&format!("{select}\nvalues = [1]\nconsistency = \"MOST\"")), &["MOST"]);
    rejected(&task(&format!("{select}\nvalues = [1]\npage_size = 0")), &["a page has 1 to 65535 rows"]);
    rejected(&task(&format!("{select}\nvalues = [1]\nexpect = {{ row = 1 }}")), &["did you mean `rows`?"]);
    rejected(
        &task(&format!("{select}\nvalues = [1]\nexpect = {{ rows = 1, min_rows = 1 }}")),
        &["`rows` is the exact number"],
    );
    rejected(&task("statement = \"SELECT {{ random(1, 2) }}\""), &["a statement cannot change during the run"]);
    rejected(
        &task(&format!("{select}\nvalues = [1]\n[[task.step]]\n{select}\nvalues = [1]")),
        &["the task `a` has a request and steps"],
    );
    let settings = |rest: &str| format!("[cql]\n{rest}\n{}", task(&format!("{select}\nvalues = [1]")));
    rejected(&settings("nodes = [\"a:b\"]"), &["\"a:b\" is not a node"]);
    rejected(&settings("port = 70000"), &["70000 is not a port"]);
    rejected(&settings("user = \"me\""), &["a user needs a password", "@FILE"]);
    rejected(&settings("password = \"$SECRET\"\nuser = \"me\""), &["the environment variable SECRET is not set"]);
    rejected(&settings("compression = \"zip\""), &["unknown compression `zip`", "none, lz4 and snappy"]);
    rejected(&settings("connections = 0"), &["give 1 to 1024 connections"]);
    rejected(&settings("node = \"a\""), &["did you mean `nodes`?"]);
    rejected(&settings("keystore = \"a.p12\""), &["shop.toml:3:12: only `truststore` switches TLS on"]);
    rejected(&settings("truststore = \"absent.pem\""), &["shop.toml:3:14: cannot read absent.pem"]);
    rejected(
        &settings("truststore = \"Cargo.toml\"\nkeystore_password = \"a\""),
        &["shop.toml:4:21: there is no keystore", "Cargo.toml: it is none of JKS, PKCS12 and PEM"],
    );
}

#[test]
fn a_map_with_a_key_population_is_a_value() {
    for value in ["{ population = 5 }", "{ population = \"83M\", country = \"de\" }"] {
        let text = format!(
            "target = \"http://127.0.0.1:1\"\n[[task]]\nname = \"a\"\nkind = \"cql\"\n\
             statement = \"INSERT INTO t (k, v) VALUES (1, ?)\"\nvalues = [{value}]"
        );
        let parsed = Scenario::parse("shop.toml", &text, &mut NoFiles, ScenarioOverrides::default());
        assert!(parsed.is_ok(), "{value}: {:?}", parsed.err());
    }
}

#[test]
fn a_plan_lists_statements_beside_requests() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/cql.toml")).unwrap();
    let scenario = Scenario::parse("orders.toml", &text, &mut NoFiles, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    insta::assert_snapshot!(scenario.describe());
}

#[test]
fn statements_alone_need_no_target() {
    let text = "[[task]]\nname = \"a\"\nkind = \"cql\"\nstatement = \"SELECT * FROM k.t\"\n";
    let scenario = Scenario::parse("a.toml", text, &mut NoFiles, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(scenario.plan.target, "127.0.0.1:9042");
}

//! Requests of the driver: which are sent and what is recorded, against a target that counts them.

use squall_engine::{Driver, DriverThread, Iteration, ThreadRecorder, UserIdentity, UserStart, VirtualUser};
use squall_metrics::{MetricKind, OutcomeCategory, RecorderConfig};
use squall_model::TaskIndex;
use squall_target::TargetEndpoint;
use std::{collections::BTreeMap, time::Instant};

use crate::harness::{MemoryFiles, RecordedRun, block_on, run, scenario, target, with_files};

/// One user runs all tasks of `rest` twice; `expected` are the lines of requests, then of groups.
#[track_caller]
fn check(rest: &str, requests: &[&str], groups: &[&str]) {
    let target = target();
    let (record, _) = run(&scenario(&target, rest), 2);
    assert_eq!(record.lines(MetricKind::Request), requests, "{:?}", record.notes());
    assert_eq!(record.lines(MetricKind::Group), groups);
    assert_eq!((record.engine.begun, record.engine.recorded), (target.requests(), target.requests()));
}

#[test]
fn constant_task_records_every_request_of_the_target() {
    check("[[task]]\nname = 'health'\nget = '/health'", &["health: HTTP_200×2"], &[]);
}

#[test]
fn status_400_or_above_is_an_error_unless_expected() {
    check("[[task]]\nname = 'x'\nget = '/nothing'", &["x: HTTP_404×2"], &[]);
    check("[[task]]\nname = 'x'\nget = '/nothing'\nexpect = { status = 404 }", &["x: HTTP_404×2"], &[]);
    check("[[task]]\nname = 'x'\nget = '/health'\nexpect = { status = [201, '3xx'] }", &["x: STATUS×2"], &[]);
    check("[[task]]\nname = 'x'\nget = '/nothing'\nexpect = { status = 200 }", &["x: HTTP_404×2"], &[]);
}

#[test]
fn task_with_404_completes_only_if_404_is_expected() {
    let target = target();
    let text =
        "[[task]]\nname = 'a'\nget = '/nothing'\nexpect = { status = 404 }\n[[task]]\nname = 'b'\nget = '/nothing'";
    let (record, completed) = run(&scenario(&target, text), 1);
    assert_eq!(completed, [true, false]);
    let categories: Vec<_> = record.metrics.iter().map(|metric| metric.outcomes[0].0.category).collect();
    assert_eq!(categories, [OutcomeCategory::Ok, OutcomeCategory::ProtocolError]);
}

#[test]
fn each_redirect_is_recorded_under_its_own_metric() {
    check(
        "[[task]]\nname = 'go'\nget = '/redirect/3'",
        &["go: HTTP_302×2", "go (redirect): HTTP_302×4 HTTP_200×2"],
        &[],
    );
    check("[http]\nredirects = false\n[[task]]\nname = 'go'\nget = '/redirect/3'", &["go: HTTP_302×2"], &[]);
    check("[[task]]\nname = 'go'\nget = '/redirect/3'\nexpect = { status = 302 }", &["go: HTTP_302×2"], &[]);
    check(
        "[http]\nredirects = 1\n[[task]]\nname = 'go'\nget = '/redirect/3'",
        &["go: HTTP_302×2", "go (redirect): TOO_MANY_REDIRECTS×2"],
        &[],
    );
}

#[test]
fn checks_apply_to_the_last_response_after_redirects() {
    check(
        "[[task]]\nname = 'go'\nget = '/redirect/1'\nexpect = { json = { '$.status' = 'ok' } }",
        &["go: HTTP_302×2", "go (redirect): HTTP_200×2"],
        &[],
    );
}

/// Checks one expectation on `/api/products/7`. `code` is the outcome, `note` a part of its message.
#[track_caller]
fn expect(expectation: &str, code: &str, note: &str) {
    let target = target();
    let text = format!("[[task]]\nname = 'p'\nget = '/api/products/7'\nexpect = {{ {expectation} }}");
    let (record, completed) = run(&scenario(&target, &text), 1);
    assert_eq!(record.lines(MetricKind::Request), [format!("p: {code}×1")], "{:?}", record.notes());
    assert_eq!(completed, [code == "HTTP_200"]);
    assert!(record.notes().join("").contains(note), "{:?}", record.notes());
}

#[test]
fn every_expectation_can_pass_and_fail() {
    expect("status = '2xx'", "HTTP_200", "");
    expect("header = { content-type = 'application/json' }", "HTTP_200", "");
    expect("header = { content-type = { contains = 'json' }, x-none = false }", "HTTP_200", "");
    expect("header = { content-type = { matches = '^app.*json$' } }", "HTTP_200", "");
    expect("header = { x-none = 'a' }", "HEADER", "expected header x-none to be \"a\", it is missing");
    expect("header = { content-type = true }", "HTTP_200", "");
    expect("header = { content-type = 'text/html' }", "HEADER", "got \"application/json\"");
    expect("body_contains = 'Chair'", "BODY", "expected the body to contain \"Chair\", got");
    expect("body_contains = ['Compass', '\"id\":7']", "HTTP_200", "");
    expect("body_matches = 'price_cents.:\\d+'", "HTTP_200", "");
    expect("body_matches = '^nothing'", "BODY", "to match ^nothing");
    expect("json = { '$.id' = 7, '$.in_stock' = true, '$.name' = 'Copper Compass 7' }", "HTTP_200", "");
    expect("json = { '$.id' = 8 }", "JSON", "expected $.id to be 8, got 7");
    expect("json = { '$.nothing' = 8 }", "JSON", "it does not exist");
    expect("json = { '$.nothing' = { exists = false }, '$.*' = { count = 4 } }", "HTTP_200", "");
    expect("json = { '$.*' = { count = 5 } }", "JSON", "to select 5, got 4");
    expect("json = { '$.id' = { exists = false } }", "JSON", "not to exist");
    expect("max_ms = 60000", "HTTP_200", "");
    expect("max_ms = 0.000001", "MAX_MS", "took longer");
}

#[test]
fn json_check_fails_on_a_body_that_is_not_json() {
    check("[[task]]\nname = 'x'\nget = '/bytes/9'\nexpect = { json = { '$' = 1 } }", &["x: JSON×2"], &[]);
}

const FLOW: &str = r#"
[variables]
product = 7
[[on_start]]
name = "login"
post = "/auth/login"
json = { username = "user-{{ user() }}", password = "{{ random_string(8) }}" }
extract = { token = "$.access_token" }
[[task]]
name = "buy"
group = "checkout"
tags = { area = "shop" }
[[task.step]]
name = "order"
post = "/api/orders"
bearer = "{{ token }}"
json = { product_id = "{{ product }}", quantity = "{{ random(2, 2) }}" }
extract = { id = "$.id", kind = { header = "content-type" }, sum = { regex = 'total_cents.:(\d+)' } }
[[task.step]]
name = "look"
get = "/api/orders/{{ id }}"
expect = { status = 200, json = { "$.quantity" = 2, "$.product_id" = "{{ product }}" }, body_contains = "{{ sum }}" }
"#;

#[test]
fn extracted_value_is_used_by_later_steps() {
    check(
        FLOW,
        &["buy/order: HTTP_201×2", "buy/look: HTTP_200×2", "on_start/login: HTTP_200×1"],
        &["buy: OK×2", "checkout: OK×2"],
    );
}

#[test]
fn metric_key_has_tags_and_group() {
    let target = target();
    let (record, _) = run(&scenario(&target, FLOW), 1);
    let order = record.metrics.iter().find(|metric| metric.key.name == "buy/order").expect("recorded");
    assert_eq!(order.key.group.as_deref(), Some("checkout"));
    assert_eq!(order.key.tags.get("area").map(String::as_str), Some("shop"));
}

#[test]
fn failed_step_ends_flow_unless_continue_on_failure() {
    let flow = |more: &str| {
        format!(
            "[[task]]\nname = 'f'\n[[task.step]]\nname = 'a'\nget = '/nothing'\n{more}\n\
             [[task.step]]\nname = 'b'\nget = '/health'"
        )
    };
    check(&flow(""), &["f/a: HTTP_404×2"], &["f: HTTP_404×2"]);
    check(&flow("continue_on_failure = true"), &["f/a: HTTP_404×2", "f/b: HTTP_200×2"], &["f: HTTP_404×2"]);
}

#[test]
fn consecutive_steps_of_a_group_share_one_span() {
    let step = |name: &str, group: &str| {
        let group = if group.is_empty() { String::new() } else { format!("group = '{group}'\n") };
        format!("[[task.step]]\nname = '{name}'\nget = '/health'\n{group}")
    };
    let steps = [("a", "x"), ("b", "x"), ("c", ""), ("d", "x"), ("e", "y")].map(|(name, group)| step(name, group));
    let target = target();
    let (record, _) = run(&scenario(&target, &format!("[[task]]\nname = 'f'\n{}", steps.join(""))), 1);
    assert_eq!(record.lines(MetricKind::Group), ["f: OK×1", "x: OK×2", "y: OK×1"]);
}

#[test]
fn missing_value_without_default_fails_extraction() {
    let target = target();
    let text = "[[task]]\nname = 'x'\nget = '/health'\nextract = { token = '$.token' }\n\
                [[task]]\nname = 'y'\nget = '/api/products/{{ token }}'\n\
                [[task]]\nname = 'z'\nget = '/health'\nextract = { other = { json = '$.no', default = '5' } }\n\
                [[task]]\nname = 'w'\nget = '/api/products/{{ other }}'";
    let (record, completed) = run(&scenario(&target, text), 1);
    assert_eq!(
        record.lines(MetricKind::Request),
        ["x: EXTRACT×1", "y: VARIABLE_UNSET×1", "z: HTTP_200×1", "w: HTTP_200×1"]
    );
    assert_eq!(completed, [false, false, true, true]);
    assert_eq!(target.requests(), 3, "nothing can be sent without the value");
    assert!(record.notes()[0].contains("cannot extract `token`: $.token selects nothing"));
    assert!(record.notes()[1].contains("the variable `token` has no value yet"));
}

/// Bytes that `metric` has sent.
fn bytes_out(record: &RecordedRun, metric: &str) -> u64 {
    record.metrics.iter().find(|one| one.key.name == metric).expect("it was used").bytes_out
}

#[test]
fn bytes_of_a_timed_out_request_are_counted() {
    let target = target();
    let text = "[[task]]\nname = 'open'\nget = '/delay/00000'\n\
                [[task]]\nname = 'slow'\ntimeout = '30ms'\nget = '/delay/60000'\n";
    let (record, _) = run(&scenario(&target, text), 1);
    assert_eq!(record.lines(MetricKind::Request), ["open: HTTP_200×1", "slow: TASK_TIMEOUT×1"]);
    assert!(bytes_out(&record, "open") > 0);
    assert_eq!(bytes_out(&record, "slow"), bytes_out(&record, "open"));
}

#[test]
fn bytes_of_an_aborted_request_are_counted() {
    let target = target();
    let text = "[[task]]\nname = 'whole'\nget = '/delay/00000'\n[[task]]\nname = 'aborted'\nget = '/delay/60000'";
    let scenario = scenario(&target, text);
    let record = block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let thread = scenario.driver().thread(recorder.clone()).expect("a sound scenario");
        let mut user = thread.user(UserIdentity { number: 0, seed: 7 });
        let now = Instant::now();
        let of = |task| Iteration { number: 0, task: TaskIndex(task), intended: now, started: now };
        assert!(user.iterate(of(0)).await);
        let arrived = async {
            while target.requests() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = user.iterate(of(1)) => panic!("it takes a minute"),
            () = arrived => {}
        }
        let (metrics, notes, engine) = recorder.harvest(0, 0);
        RecordedRun { metrics, notes, engine }
    });
    assert_eq!(record.lines(MetricKind::Request), ["whole: HTTP_200×1", "aborted: ABORTED×1"]);
    assert_eq!(bytes_out(&record, "aborted"), bytes_out(&record, "whole"));
}

#[test]
fn task_timeout_ends_requests_and_think_time() {
    let target = target();
    let text = "[[task]]\nname = 'slow'\ntimeout = '30ms'\nget = '/delay/60000'\n\
                [[task]]\nname = 'flow'\ntimeout = '1s'\n[[task.step]]\nname = 'a'\nget = '/health'\nthink = '1h'\n\
                [[task.step]]\nname = 'b'\nget = '/health'\n\
                [[task]]\nname = 'after'\nget = '/health'";
    let (record, completed) = run(&scenario(&target, text), 1);
    assert_eq!(
        record.lines(MetricKind::Request),
        ["slow: TASK_TIMEOUT×1", "flow/a: HTTP_200×1", "flow/b: TASK_TIMEOUT×1", "after: HTTP_200×1"]
    );
    assert_eq!(record.engine.unsent, 1, "a wait that took too long is an error of the run, and nothing was sent");
    assert_eq!(record.lines(MetricKind::Group), ["flow: TASK_TIMEOUT×1"]);
    assert_eq!(completed, [false, false, true]);
    let slow = &record.metrics[0];
    assert!(slow.service.max() >= 30_000_000 && slow.outcomes[0].0.category == OutcomeCategory::Timeout);
}

#[test]
fn http_timeout_ends_a_slow_request() {
    check("[http]\ntimeout = '400ms'\n[[task]]\nname = 'slow'\nget = '/delay/60000'", &["slow: TIMEOUT×2"], &[]);
}

#[test]
fn refused_connection_is_recorded_with_its_reason() {
    let target = target();
    let scenario = scenario(&target, "[[task]]\nname = 'x'\nget = '/health'");
    drop(target);
    let (record, completed) = run(&scenario, 2);
    assert_eq!(record.lines(MetricKind::Request), ["x: CONNECT_REFUSED×2"]);
    assert_eq!((completed, record.engine.begun), (vec![false, false], 2));
    assert!(record.notes()[0].contains("refused"));
}

#[test]
fn failed_on_start_keeps_the_user_from_starting() {
    let target = target();
    let text = "[[on_start]]\nname = 'login'\npost = '/auth/login'\njson = { username = 'a', password = 'wrong' }\n\
                [[task]]\nname = 'x'\nget = '/health'";
    let (record, completed) = run(&scenario(&target, text), 1);
    assert_eq!(record.lines(MetricKind::Request), ["on_start/login: HTTP_401×1"]);
    assert!(completed.is_empty());
}

const USERS: &str = "[[data]]\nname = 'user'\nfile = 'users.csv'\norder = 'ORDER'\n\
    [[task]]\nname = 'x'\nget = '/echo'\nquery = { who = '{{ user.name }}' }\nheaders = { x-who = '{{ user.name }}' }\n\
    expect = { body_contains = ['x-who', '{{ user.name }}'] }";

fn users() -> MemoryFiles {
    MemoryFiles(BTreeMap::from([("users.csv", "name\nann\nbob\ncid\n")]))
}

#[test]
fn exhausted_unique_rows_record_data_exhausted() {
    let target = target();
    let (record, completed) = run(&with_files(&target, &USERS.replace("ORDER", "unique"), users()), 4);
    assert_eq!(record.lines(MetricKind::Request), ["x: HTTP_200×3 DATA_EXHAUSTED×1"]);
    assert_eq!((completed, target.requests()), (vec![true, true, true, false], 3));
    assert_eq!(record.metrics[0].outcomes[1].0.category, OutcomeCategory::Exception);
    assert_eq!(record.notes(), ["data `user` has no more rows"]);
}

#[test]
fn rows_in_turn_and_random_rows_never_run_out() {
    for order in ["in_turn", "random"] {
        let target = target();
        let (record, _) = run(&with_files(&target, &USERS.replace("ORDER", order), users()), 7);
        assert_eq!(record.lines(MetricKind::Request), ["x: HTTP_200×7"]);
    }
}

#[test]
fn unique_rows_are_shared_by_all_threads_of_a_driver() {
    let target = target();
    let driver = with_files(&target, &USERS.replace("ORDER", "unique"), users()).driver();
    let exhausted: usize = (0..3)
        .map(|thread| {
            block_on(async {
                let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
                let mut user =
                    driver.thread(recorder).expect("sound").user(UserIdentity { number: thread, seed: thread });
                let mut failed = 0;
                for number in 0..2 {
                    let now = Instant::now();
                    let done =
                        user.iterate(Iteration { number, task: TaskIndex(0), intended: now, started: now }).await;
                    failed += usize::from(!done);
                }
                failed
            })
        })
        .sum();
    assert_eq!((exhausted, target.requests()), (3, 3), "six iterations, three rows");
}

/// The user of [`run`] has the number 3.
#[test]
fn unique_row_per_user_has_the_users_number() {
    let target = target();
    let text = USERS
        .replace("order = 'ORDER'", "order = 'unique'\nper = 'user'")
        .replace("'x-who', '{{ user.name }}'", "'dan'");
    let rows = MemoryFiles(BTreeMap::from([("users.csv", "name\nann\nbob\ncid\ndan\n")]));
    let (record, _) = run(&with_files(&target, &text, rows), 5);
    assert_eq!(record.lines(MetricKind::Request), ["x: HTTP_200×5"]);
    let (record, _) = run(&with_files(&target, &text, users()), 1);
    assert_eq!(record.lines(MetricKind::Request), ["x: DATA_EXHAUSTED×1"], "it takes no row of another user");
}

#[test]
fn user_of_an_open_model_keeps_its_unique_row() {
    let target = target();
    let text = USERS.replace("order = 'ORDER'", "order = 'unique'\nper = 'user'");
    let (record, _) = run(&with_files(&target, &format!("[load]\nrate = 5\nfor = '1s'\n{text}"), users()), 5);
    assert_eq!(record.lines(MetricKind::Request), ["x: HTTP_200×5"]);
}

#[test]
fn request_in_flight_at_abort_is_recorded_as_aborted() {
    let target = target();
    let scenario = scenario(&target, "[[task]]\nname = 'slow'\nget = '/delay/60000'");
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let mut user =
            scenario.driver().thread(recorder.clone()).expect("sound").user(UserIdentity { number: 0, seed: 0 });
        let now = Instant::now();
        let iteration = Iteration { number: 0, task: TaskIndex(0), intended: now, started: now };
        let arrived = async {
            while target.requests_of(TargetEndpoint::Delay) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = user.iterate(iteration) => panic!("it waits a minute"),
            () = arrived => {}
        }
        let (metrics, _, engine) = recorder.harvest(0, 0);
        assert_eq!((engine.begun, engine.recorded), (1, 1));
        assert_eq!(metrics[0].outcomes[0].0.code.to_string(), "ABORTED");
    });
}

/// A server that sends `response` to every request on its one connection, and keeps the request lines.
fn start_server(response: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    use std::io::{BufRead, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (tx, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let mut lines = std::io::BufReader::new(stream.try_clone()?).lines();
        while let Some(line) = lines.next().transpose()? {
            let _ = tx.send(line);
            while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
            (&stream).write_all(response.as_bytes())?;
        }
        std::io::Result::Ok(())
    });
    (url, received)
}

fn parse_text(text: &str) -> squall_scenario::Scenario {
    let (mut files, overrides) =
        (crate::harness::MemoryFiles::default(), squall_scenario::ScenarioOverrides::default());
    squall_scenario::Scenario::parse("x.toml", text, &mut files, overrides).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A server sends a Set-Cookie header for each cookie.
#[test]
fn header_check_sees_every_header_of_its_name() {
    let (url, _lines) =
        start_server("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 0\r\n\r\n");
    let expect = |wish: &str| {
        format!("[[task]]\nname = '{wish}'\nget = '/'\nexpect = {{ header = {{ set-cookie = {wish} }} }}\n")
    };
    let text: String =
        ["\"b=2\"", "{ contains = \"b=\" }", "{ matches = \"^b\" }", "\"c=3\"", "false"].map(expect).concat();
    let (_, completed) = run(&parse_text(&format!("target = '{url}'\n{text}")), 1);
    assert_eq!(completed, [true, true, true, false, false]);
}

/// A number is sent as the server wrote it, and two integers that are equal as floats still differ.
#[test]
fn extracted_numbers_keep_their_notation_and_precision() {
    let (url, lines) = start_server(
        "HTTP/1.1 200 OK\r\nContent-Length: 74\r\n\r\n\
         {\"id\":9007199254740993,\"n\":[1.10,1e3],\"l\":123456789012345678901234567890 }",
    );
    let text = "[[task]]\nname = 'x'\n[[task.step]]\nget = '/'\n\
                extract = { a = '$.id', b = '$.n[0]', c = '$.n[1]', d = '$.l' }\n\
                expect = { json = { '$.id' = 9007199254740993 } }\n\
                [[task.step]]\nget = '/{{ a }}/{{ b }}/{{ c }}/{{ d }}'\n\
                expect = { json = { '$.id' = 9007199254740992 } }";
    let (record, completed) = run(&parse_text(&format!("target = '{url}'\n{text}")), 1);
    let sent: Vec<String> = lines.try_iter().collect();
    assert_eq!(sent[1], "GET /9007199254740993/1.10/1e3/123456789012345678901234567890 HTTP/1.1");
    assert_eq!(completed, [false]);
    assert!(record.notes()[0].contains("to be 9007199254740992, got 9007199254740993"), "{:?}", record.notes());
}

#[test]
fn users_with_on_start_steps_are_costly_to_start() {
    let target = target();
    let task = "[[task]]\nname = 'browse'\nget = '/api/products'\n";
    assert_eq!(scenario(&target, task).driver().user_start(), UserStart::Free);
    let login = format!("{task}[[on_start]]\nget = '/health'\n");
    assert_eq!(scenario(&target, &login).driver().user_start(), UserStart::OnStart);
}

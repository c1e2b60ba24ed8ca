//! The bytes of requests as a server receives them, for each key of the scenario format.

use squall_engine::{Driver, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_metrics::RecorderConfig;
use squall_model::TaskIndex;
use squall_scenario::{Scenario, ScenarioOverrides, Sourced, UrlRequest};
use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use crate::harness::{CapturingServer, MemoryFiles, block_on, run};

const FILES: [(&str, &str); 4] = [
    ("users.csv", "name,password\nann b,s3cret/&\n"),
    ("items.jsonl", "{\"id\":7,\"name\":\"x \\\"y\\\"\",\"tags\":[1,2]}\n"),
    ("body.bin", "{{ not a template }}"),
    ("TOKEN", "t0ken"),
];

const BEFORE: &str = r#"
[variables]
page = 3
word = "red shoes"
base = "/api"
mail = "{{ word }}@x"
key = "{{ env('TOKEN') }}"
[[data]]
name = "user"
file = "users.csv"
[[data]]
name = "item"
file = "items.jsonl"
"#;

fn send(prefix: &str, request: &str) -> String {
    let capture = CapturingServer::start();
    let text = format!("target = \"{}{prefix}\"\n{BEFORE}\n[[task]]\nname = 'x'\n{request}", capture.url);
    let mut files = MemoryFiles(BTreeMap::from(FILES));
    let scenario = Scenario::parse("x.toml", &text, &mut files, ScenarioOverrides::default());
    let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
    let (record, _) = run(&scenario, 1);
    let received = capture.take();
    assert_eq!(received.len(), 1, "{:?}", record.notes());
    received[0].clone()
}

/// The request line must be `line`.
#[track_caller]
fn line(request: &str, expected: &str) {
    assert_eq!(send("", request).lines().next(), Some(format!("{expected} HTTP/1.1").as_str()));
}

/// There must be exactly one header of that name, with that value.
#[track_caller]
fn header(request: &str, name: &str, value: &str) {
    let text = send("", request);
    let head = text.split("\r\n\r\n").next().expect("a head");
    let found: Vec<&str> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(found, [value], "{text}");
}

#[track_caller]
fn body(request: &str, expected: &str) {
    let text = send("", request);
    assert_eq!(text.split_once("\r\n\r\n").map(|(_, body)| body), Some(expected), "{text}");
}

#[test]
fn method_and_path_are_sent_as_written() {
    line("get = '/a?b=c'", "GET /a?b=c");
    line("post = '/a'", "POST /a");
    line("put = '/a'", "PUT /a");
    line("patch = '/a'", "PATCH /a");
    line("delete = '/a'", "DELETE /a");
    line("head = '/a'", "HEAD /a");
    line("options = '/a'", "OPTIONS /a");
    line("method = 'purge'\nurl = '/a'", "PURGE /a");
    line("get = ''", "GET /");
    line("get = '?a=1'", "GET /?a=1");
    line("get = '/red shoes'", "GET /red%20shoes");
}

#[test]
fn template_values_are_encoded_for_their_position() {
    line("get = '{{ base }}/p/{{ page }}'", "GET /api/p/3");
    line("get = '/p/{{ word }}/{{ user.password }}'", "GET /p/red%20shoes/s3cret%2F%26");
    line("get = '/p?q={{ word }}&u={{ user.name }}'", "GET /p?q=red%20shoes&u=ann%20b");
    line(
        "get = '/p'\nquery = { q = 'a b&c', 'd e' = '{{ word }}', n = 5, t = true }",
        "GET /p?q=a%20b%26c&d%20e=red%20shoes&n=5&t=true",
    );
    line("get = '/p?x=1'\nquery = { y = 2 }", "GET /p?x=1&y=2");
    line("get = '/p/{{ item.id }}/{{ item.tags }}'", "GET /p/7/%5B1%2C2%5D");
    line("get = '/{{ \"{{\" }}'", "GET /%7B%7B");
}

#[test]
fn path_of_the_target_prefixes_every_path() {
    let first = |prefix: &str, request: &str| send(prefix, request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first("/v1", "get = '/p'"), "GET /v1/p HTTP/1.1");
    assert_eq!(first("/v1/", "get = '/p/{{ page }}'"), "GET /v1/p/3 HTTP/1.1");
}

#[test]
fn absolute_url_ignores_the_target() {
    let capture = CapturingServer::start();
    let text =
        format!("target = 'http://127.0.0.1:1'\n[[task]]\nname = 'x'\nget = '{}/p/{{{{ user() }}}}'", capture.url);
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 1);
    assert!(capture.take()[0].starts_with("GET /p/3 HTTP/1.1"));
}

#[test]
fn request_headers_override_scenario_headers() {
    header("get = '/'\nheaders = { X-A = 'b', accept = 'text/html' }", "X-A", "b");
    header("get = '/'\nheaders = { accept = 'text/html' }", "Accept", "text/html");
    header("get = '/'\nheaders = { User-Agent = 'u{{ user() }}' }", "User-Agent", "u3");
    header("get = '/'\nheaders = { X-K = '{{ key }}' }", "X-K", "t0ken");
    let common = "[http]\nheaders = { X-A = 'common', X-B = 'kept' }\nbearer = 'all'\n";
    let capture = CapturingServer::start();
    let text = format!(
        "target = '{}'\n{common}[[task]]\nname = 'x'\nget = '/'\nheaders = {{ x-a = 'own{{{{ iteration() }}}}' }}",
        capture.url
    );
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 2);
    let received = capture.take();
    for (number, text) in received.iter().enumerate() {
        assert!(text.contains(&format!("x-a: own{number}\r\n")) && !text.contains("common"), "{text}");
        assert!(text.contains("X-B: kept\r\n") && text.contains("Authorization: Bearer all\r\n"), "{text}");
    }
}

#[test]
fn basic_and_bearer_set_the_authorization_header() {
    header("get = '/'\nbasic = 'ann:pass'", "Authorization", "Basic YW5uOnBhc3M=");
    header("get = '/'\nbasic = { user = 'ann', password = 'pass' }", "Authorization", "Basic YW5uOnBhc3M=");
    header("get = '/'\nbasic = '{{ user.name }}:{{ user() }}'", "Authorization", "Basic YW5uIGI6Mw==");
    header("get = '/'\nbearer = '{{ key }}'", "Authorization", "Bearer t0ken");
}

#[test]
fn bodies_are_sent_with_their_content_type() {
    body("post = '/'\nbody = 'a {{ page }} b'", "a 3 b");
    body("post = '/'\nbody = 'user {{ user() }}'", "user 3");
    body("post = '/'\nbody_file = 'body.bin'", "{{ not a template }}");
    body("post = '/x/{{ user() }}'\nbody_file = 'body.bin'", "{{ not a template }}");
    body("post = '/'\nform = { a = 'x y', b = '{{ word }}&{{ user() }}' }", "a=x%20y&b=red%20shoes%263");
    header("post = '/'\nform = { a = 1 }", "Content-Type", "application/x-www-form-urlencoded");
    header("post = '/'\njson = {}", "Content-Type", "application/json");
    header("post = '/'\njson = {}\nheaders = { content-type = 'x/y' }", "Content-Type", "x/y");
    body("post = '/'\njson = '{\"n\": {{ page }}}'", "{\"n\": 3}");
}

#[test]
fn json_body_keeps_types_and_order() {
    body("post = '/'\njson = { b = 1, a = [true, 1.5, 'x'], z = {} }", r#"{"b":1,"a":[true,1.5,"x"],"z":{}}"#);
    body("post = '/'\njson = { n = '{{ page }}', s = 'p{{ page }}' }", r#"{"n":3,"s":"p3"}"#);
    body("post = '/'\njson = { n = '{{ random(5, 5) }}', s = '{{ choice(\"k\") }}!' }", r#"{"n":5,"s":"k!"}"#);
    body(
        "post = '/'\njson = { i = '{{ item.id }}', n = '{{ item.name }}', t = '{{ item.tags }}' }",
        r#"{"i":7,"n":"x \"y\"","t":[1,2]}"#,
    );
    body("post = '/'\njson = { m = '<{{ item.name }}>', u = '{{ user.name }}' }", r#"{"m":"<x \"y\">","u":"ann b"}"#);
    body("post = '/'\njson = ['{{ mail }}', '{{ user() }}', '{{ iteration() }}']", r#"["red shoes@x",3,0]"#);
}

#[test]
fn generated_values_have_the_documented_format() {
    let text = send("", "post = '/'\nbody = '{{ uuid() }} {{ now() }} {{ now_ms() }} {{ random_string(12) }}'");
    let body: Vec<&str> = text.split_once("\r\n\r\n").unwrap().1.split(' ').collect();
    assert_eq!(body.iter().map(|part| part.len()).collect::<Vec<_>>(), [36, 24, 13, 12], "{body:?}");
    assert!(body[1].ends_with('Z') && body[2].parse::<u64>().is_ok());
}

#[test]
fn random_variable_is_rendered_once_per_user() {
    let capture = CapturingServer::start();
    let text = format!(
        "target = '{}'\n[variables]\nsession = '{{{{ uuid() }}}}'\nlong = 's-{{{{ session }}}}'\n\
         [[task]]\nname = 'x'\nget = '/{{{{ session }}}}/{{{{ long }}}}'",
        capture.url
    );
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 3);
    let received = capture.take();
    let paths: Vec<&str> = received.iter().filter_map(|text| text.split(' ').nth(1)).collect();
    assert_eq!(paths.len(), 3);
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
    assert_eq!(&paths[0][1..37], &paths[0][40..], "{paths:?}");
}

#[test]
fn extracted_path_is_used_unchanged() {
    let capture = CapturingServer::start();
    let text = format!(
        "target = '{}/v1'\n[variables]\nnext = '/orders/7?x=a%20b'\n\
         [[task]]\nname = 'a'\nget = '/a'\nextract = {{ next = {{ header = 'location', default = '{0}/o/8' }} }}\n\
         [[task]]\nname = 'b'\nget = '{{{{ next }}}}'",
        capture.url
    );
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 1);
    let received = capture.take();
    assert!(received[1].starts_with("GET /o/8 HTTP/1.1"), "{}", received[1]);
}

#[test]
fn line_break_in_a_header_value_is_not_sent() {
    let capture = CapturingServer::start();
    let text = format!(
        "target = '{}'\n[[data]]\nname = 'd'\nfile = 'd.jsonl'\n\
         [[task]]\nname = 'a'\nget = '/'\nheaders = {{ x = '{{{{ d.v }}}}' }}",
        capture.url
    );
    let mut files = MemoryFiles(BTreeMap::from([("d.jsonl", "{\"v\":\"a\\r\\nX-Evil: 1\"}")]));
    let scenario = Scenario::parse("x.toml", &text, &mut files, ScenarioOverrides::default()).unwrap();
    let (record, _) = run(&scenario, 1);
    assert_eq!(record.lines(squall_metrics::MetricKind::Request), ["a: BAD_REQUEST×1"]);
    assert!(capture.take().is_empty());
}

fn from_url(request: UrlRequest, overrides: ScenarioOverrides) -> (Scenario, String) {
    let capture = CapturingServer::start();
    let request = UrlRequest { url: request.url.replace("HOST", capture.url.trim_start_matches("http://")), ..request };
    let scenario = Scenario::from_url(request, &mut MemoryFiles::default(), overrides);
    let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
    run(&scenario, 1);
    (scenario, capture.take().remove(0))
}

fn flag(name: &str, value: &str) -> Sourced<String> {
    Sourced::from_flag(name, value)
}

#[test]
fn url_becomes_a_scenario_of_one_request() {
    let request = UrlRequest { url: "HOST/api/products?page=2".to_owned(), ..UrlRequest::default() };
    let (scenario, text) = from_url(request, ScenarioOverrides::default());
    assert!(text.starts_with("GET /api/products?page=2 HTTP/1.1"), "{text}");
    assert_eq!(scenario.plan.tasks[0].name, "GET /api/products");
    assert!(scenario.plan.target.starts_with("http://127.0.0.1:"), "{}", scenario.plan.target);
}

#[test]
fn url_flags_set_method_query_body_and_checks() {
    let request = UrlRequest {
        url: "http://HOST/p".to_owned(),
        query: vec![flag("--query", "q=a b")],
        json: Some(flag("--json", "{\"a\":{\"b\":1}}")),
        ..UrlRequest::default()
    };
    let mut overrides = ScenarioOverrides::default();
    overrides.http.headers.push((flag("--header", "X-A"), flag("--header", "b")));
    overrides.http.basic = Some(flag("--basic", "ann:pass"));
    let (_, text) = from_url(request, overrides);
    assert!(text.starts_with("POST /p?q=a%20b HTTP/1.1"), "{text}");
    for part in ["X-A: b\r\n", "Basic YW5uOnBhc3M=\r\n", "Content-Type: application/json\r\n", "{\"a\":{\"b\":1}}"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn user_number_stays_a_number_in_json() {
    let capture = CapturingServer::start();
    let text = format!(
        "target = '{}'\n[variables]\nn = '{{{{ random(4, 4) }}}}'\ns = 'x{{{{ n }}}}'\ncount = 1\n\
         [[task]]\nname = 'x'\npost = '/'\njson = ['{{{{ n }}}}', '{{{{ s }}}}', '{{{{ count }}}}']\n\
         extract = {{ count = {{ header = 'no', default = 'none' }} }}",
        capture.url
    );
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 2);
    let received = capture.take();
    assert!(received[0].ends_with(r#"[4,"x4",1]"#), "{}", received[0]);
    assert!(received[1].ends_with(r#"[4,"x4","none"]"#), "{}", received[1]);
}

#[test]
fn url_credentials_are_sent_and_not_shown() {
    let request = UrlRequest { url: "http://ann:pass@HOST/p".to_owned(), ..UrlRequest::default() };
    let (scenario, text) = from_url(request, ScenarioOverrides::default());
    assert!(text.contains("Authorization: Basic YW5uOnBhc3M=\r\n"), "{text}");
    let shown = format!("{} {:?}", scenario.describe(), scenario.plan);
    assert!(!shown.contains("pass") && !shown.contains("ann"), "{shown}");
    let target = "target = 'http://ann:pass@h/base'\n[[task]]\nname = 'x'\nget = '/p'";
    let plan =
        Scenario::parse("x.toml", target, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap().plan;
    assert_eq!(plan.target, "http://h/base");
}

/// The request lines of user `number` in the iterations `numbers`.
fn asked(load: &str, number: UserIdentity, numbers: &[u64]) -> BTreeMap<u64, String> {
    let capture = CapturingServer::start();
    let request = "get = '/{{ random(1, 1000000) }}/{{ random_string(8) }}/{{ choice(1, 2, 3, 4, 5) }}?{{ uuid() }}'";
    let text = format!("target = '{}'\n{load}\n[[task]]\nname = 'x'\n{request}", capture.url);
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let mut user = scenario.driver().thread(recorder).expect("a sound scenario").user(number);
        for &number in numbers {
            let now = Instant::now();
            user.iterate(Iteration { number, task: TaskIndex(0), intended: now, started: now }).await;
        }
    });
    let lines = capture.take();
    let path = |text: &String| text.split(' ').nth(1).expect("a request line").to_owned();
    numbers.iter().copied().zip(lines.iter().map(path)).collect()
}

/// An iteration sends the same with every user and after any other iteration, so that a seed repeats a
/// run.
#[test]
fn random_values_depend_on_seed_and_iteration_number() {
    let load = "seed = 5\nload = { rate = 10, for = '1s' }";
    let (one, other) = (UserIdentity { number: 1, seed: 11 }, UserIdentity { number: 2, seed: 22 });
    let drawn = asked(load, one, &[0, 1, 2, 3]);
    assert_eq!(drawn, asked(load, other, &[3, 1, 0, 2]));
    assert_eq!(drawn.values().collect::<HashSet<_>>().len(), 4, "{drawn:?}");
    assert_ne!(drawn, asked(&load.replace('5', "6"), one, &[0, 1, 2, 3]));
    // In a closed model every user numbers its own iterations.
    let load = "seed = 5\nload = { users = 2, for = '1s' }";
    assert_eq!(asked(load, one, &[0, 1, 2]), asked(load, one, &[2, 1, 0]));
    assert_ne!(asked(load, one, &[0, 1]), asked(load, other, &[0, 1]));
}

#[test]
fn uuids_repeat_only_with_a_seed() {
    let load = "load = { rate = 10, for = '1s' }";
    let number = UserIdentity { number: 1, seed: 11 };
    let parts = |load: &str| {
        let path = asked(load, number, &[0]).remove(&0).expect("one request");
        path.split_once('?').map(|(rest, uuid)| (rest.to_owned(), uuid.to_owned())).expect("a query")
    };
    let (one, other) = (parts(load), parts(load));
    assert_eq!(one.0, other.0);
    assert_ne!(one.1, other.1, "the second run would collide with the first");
    assert_eq!(parts(&format!("seed = 5\n{load}")), parts(&format!("seed = 5\n{load}")));
}

#[test]
fn url_scheme_is_case_insensitive() {
    let capture = CapturingServer::start();
    let url = capture.url.replace("http", "HTTP");
    let text = format!("[[task]]\nname = 'x'\nget = '{url}/p'");
    let scenario = Scenario::parse("x.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap();
    run(&scenario, 1);
    assert!(capture.take()[0].starts_with("GET /p HTTP/1.1"));
}

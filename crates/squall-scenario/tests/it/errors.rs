//! Rejected scenarios and their messages. Each row has one mistake; the snapshots show whole messages.

use proptest::prelude::*;
use squall_scenario::{NoFiles, RawHttp, RawLoad, Scenario, ScenarioErrors, ScenarioOverrides, Sourced, UrlRequest};
use std::collections::BTreeMap;

use crate::harness::MemoryFiles;

fn parse(text: &str) -> Result<Scenario, ScenarioErrors> {
    Scenario::parse("shop.toml", text, &mut NoFiles, ScenarioOverrides::default())
}

/// A scenario whose only mistake is in `more`. `at` is the problem's line and column, `message` a part of
/// its text or hint.
#[track_caller]
fn reject(more: &str, at: (usize, usize), message: &str) {
    reject_whole(&format!("target = 'http://h'\n[[task]]\nname = 'x'\nget = '/'\n{more}"), at, message);
}

#[track_caller]
fn reject_whole(text: &str, at: (usize, usize), message: &str) {
    let errors = parse(text).expect_err(text);
    let [problem] = errors.problems.as_slice() else { panic!("one problem, not\n{errors}") };
    let said = format!("{} / {}", problem.message, problem.hint.as_deref().unwrap_or_default());
    assert!(said.contains(message), "{said}");
    assert_eq!((problem.line, problem.column), at, "{errors}");
}

#[test]
fn unknown_keys_and_wrong_types_are_rejected() {
    reject("wieght = 5", (5, 1), "unknown key `wieght` in [[task]] / did you mean `weight`?");
    reject("zzz = 5", (5, 1), "there are basic, bearer, body");
    reject("weight = 'five'", (5, 10), "`weight` must be a number, not a string");
    reject("headers = 5", (5, 11), "`headers` must be a table of names and values, not an integer");
    reject("expect = { statuss = 200 }", (5, 12), "did you mean `status`?");
    reject("[lod]", (5, 2), "unknown key `lod` in a scenario / did you mean `load`?");
    reject("[load]\nramp-up = 1", (6, 1), "did you mean `ramp_up`?");
    reject("[http]\nkeepalive = true", (6, 1), "did you mean `keep_alive`?");
    reject_whole("[task]\nname = 'x'\nget = 'http://h/'", (1, 1), "write [[task]]");
    reject_whole("a = \nb = 1\n", (1, 5), "not valid TOML");
}

#[test]
fn empty_checks_and_unsendable_requests_are_rejected() {
    reject("expect = { status = [] }", (5, 21), "an empty list of statuses expects nothing");
    let text = "target = 'http://h'\n[[task]]\nname = 'x'\nget = \"/x\\r\\nX: y\"";
    reject_whole(text, (4, 7), "has a line break or another control character in it");
}

#[test]
fn invalid_tasks_are_rejected() {
    reject("weight = 0", (5, 10), "a weight of 0 is not possible / give a number above 0");
    reject("weight = -1.5", (5, 10), "a weight of -1.5 is not possible");
    reject("weight = 1e300", (5, 10), "a weight of 1e300 is not possible");
    reject("name = 'y'", (5, 1), "not valid TOML");
    reject("[[task]]\nname = \"a\\nb\"\nget = '/'", (6, 8), "line break");
    reject("weight = inf", (5, 10), "a weight of inf is not possible");
    reject("requires = ['y']", (5, 13), "there is no task `y`");
    reject("requires = 'x'", (5, 12), "`x` can never run");
    reject("every = '1x'", (5, 9), "`1x` is not a duration");
    reject("think = ['3s', '1s']", (5, 9), "ends before it begins");
    reject("timeout = 0", (5, 11), "a limit of 0");
    reject("[[task]]\nname = 'x'\nget = '/'", (6, 8), "there is already a task called `x`");
    reject("[[task]]\nname = 'y'", (5, 1), "the task `y` has no request");
    reject("[[task]]\nname = 'y'\n[[task.step]]\nname = 'a'", (7, 1), "the step `a` has no request");
    reject("[[task]]\nget = '/'", (5, 1), "a task needs a name");
    reject("[[task]]\nname = 'y'\nexpect = { status = 200 }", (5, 1), "there is no request here");
    reject("[[task.step]]\nget = '/'", (2, 1), "has a request and steps");
    reject("post = '/'", (5, 8), "a second request in one table");
    reject("url = '/'", (5, 7), "the request is given twice");
    reject_whole("target = 'http://h'", (0, 0), "the scenario has no task");
    reject_whole(
        "target = 'http://h'\n[[task]]\nname = 'f'\n[[task.step]]\nname = 'a'\nget = '/'\n[[task.step]]\nname = 'a'\nget = '/'",
        (8, 8),
        "`f` already has a step called `a`",
    );
}

/// Task `a/b` and step `b` of task `a` would be counted as one; `g:p99` could mean a task or a group.
#[test]
fn metric_name_with_two_meanings_is_rejected() {
    let flow = "[[task]]\nname = 'a'\n[[task.step]]\nname = 'b'\nget = '/'\n";
    reject(
        &format!("[[task]]\nname = 'a/b'\nget = '/'\n{flow}"),
        (11, 8),
        "both the task `a/b` and the step `b` of `a`",
    );
    reject(
        "[[on_start]]\nget = '/'\n[[task]]\nname = 'on_start/1'\nget = '/'",
        (5, 1),
        "and the step `1` of `on_start`",
    );
    reject("[[task]]\nname = 'x (redirect)'\nget = '/'", (6, 8), "the redirects of `x` and the task `x (redirect)`");
    reject("[[task]]\nname = 'y'\ngroup = 'x'\nget = '/'", (7, 9), "the task `x` and the group `x`");
    reject("group = 'x'", (5, 9), "the task `x` and the group `x` / give one of them another name");
    reject(&format!("{flow}group = 'a'"), (10, 9), "the task `a` and the group `a`");
    let own = "target = 'http://h'\n[[task]]\nname = 'a'\ngroup = 'a'\n[[task.step]]\nget = '/'\ngroup = 'g'\n[[task.step]]\nget = '/'\ngroup = 'g'";
    parse(own).expect("a flow is its own group, and two steps share one");
}

#[test]
fn ineffective_settings_are_rejected() {
    reject("[http]\ninsecure = true\nca = '/etc/hosts'", (7, 6), "keep one of them");
    reject("[http]\nunix_socket = '/tmp/s'\nip = '4'", (7, 6), "a Unix socket has no address to choose");
    reject("[http]\nunix_socket = '/tmp/s'\nresolve = { a = '127.0.0.1' }", (7, 13), "a Unix socket has no address");
    reject("[http]\nproxy = 'http://p:1'\nresolve = { h = '127.0.0.1' }", (7, 13), "`h` is looked up by the proxy");
    reject("[http]\nbasic = 'a:b'\nheaders = { authorization = 'x' }", (6, 9), "an Authorization header and a login");
    parse("[http]\nproxy = 'http://p:1'\nresolve = { p = '127.0.0.1' }\n[[task]]\nname = 'x'\nget = 'http://h/'")
        .expect("the proxy's own address may be given");
}

/// For example, `--unix-socket` works on a file with a proxy.
#[test]
fn flag_drops_file_settings_that_it_makes_ineffective() {
    let flag = |value: &str| Some(Sourced::from_flag("--flag", value));
    let name = |name: &str| Sourced::from_flag("--flag", name);
    let on = Some(Sourced::from_flag("--insecure", true));
    for (file, http) in [
        ("proxy = 'http://p:1'\nip = '4'", RawHttp { unix_socket: flag("/tmp/s"), ..RawHttp::default() }),
        ("unix_socket = '/tmp/s'", RawHttp { ip: flag("4"), ..RawHttp::default() }),
        ("ca = '/dev/null'", RawHttp { insecure: on, ..RawHttp::default() }),
        ("headers = { authorization = 'x' }", RawHttp { basic: flag("a:b"), ..RawHttp::default() }),
        ("bearer = 'x'", RawHttp { headers: vec![(name("Authorization"), name("y"))], ..RawHttp::default() }),
    ] {
        let text = format!("[http]\n{file}\n[[task]]\nname = 'x'\nget = 'http://127.0.0.1/'");
        let overrides = ScenarioOverrides { http, ..ScenarioOverrides::default() };
        Scenario::parse("shop.toml", &text, &mut NoFiles, overrides)
            .unwrap_or_else(|errors| panic!("{file}: {errors}"));
    }
}

#[test]
fn circular_requires_are_rejected() {
    let text = "target = 'http://h'\n[[task]]\nname = 'a'\nget = '/'\nrequires = ['b']\n\
                [[task]]\nname = 'b'\nget = '/'\nrequires = ['a']\n[[task]]\nname = 'c'\nget = '/'\nrequires = ['a']";
    let errors = parse(text).unwrap_err();
    let lines: Vec<usize> = errors.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [5, 9], "only those in the circle are to blame\n{errors}");
}

#[test]
fn invalid_loads_are_rejected() {
    reject("[load]\nrate = 0", (6, 8), "`0` is not a rate");
    reject("[load]\nrate = -5", (6, 8), "`-5` is not a rate");
    reject("[load]\nrate = '5/x'", (6, 8), "`5/x` is not a rate");
    reject("[load]\nrate = 1e300", (6, 8), "more than Squall can count");
    reject("[load]\nusers = 0", (6, 9), "`0` is not a whole number of 1 or more");
    reject("[load]\nusers = 1.5", (6, 9), "whole number");
    reject("[load]\nrate = 5\nusers = 5", (7, 9), "both `rate` and `users`");
    reject("[load]\nramp_up = '31s'", (6, 11), "longer than the run of 30s");
    reject("[load]\nfor = '10s'\nwarm_up = '10s'", (7, 11), "leaves nothing of a run of 10s");
    reject("[load]\nfor = '-1s'", (6, 7), "is not a duration");
    reject("[load]\nfor = 0", (6, 7), "no duration");
    reject("[load]\nfor = '99999999h'", (6, 7), "longer than ten years");
    reject("[load]\nrequests = 0", (6, 12), "whole number");
    reject("[load]\nrate = 5\npause = '1s'", (7, 9), "`pause` does not go with a rate");
    reject("[load]\narrivals = 'poisson'", (6, 12), "`arrivals` does not go with users");
    reject("[load]\nrate = 1\narrivals = 'x'", (7, 12), "unknown arrivals `x`");
    reject("[load]\nstages = '10s'", (6, 10), "`10s` is not a stage");
    reject("[load]\nstages = '10s:0'", (6, 10), "never rises above 0");
    reject("[load]\nstages = '10s:5'\nfor = 5", (7, 7), "both `stages` and `for`");
    reject("[load]\nprofile = 'sawtooth'", (6, 11), "unknown profile `sawtooth`");
    reject("[load]\nprofile = 'spike'\nrequests = 5", (6, 11), "needs to know how long the run lasts");
    reject("[load]\nprofile = 'spike'\nramp_up = 5", (7, 11), "does not go with profile `spike`");
    reject("[load]\nsteps = 3", (6, 9), "`steps` needs profile `step`");
    reject("[load]\nthresholds = ['p99<5']", (6, 15), "has no unit");
    reject("[load]\nthresholds = ['y:p99<5s']", (6, 15), "there is no metric `y`");
}

#[test]
fn invalid_requests_are_rejected() {
    reject("expect = { status = 99 }", (5, 21), "`99` is not a status");
    reject("expect = { status = '6xx' }", (5, 21), "`6xx` is not a status");
    reject("expect = { body_matches = '(' }", (5, 27), "bad regular expression: unclosed group");
    reject("expect = { json = { '$.[' = 1 } }", (5, 24), "bad JSONPath");
    reject("expect = { max_ms = 0 }", (5, 21), "above 0");
    reject("extract = { t = '' }", (5, 17), "bad JSONPath");
    reject("extract = { t = { json = '$', header = 'a' } }", (5, 17), "exactly one source");
    reject("extract = { t = { regex = 'a(b)', group = 2 } }", (5, 43), "the pattern has no group 2");
    reject("extract = { '5' = '$.a' }", (5, 13), "`5` cannot be a variable's name");
    reject("body = 'a'\njson = {}", (5, 8), "two bodies");
    reject("expect = { json = { '$.a' = { contains = 1 } } }", (5, 31), "there are count, equals, exists");
    reject("expect = { json = { '$[' = 1 } }", (5, 23), "bad JSONPath: it cannot be read from here on");
    reject("headers = { content-length = 5 }", (5, 13), "Content-Length cannot be set");
    reject("headers = { Host = 'a', host = 'b' }", (5, 25), "one Host");
    let tls = "target = 'https://h'\n[http]\nserver_name = 'bad name'\n[[task]]\nname = 'x'\nget = '/'";
    reject_whole(tls, (3, 15), "is not a valid TLS server name");
    reject("[http]\nserver_name = 'shop'", (6, 15), "no request goes to https://");
    reject_whole("target = 'http://h:0'\n[[task]]\nname = 'x'\nget = '/'", (4, 7), "port 0");
    reject_whole("target = 'http://[::1]'\n[http]\nip = 4\n[[task]]\nname = 'x'\nget = '/'", (6, 7), "IPv4 only");
    reject("body_file = 'no.bin'", (5, 13), "cannot read no.bin");
    reject("headers = { 'a b' = 'c' }", (5, 13), "is not a valid header name");
    reject("headers = { a = \"b\\nc\" }", (5, 13), "line break");
    reject("basic = 'a:b'\nbearer = 'c'", (6, 10), "both `basic` and `bearer`");
    reject_whole("[[task]]\nname = 'x'\nget = '/'", (0, 0), "there is no target");
    reject_whole(
        "target = 'http://h'\n[http]\nunix_socket = '/s'\nproxy = 'http://p:1'\n[[task]]\nname = 'x'\nget = '/'",
        (4, 9),
        "both a proxy and a Unix socket",
    );
    reject_whole("target = 'ftp://h'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "does not begin with http://");
    reject_whole("target = 'h:80'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "http://h:80");
    reject_whole("target = 'http://'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "is not a URL");
    reject_whole("target = 'http://h'\n[[task]]\nname = 'x'\nget = 'api'", (4, 7), "begin it with / or http://");
    reject_whole("[[task]]\nname = 'x'\nget = 'http://h{{ user() }}/'", (3, 7), "host of a request cannot change");
    reject_whole("target = 'http://h'\n[[task]]\nname = 'x'\nmethod = 'a b'\nurl = '/'", (4, 10), "is not a method");
}

#[test]
fn invalid_templates_are_rejected() {
    reject("body = 'a {{ b'", (5, 11), "`{{` is not closed");
    reject("body = '{{ tokn }}'\nextract = { token = '$.a' }", (5, 12), "did you mean `token`?");
    reject("body = '{{ uuid }}'", (5, 12), "to call the function write uuid()");
    reject("body = '{{ rndom(1, 2) }}'", (5, 12), "did you mean `random`?");
    reject("body = '{{ random(5, 2) }}'", (5, 12), "write random(2, 5)");
    reject("body = '{{ random(1) }}'", (5, 12), "write random(1, 20)");
    reject("body = '{{ random(1, user()) }}'", (5, 12), "two whole numbers");
    reject("body = '{{ user.name }}'", (5, 12), "unknown data `user`");
    reject("body = '{{ env(\"NOPE\") }}'", (5, 12), "NOPE is not set");
    reject("json = { a = [1, 'x{{ y }}'] }", (5, 23), "unknown variable `y`");
    reject("[variables]\na = '{{ b }}'\nb = 1", (6, 9), "unknown variable `b`");
    reject("[variables]\na = [1]", (6, 5), "must be a string, a number");
}

/// The messages and hints of all problems of a URL run.
fn complaints(request: UrlRequest) -> Vec<String> {
    let errors = Scenario::from_url(request, &mut NoFiles, ScenarioOverrides::default()).expect_err("a expected");
    let said = |problem: &squall_scenario::ScenarioProblem| {
        format!("{} / {}", problem.message, problem.hint.as_deref().unwrap_or_default())
    };
    errors.problems.iter().map(said).collect()
}

#[test]
fn every_error_of_one_template_is_reported() {
    let text = "target = 'http://h'\n[[task]]\nname = 'x'\nget = '/'\n\
                body = '{{ }} {{ 1.2.3 }} {{ a }} {{ choice(b, c) }} {{ user() }} {{ d'";
    let errors = parse(text).unwrap_err();
    let at: Vec<usize> = errors.problems.iter().map(|problem| problem.column).collect();
    assert_eq!(at, [12, 18, 30, 45, 48, 67], "{errors}");
}

#[test]
fn bad_target_template_is_reported_once() {
    reject_whole("target = 'http://{{ x }}'\n[[task]]\nname = 'x'\nget = '/'", (1, 21), "unknown variable `x`");
}

#[test]
fn wrong_scheme_is_reported_once_with_a_hint() {
    let of_url = |url: &str| complaints(UrlRequest { url: url.to_owned(), ..UrlRequest::default() });
    assert_eq!(of_url("htp://x"), ["`htp://x` cannot be tested / did you mean http://x?"]);
    assert_eq!(of_url("ftp://x/y"), ["`ftp://x/y` cannot be tested / only http:// and https:// work"]);
    let of_target = |target: &str, hint: &str| {
        reject_whole(&format!("target = '{target}'\n[[task]]\nname = 'x'\nget = '/'"), (1, 10), hint);
    };
    of_target("ftp://x", "http:// or https:// / only http:// and https:// work");
    of_target("htps://x", "/ did you mean https://x?");
    of_target("localhost:80", "/ write http://localhost:80");
    reject_whole("[[task]]\nname = 'x'\nget = 'ws://h/'", (3, 7), "`ws://h/` cannot be tested");
}

#[test]
fn json_body_that_is_not_json_is_rejected() {
    let given = |json: &str| UrlRequest {
        url: "http://h/".to_owned(),
        json: Some(Sourced::from_flag("--body-json", json)),
        ..UrlRequest::default()
    };
    for bad in ["{bad", "", "{\"a\": }", "{\"a\": 1} x", "{\"a\": {{ user() }}", "[1,]"] {
        let said = complaints(given(bad));
        assert!(said.len() == 1 && said[0].starts_with(&format!("`{bad}` is not JSON")), "{bad}: {said:?}");
    }
    for good in
        ["{\"a\": 1}", "null", "{\"a\": {{ user() }}}", "\"{{ uuid() }}{{ user() }}\"", "[{{ user() }}{{ user() }}]"]
    {
        let made = Scenario::from_url(given(good), &mut NoFiles, ScenarioOverrides::default());
        assert!(made.is_ok(), "{good}: {}", made.unwrap_err());
    }
    assert_eq!(complaints(given("{\"a\": {{ nope }}}")).len(), 1, "what follows from another mistake is not another");
    reject("json = '{bad'", (5, 8), "`{bad` is not JSON");
}

#[test]
fn invalid_data_sources_are_rejected() {
    reject("[[data]]\nname = 'd'\nfile = 'no.csv'", (7, 8), "cannot read no.csv");
    reject("[[data]]\nname = 'd'\nfile = 'no.txt'", (7, 8), ".csv, .jsonl");
    let refused = |name: &'static str, text: &'static str, at: (usize, usize), message: &str| {
        let scenario = format!(
            "target = 'http://h'\n[[data]]\nname = 'd'\nfile = '{name}'\n[[task]]\nname = 'x'\nget = '/a/{{{{ d.a }}}}'"
        );
        let mut files = MemoryFiles(BTreeMap::from([(name, text)]));
        let errors = Scenario::parse("x.toml", &scenario, &mut files, ScenarioOverrides::default()).unwrap_err();
        let [problem] = errors.problems.as_slice() else { panic!("one problem, not\n{errors}") };
        assert!(problem.message.contains(message), "{errors}");
        assert_eq!((problem.line, problem.column), at, "{errors}");
    };
    refused("d.jsonl", "{\"a\":1}\n\n{\"b\":2}\n", (7, 14), "d.jsonl has no `a` in line 3");
    refused("d.csv", "a,b\n1,\"2\n", (4, 8), "d.csv: line 2: a quote is opened and never closed");
    let text = "target = 'http://h'\n[[data]]\nname = 'd'\nfile = 'd.csv'\norder = 'x'\n[[data]]\nname = 'e'\nfile = 'd.csv'\n\
                per = 'x'\n[[task]]\nname = 'x'\nget = '/'";
    let mut files = MemoryFiles(BTreeMap::from([("d.csv", "a\n1\n")]));
    let errors = Scenario::parse("x.toml", text, &mut files, ScenarioOverrides::default()).unwrap_err();
    let lines: Vec<usize> = errors.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [5, 9], "{errors}");
}

#[test]
fn all_errors_are_reported_at_once_with_their_lines() {
    let text = include_str!("broken.toml");
    insta::assert_snapshot!(parse(text).unwrap_err());
}

#[test]
fn wrong_load_level_hides_no_other_error() {
    let lines = |load: &str| {
        let text = format!("target = 'http://h'\n[[task]]\nname = 'x'\nget = '/'\n[load]\n{load}");
        let errors = parse(&text).unwrap_err();
        errors.problems.iter().map(|problem| problem.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("rate = -3\nstages = 'foo'"), [6, 7]);
    assert_eq!(lines("users = 0\nprofile = 'sawtooth'\nfor = 'x'"), [6, 7, 8]);
    assert_eq!(lines("rate = 'x'\nramp_up = '40s'"), [6, 7]);
    assert_eq!(lines("rate = 'x'\nfor = '5s'\nwarm_up = '6s'"), [6, 8]);
    assert_eq!(lines("for = '3s'\nramp_up = '9s'\nwarm_up = '4s'"), [7, 8]);
}

#[test]
fn error_in_data_or_body_hides_no_other_error() {
    let lines = |text: &str| {
        let mut files = MemoryFiles(BTreeMap::from([("users.csv", "name\nann\n")]));
        let errors = Scenario::parse("x.toml", text, &mut files, ScenarioOverrides::default()).unwrap_err();
        errors.problems.iter().map(|problem| problem.line).collect::<Vec<_>>()
    };
    let task = "target = 'http://h'\n[[task]]\nname = 'x'\n";
    let data = "[[data]]\nname = 'u'\nfile = 'users.csv'\norder = 'sideways'";
    assert_eq!(lines(&format!("{task}get = '/{{{{ u.nocolumn }}}}'\n{data}")), [4, 8]);
    assert_eq!(lines(&format!("{task}get = '/'\n[[data]]\nfile = 'none.csv'")), [5, 6]);
    assert_eq!(lines(&format!("{task}post = '/'\njson = '{{bad'\nbody = 'x'")), [5, 6]);
}

#[test]
fn command_line_errors_name_their_flag() {
    let flag = |name: &str, value: &str| Some(Sourced::from_flag(name, value));
    let overrides = ScenarioOverrides {
        load: RawLoad { rate: flag("--rate", "-1"), users: flag("--users", "5"), ..RawLoad::default() },
        thresholds: vec![Sourced::from_flag("--threshold", "p99<x")],
        flag_errors: vec![Sourced::from_flag("--header", "`bad` has no `:`")],
        ..ScenarioOverrides::default()
    };
    let request = UrlRequest { url: "http://[bad".to_owned(), ..UrlRequest::default() };
    let errors = Scenario::from_url(request, &mut NoFiles, overrides).unwrap_err();
    insta::assert_snapshot!(errors);
}

#[test]
fn malformed_urls_are_rejected() {
    for url in ["", "http://", "ftp://h/", "http://h:99999/", "http://a b/", "://", "http:///x"] {
        let request = UrlRequest { url: url.to_owned(), ..UrlRequest::default() };
        assert!(Scenario::from_url(request, &mut NoFiles, ScenarioOverrides::default()).is_err(), "{url:?}");
    }
}

#[test]
fn valid_scenario_is_described() {
    let text = include_str!("shop.toml");
    let mut files = MemoryFiles(BTreeMap::from([("users.csv", "name,password\nann,x\nbob,y\n")]));
    let scenario = Scenario::parse("shop.toml", text, &mut files, ScenarioOverrides::default()).unwrap();
    insta::assert_snapshot!(scenario.describe());
}

/// Words of the scenario format, so that random texts pass the first checks.
const WORDS: &[&str] = &[
    "[[task]]\n",
    "[load]\n",
    "[http]\n",
    "[variables]\n",
    "[[data]]\n",
    "[[on_start]]\n",
    "[[task.step]]\n",
    "name",
    "get",
    "rate",
    "users",
    "for",
    "stages",
    "expect",
    "extract",
    "json",
    "headers",
    "query",
    "target",
    " = ",
    "'http://h'",
    "'/'",
    "'{{ random(1, 2) }}'",
    "'{{",
    "}}'",
    "{ ",
    " }",
    "[",
    "]",
    ", ",
    "1",
    "-1",
    "1e400",
    "nan",
    "'x'",
    "\"\\u00e9\"",
    "\n",
    "\n",
    "'$.a'",
    "status",
    "weight",
    "every",
    "'1s'",
    "requires",
    "true",
    "1979-05-27",
    "'''",
    "{{ env('A') }}",
    "é",
    "\u{1F600}",
];

proptest! {
    #[test]
    fn random_text_never_panics(text in "\\PC*") {
        let _ = parse(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn random_scenario_fragments_never_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..40)) {
        let text = words.concat();
        let _ = parse(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn damaged_scenario_never_panics(at in 0usize..2000, length in 0usize..20, with in "\\PC{0,4}") {
        let text = include_str!("shop.toml");
        let cut = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let damaged = format!("{}{with}{}", &text[..cut(at)], &text[cut(at + length)..]);
        let _ = parse(&damaged).map_err(|errors| errors.to_string());
    }
}

/// Variables that double each other, `count` of them, beginning with `first`.
fn doubling_variables(first: &str, count: usize) -> String {
    let doubled = |n: usize| format!("v{} = '{{{{ v{n} }}}}{{{{ v{n} }}}}'\n", n + 1);
    format!("[variables]\nv0 = '{first}'\n{}", (0..count - 1).map(doubled).collect::<String>())
}

#[test]
fn variables_that_double_each_other_are_rejected_at_the_first_above_16_mib() {
    // v22 has 16 MiB exactly, in line 28; v23 is one line below.
    let message = "this text can become longer than 16 MiB / shorten the variables in it";
    reject(&doubling_variables("abcd", 40), (29, 7), message);
    reject(&doubling_variables("{{ random_string(4) }}", 40), (29, 7), message);
    reject(&doubling_variables("{{ choice(\"abcd\", \"x\") }}", 40), (29, 7), message);
}

#[test]
fn long_variable_used_in_many_places_is_rejected() {
    let long = doubling_variables("abcd", 21);
    let choice = format!("body = '{{{{ choice({}) }}}}'", vec!["v20"; 2000].join(", "));
    let accepted = format!("target = 'http://h'\n{long}[[task]]\nname = 'x'\npost = '/'\n{choice}");
    parse(&accepted).unwrap_or_else(|errors| panic!("only one of the options is sent:\n{errors}"));
    let form: String = (0..2000).map(|n| format!("f{n} = '{{{{ v20 }}}}'\n")).collect();
    let headers = "[http.headers]\nX-Long = '{{ v20 }}'\n";
    let tasks: String = (0..2000).map(|n| format!("[[task]]\nname = 'y{n}'\nget = '/'\n")).collect();
    for more in [format!("[[task]]\nname = 'y'\npost = '/'\n[task.form]\n{form}"), format!("{headers}{tasks}")] {
        let text = format!("target = 'http://h'\n{long}[[task]]\nname = 'x'\nget = '/'\n{more}");
        let errors = parse(&text).expect_err("the scenario is too large");
        let first = &errors.problems[0].message;
        assert!(first.contains("the texts of the scenario have more than 128 MiB"), "{first}");
    }
}

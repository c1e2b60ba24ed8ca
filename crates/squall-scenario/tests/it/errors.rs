//! What is refused and how it is said. Each row is one mistake; the snapshots show whole messages as people see them.

use proptest::prelude::*;
use squall_scenario::{NoFiles, RawHttp, RawLoad, Scenario, ScenarioErrors, ScenarioOverrides, Sourced, UrlRequest};
use std::collections::BTreeMap;

use crate::harness::Memory;

fn parse(text: &str) -> Result<Scenario, ScenarioErrors> {
    Scenario::parse("shop.toml", text, &mut NoFiles, ScenarioOverrides::default())
}

/// A scenario that is sound but for `more`; `at` is the line and column of the one problem, `message` part of it or of its hint.
#[track_caller]
fn refuse(more: &str, at: (usize, usize), message: &str) {
    refuse_whole(&format!("target = 'http://h'\n[[task]]\nname = 'x'\nget = '/'\n{more}"), at, message);
}

#[track_caller]
fn refuse_whole(text: &str, at: (usize, usize), message: &str) {
    let errors = parse(text).expect_err(text);
    let [problem] = errors.problems.as_slice() else { panic!("one problem, not\n{errors}") };
    let said = format!("{} / {}", problem.message, problem.hint.as_deref().unwrap_or_default());
    assert!(said.contains(message), "{said}");
    assert_eq!((problem.line, problem.column), at, "{errors}");
}

#[test]
fn unknown_keys_and_wrong_types_are_rejected() {
    refuse("wieght = 5", (5, 1), "unknown key `wieght` in [[task]] / did you mean `weight`?");
    refuse("zzz = 5", (5, 1), "there are basic, bearer, body");
    refuse("weight = 'five'", (5, 10), "`weight` must be a number, not a string");
    refuse("headers = 5", (5, 11), "`headers` must be a table of names and values, not an integer");
    refuse("expect = { statuss = 200 }", (5, 12), "did you mean `status`?");
    refuse("[lod]", (5, 2), "unknown key `lod` in a scenario / did you mean `load`?");
    refuse("[load]\nramp-up = 1", (6, 1), "did you mean `ramp_up`?");
    refuse("[http]\nkeepalive = true", (6, 1), "did you mean `keep_alive`?");
    refuse_whole("[task]\nname = 'x'\nget = 'http://h/'", (1, 1), "write [[task]]");
    refuse_whole("a = \nb = 1\n", (1, 5), "not valid TOML");
}

#[test]
fn empty_checks_and_unsendable_requests_are_rejected() {
    refuse("expect = { status = [] }", (5, 21), "an empty list of statuses expects nothing");
    let text = "target = 'http://h'\n[[task]]\nname = 'x'\nget = \"/x\\r\\nX: y\"";
    refuse_whole(text, (4, 7), "has a line break or another control character in it");
}

#[test]
fn invalid_tasks_are_rejected() {
    refuse("weight = 0", (5, 10), "a weight of 0 is not possible / give a number above 0");
    refuse("weight = -1.5", (5, 10), "a weight of -1.5 is not possible");
    refuse("weight = 1e300", (5, 10), "a weight of 1e300 is not possible");
    refuse("name = 'y'", (5, 1), "not valid TOML");
    refuse("[[task]]\nname = \"a\\nb\"\nget = '/'", (6, 8), "line break");
    refuse("weight = inf", (5, 10), "a weight of inf is not possible");
    refuse("requires = ['y']", (5, 13), "there is no task `y`");
    refuse("requires = 'x'", (5, 12), "`x` can never run");
    refuse("every = '1x'", (5, 9), "`1x` is not a duration");
    refuse("think = ['3s', '1s']", (5, 9), "ends before it begins");
    refuse("timeout = 0", (5, 11), "a limit of 0");
    refuse("[[task]]\nname = 'x'\nget = '/'", (6, 8), "there is already a task called `x`");
    refuse("[[task]]\nname = 'y'", (5, 1), "the task `y` has no request");
    refuse("[[task]]\nname = 'y'\n[[task.step]]\nname = 'a'", (7, 1), "the step `a` has no request");
    refuse("[[task]]\nget = '/'", (5, 1), "a task needs a name");
    refuse("[[task]]\nname = 'y'\nexpect = { status = 200 }", (5, 1), "there is no request here");
    refuse("[[task.step]]\nget = '/'", (2, 1), "has a request and steps");
    refuse("post = '/'", (5, 8), "a second request in one table");
    refuse("url = '/'", (5, 7), "the request is given twice");
    refuse_whole("target = 'http://h'", (0, 0), "the scenario has no task");
    refuse_whole(
        "target = 'http://h'\n[[task]]\nname = 'f'\n[[task.step]]\nname = 'a'\nget = '/'\n[[task.step]]\nname = 'a'\nget = '/'",
        (8, 8),
        "`f` already has a step called `a`",
    );
}

/// Task `a/b` and step `b` of task `a` were counted as one; `g:p99` could mean a task or a group.
#[test]
fn metric_name_with_two_meanings_is_rejected() {
    let flow = "[[task]]\nname = 'a'\n[[task.step]]\nname = 'b'\nget = '/'\n";
    refuse(
        &format!("[[task]]\nname = 'a/b'\nget = '/'\n{flow}"),
        (11, 8),
        "both the task `a/b` and the step `b` of `a`",
    );
    refuse(
        "[[on_start]]\nget = '/'\n[[task]]\nname = 'on_start/1'\nget = '/'",
        (5, 1),
        "and the step `1` of `on_start`",
    );
    refuse("[[task]]\nname = 'x (redirect)'\nget = '/'", (6, 8), "the redirects of `x` and the task `x (redirect)`");
    refuse("[[task]]\nname = 'y'\ngroup = 'x'\nget = '/'", (7, 9), "the task `x` and the group `x`");
    refuse("group = 'x'", (5, 9), "the task `x` and the group `x` / give one of them another name");
    refuse(&format!("{flow}group = 'a'"), (10, 9), "the task `a` and the group `a`");
    let own = "target = 'http://h'\n[[task]]\nname = 'a'\ngroup = 'a'\n[[task.step]]\nget = '/'\ngroup = 'g'\n[[task.step]]\nget = '/'\ngroup = 'g'";
    parse(own).expect("a flow is its own group, and two steps share one");
}

#[test]
fn ineffective_settings_are_rejected() {
    refuse("[http]\ninsecure = true\nca = '/dev/null'", (7, 6), "keep one of them");
    refuse("[http]\nunix_socket = '/tmp/s'\nip = '4'", (7, 6), "a Unix socket has no address to choose");
    refuse("[http]\nunix_socket = '/tmp/s'\nresolve = { a = '127.0.0.1' }", (7, 13), "a Unix socket has no address");
    refuse("[http]\nproxy = 'http://p:1'\nresolve = { h = '127.0.0.1' }", (7, 13), "`h` is looked up by the proxy");
    refuse("[http]\nbasic = 'a:b'\nheaders = { authorization = 'x' }", (6, 9), "an Authorization header and a login");
    parse("[http]\nproxy = 'http://p:1'\nresolve = { p = '127.0.0.1' }\n[[task]]\nname = 'x'\nget = 'http://h/'")
        .expect("the proxy's own address may be given");
}

/// `--unix-socket` works on a file with a proxy, and so on.
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
    refuse("[load]\nrate = 0", (6, 8), "`0` is not a rate");
    refuse("[load]\nrate = -5", (6, 8), "`-5` is not a rate");
    refuse("[load]\nrate = '5/x'", (6, 8), "`5/x` is not a rate");
    refuse("[load]\nrate = 1e300", (6, 8), "more than Squall can count");
    refuse("[load]\nusers = 0", (6, 9), "`0` is not a whole number of 1 or more");
    refuse("[load]\nusers = 1.5", (6, 9), "whole number");
    refuse("[load]\nrate = 5\nusers = 5", (7, 9), "both `rate` and `users`");
    refuse("[load]\nramp_up = '31s'", (6, 11), "longer than the run of 30s");
    refuse("[load]\nfor = '10s'\nwarm_up = '10s'", (7, 11), "leaves nothing of a run of 10s");
    refuse("[load]\nfor = '-1s'", (6, 7), "is not a duration");
    refuse("[load]\nfor = 0", (6, 7), "no duration");
    refuse("[load]\nfor = '99999999h'", (6, 7), "longer than ten years");
    refuse("[load]\nrequests = 0", (6, 12), "whole number");
    refuse("[load]\nrate = 5\npause = '1s'", (7, 9), "`pause` does not go with a rate");
    refuse("[load]\narrivals = 'poisson'", (6, 12), "`arrivals` does not go with users");
    refuse("[load]\nrate = 1\narrivals = 'x'", (7, 12), "unknown arrivals `x`");
    refuse("[load]\nstages = '10s'", (6, 10), "`10s` is not a stage");
    refuse("[load]\nstages = '10s:0'", (6, 10), "never rises above 0");
    refuse("[load]\nstages = '10s:5'\nfor = 5", (7, 7), "both `stages` and `for`");
    refuse("[load]\nprofile = 'sawtooth'", (6, 11), "unknown profile `sawtooth`");
    refuse("[load]\nprofile = 'spike'\nrequests = 5", (6, 11), "needs to know how long the run lasts");
    refuse("[load]\nprofile = 'spike'\nramp_up = 5", (7, 11), "does not go with profile `spike`");
    refuse("[load]\nsteps = 3", (6, 9), "`steps` needs profile `step`");
    refuse("[load]\nthresholds = ['p99<5']", (6, 15), "has no unit");
    refuse("[load]\nthresholds = ['y:p99<5s']", (6, 15), "there is no metric `y`");
}

#[test]
fn invalid_requests_are_rejected() {
    refuse("expect = { status = 99 }", (5, 21), "`99` is not a status");
    refuse("expect = { status = '6xx' }", (5, 21), "`6xx` is not a status");
    refuse("expect = { body_matches = '(' }", (5, 27), "bad regular expression: unclosed group");
    refuse("expect = { json = { '$.[' = 1 } }", (5, 24), "bad JSONPath");
    refuse("expect = { max_ms = 0 }", (5, 21), "above 0");
    refuse("extract = { t = '' }", (5, 17), "bad JSONPath");
    refuse("extract = { t = { json = '$', header = 'a' } }", (5, 17), "exactly one source");
    refuse("extract = { t = { regex = 'a(b)', group = 2 } }", (5, 43), "the pattern has no group 2");
    refuse("extract = { '5' = '$.a' }", (5, 13), "`5` cannot be a variable's name");
    refuse("body = 'a'\njson = {}", (5, 8), "two bodies");
    refuse("expect = { json = { '$.a' = { contains = 1 } } }", (5, 31), "there are count, equals, exists");
    refuse("expect = { json = { '$[' = 1 } }", (5, 23), "bad JSONPath: it makes no sense from here on");
    refuse("headers = { content-length = 5 }", (5, 13), "Content-Length cannot be set");
    refuse("headers = { Host = 'a', host = 'b' }", (5, 25), "one Host");
    let tls = "target = 'https://h'\n[http]\nserver_name = 'bad name'\n[[task]]\nname = 'x'\nget = '/'";
    refuse_whole(tls, (3, 15), "is not a valid TLS server name");
    // Found by a reader: it was ignored without a word.
    refuse("[http]\nserver_name = 'shop'", (6, 15), "no request goes to https://");
    refuse_whole("target = 'http://h:0'\n[[task]]\nname = 'x'\nget = '/'", (4, 7), "port 0");
    refuse_whole("target = 'http://[::1]'\n[http]\nip = 4\n[[task]]\nname = 'x'\nget = '/'", (6, 7), "IPv4 only");
    refuse("body_file = 'no.bin'", (5, 13), "cannot read no.bin");
    refuse("headers = { 'a b' = 'c' }", (5, 13), "is not a valid header name");
    refuse("headers = { a = \"b\\nc\" }", (5, 13), "line break");
    refuse("basic = 'a:b'\nbearer = 'c'", (6, 10), "both `basic` and `bearer`");
    refuse_whole("[[task]]\nname = 'x'\nget = '/'", (0, 0), "there is no target");
    refuse_whole(
        "target = 'http://h'\n[http]\nunix_socket = '/s'\nproxy = 'http://p:1'\n[[task]]\nname = 'x'\nget = '/'",
        (4, 9),
        "both a proxy and a Unix socket",
    );
    refuse_whole("target = 'ftp://h'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "does not begin with http://");
    refuse_whole("target = 'h:80'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "http://h:80");
    refuse_whole("target = 'http://'\n[[task]]\nname = 'x'\nget = '/'", (1, 10), "is not a URL");
    refuse_whole("target = 'http://h'\n[[task]]\nname = 'x'\nget = 'api'", (4, 7), "begin it with / or http://");
    refuse_whole("[[task]]\nname = 'x'\nget = 'http://h{{ user() }}/'", (3, 7), "host of a request cannot change");
    refuse_whole("target = 'http://h'\n[[task]]\nname = 'x'\nmethod = 'a b'\nurl = '/'", (4, 10), "is not a method");
}

#[test]
fn invalid_templates_are_rejected() {
    refuse("body = 'a {{ b'", (5, 11), "`{{` is not closed");
    refuse("body = '{{ tokn }}'\nextract = { token = '$.a' }", (5, 12), "did you mean `token`?");
    refuse("body = '{{ uuid }}'", (5, 12), "to call the function write uuid()");
    refuse("body = '{{ rndom(1, 2) }}'", (5, 12), "did you mean `random`?");
    refuse("body = '{{ random(5, 2) }}'", (5, 12), "write random(2, 5)");
    refuse("body = '{{ random(1) }}'", (5, 12), "write random(1, 20)");
    refuse("body = '{{ random(1, user()) }}'", (5, 12), "two whole numbers");
    refuse("body = '{{ user.name }}'", (5, 12), "unknown data `user`");
    refuse("body = '{{ env(\"NOPE\") }}'", (5, 12), "NOPE is not set");
    refuse("json = { a = [1, 'x{{ y }}'] }", (5, 23), "unknown variable `y`");
    refuse("[variables]\na = '{{ b }}'\nb = 1", (6, 9), "unknown variable `b`");
    refuse("[variables]\na = [1]", (6, 5), "must be a string, a number");
}

/// The messages and hints of everything that is wrong with a URL run.
fn complaints(request: UrlRequest) -> Vec<String> {
    let errors = Scenario::from_url(request, &mut NoFiles, ScenarioOverrides::default()).expect_err("a refusal");
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
    refuse_whole("target = 'http://{{ x }}'\n[[task]]\nname = 'x'\nget = '/'", (1, 21), "unknown variable `x`");
}

#[test]
fn wrong_scheme_is_reported_once_with_a_hint() {
    let of_url = |url: &str| complaints(UrlRequest { url: url.to_owned(), ..UrlRequest::default() });
    assert_eq!(of_url("htp://x"), ["`htp://x` cannot be tested / did you mean http://x?"]);
    assert_eq!(of_url("ftp://x/y"), ["`ftp://x/y` cannot be tested / only http:// and https:// are spoken"]);
    let of_target = |target: &str, hint: &str| {
        refuse_whole(&format!("target = '{target}'\n[[task]]\nname = 'x'\nget = '/'"), (1, 10), hint);
    };
    of_target("ftp://x", "http:// or https:// / only http:// and https:// are spoken");
    of_target("htps://x", "/ did you mean https://x?");
    of_target("localhost:80", "/ write http://localhost:80");
    refuse_whole("[[task]]\nname = 'x'\nget = 'ws://h/'", (3, 7), "`ws://h/` cannot be tested");
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
    refuse("json = '{bad'", (5, 8), "`{bad` is not JSON");
}

#[test]
fn invalid_data_sources_are_rejected() {
    refuse("[[data]]\nname = 'd'\nfile = 'no.csv'", (7, 8), "cannot read no.csv");
    refuse("[[data]]\nname = 'd'\nfile = 'no.txt'", (7, 8), ".csv, .jsonl");
    let refused = |name: &'static str, text: &'static str, at: (usize, usize), message: &str| {
        let scenario = format!(
            "target = 'http://h'\n[[data]]\nname = 'd'\nfile = '{name}'\n[[task]]\nname = 'x'\nget = '/a/{{{{ d.a }}}}'"
        );
        let mut files = Memory(BTreeMap::from([(name, text)]));
        let errors = Scenario::parse("x.toml", &scenario, &mut files, ScenarioOverrides::default()).unwrap_err();
        let [problem] = errors.problems.as_slice() else { panic!("one problem, not\n{errors}") };
        assert!(problem.message.contains(message), "{errors}");
        assert_eq!((problem.line, problem.column), at, "{errors}");
    };
    refused("d.jsonl", "{\"a\":1}\n\n{\"b\":2}\n", (7, 14), "d.jsonl has no `a` in line 3");
    refused("d.csv", "a,b\n1,\"2\n", (4, 8), "d.csv: line 2: a quote is opened and never closed");
    let text = "target = 'http://h'\n[[data]]\nname = 'd'\nfile = 'd.csv'\norder = 'x'\n[[data]]\nname = 'e'\nfile = 'd.csv'\n\
                per = 'x'\n[[task]]\nname = 'x'\nget = '/'";
    let mut files = Memory(BTreeMap::from([("d.csv", "a\n1\n")]));
    let errors = Scenario::parse("x.toml", text, &mut files, ScenarioOverrides::default()).unwrap_err();
    let lines: Vec<usize> = errors.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [5, 9], "{errors}");
}

#[test]
fn all_errors_are_reported_at_once_with_their_lines() {
    let text = include_str!("broken.toml");
    insta::assert_snapshot!(parse(text).unwrap_err());
}

/// A wrong rate hid what was wrong with the shape of the load.
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

/// Found by an auditor: each of these kept quiet about the second.
#[test]
fn error_in_data_or_body_hides_no_other_error() {
    let lines = |text: &str| {
        let mut files = Memory(BTreeMap::from([("users.csv", "name\nann\n")]));
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
    let mut files = Memory(BTreeMap::from([("users.csv", "name,password\nann,x\nbob,y\n")]));
    let scenario = Scenario::parse("shop.toml", text, &mut files, ScenarioOverrides::default()).unwrap();
    insta::assert_snapshot!(scenario.describe());
}

/// Words that scenarios are made of, so that random texts get far.
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

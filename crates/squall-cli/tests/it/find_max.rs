//! `--find-max` on a server of known capacity: one request at a time, 10 ms each.

use crate::support::{RecordingServer, TestFolder, target};
use squall_testkit::scripted_server::refused_address;
use std::time::Duration;

#[test]
fn capacity_of_the_server_is_found() {
    let (server, folder) = (RecordingServer::start(Duration::from_millis(10)), TestFolder::new());
    let ended = folder.squall(&[
        "run",
        &server.url("/"),
        "--rate",
        "25",
        "--find-max",
        "p99<150ms",
        "--find-max-precision",
        "20%",
        "--find-max-probe",
        "2s",
    ]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    // On a busy machine the generator may be the limit; the output says so then.
    let outcome = ended.stdout.lines().last().expect("an outcome");
    let found =
        outcome.strip_prefix("highest rate that holds p99<150ms: ").inspect(|_| assert!(outcome.contains("± 20 %")));
    let held =
        found.or_else(|| outcome.contains("this generator was the limit").then_some(outcome)).expect(&ended.stdout);
    let rate: f64 = held.split("/s").next().unwrap().parse().expect("a rate");
    // The server handles just under 100/s; a busy machine makes it slower, never faster.
    assert!((1.0..110.0).contains(&rate), "{}", ended.stdout);
}

#[test]
fn threshold_that_no_rate_holds_exits_with_1() {
    let (server, folder) = (RecordingServer::start(Duration::from_millis(10)), TestFolder::new());
    // Half of this rate is below the lowest rate, so the search makes two probes and not six: a
    // probe of ten starts is long at low rates.
    let probe = ["--rate", "0.99", "--find-max", "p50<1ms", "--find-max-probe", "1s", "--json", "search.json"];
    let ended = folder.squall(&[&["run", &server.url("/")], &probe[..]].concat());
    // A generator that was too busy for a probe says nothing about the target.
    if ended.stdout.contains("does not count") {
        return;
    }
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    assert!(ended.stdout.contains("not even"), "{}", ended.stdout);
    let search = folder.json("search.json");
    assert_eq!(search["answer"]["kind"], "nothing_holds", "{search:#}");
    assert_eq!((&search["schema"], &search["exit_code"]), (&"squall.search/1".into(), &1.into()));
    let (requests, probes) = (server.paths().len() as u64, search["probes"].as_array().unwrap());
    assert_eq!(probes.len(), ended.stdout.lines().filter(|line| line.contains("  no: ")).count(), "{}", ended.stdout);
    assert!(probes.iter().all(|probe| probe["value"].as_f64().is_none_or(|value| value >= 1.0)), "{search:#}");
    // Half of each probe of one second is warm-up, which the server receives too.
    assert!(probes.iter().map(|probe| probe["requests"].as_u64().unwrap()).sum::<u64>() <= requests);
}

#[test]
fn unreachable_target_ends_the_search_with_3() {
    let url = format!("http://{}/", refused_address());
    let folder = TestFolder::new();
    let ended =
        folder.squall(&["run", &url, "--find-max", "p99<1s", "--find-max-probe", "1s", "--json", "search.json"]);
    assert_eq!(ended.code, 3, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("the target could not be reached"), "{}", ended.stderr);
    let search = folder.json("search.json");
    assert_eq!((&search["exit_code"], &search["answer"]["kind"]), (&3.into(), &"unknown".into()), "{search:#}");
}

/// The reason is the error threshold, and no lower rate is probed.
#[test]
fn target_that_always_fails_breaches_the_error_threshold() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/nothing");
    let ended = folder.squall(&["run", &url, "--find-max", "p99<50s", "--find-max-probe", "1s"]);
    assert!(!ended.stdout.contains("\nhighest rate"), "{}", ended.stdout);
    // A generator that was too busy for a probe says nothing about the target.
    if !ended.stdout.contains("does not count") {
        assert_eq!(ended.code, 1, "{}", ended.stdout);
        assert!(ended.stdout.contains("not even 50/s holds p99<50s: error_rate<1% was 100"), "{}", ended.stdout);
        assert_eq!(ended.stdout.lines().filter(|line| line.contains("  no: ")).count(), 2, "{}", ended.stdout);
    }
}

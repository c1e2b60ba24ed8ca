//! `--find-max` on a server whose capacity is known: one request at a time, 10 ms each.

use crate::support::{Desk, Notebook, target};
use squall_testkit::scripted_server::refused_address;
use std::time::Duration;

#[test]
fn the_capacity_is_found() {
    let (book, desk) = (Notebook::start(Duration::from_millis(10)), Desk::new());
    let ended = desk.squall(&[
        "run",
        &book.url("/"),
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
    // On a machine that is busy with other tests the generator may be the first to give in; then that is what is said.
    let answer = ended.stdout.lines().last().expect("an answer");
    let found =
        answer.strip_prefix("highest rate that holds p99<150ms: ").inspect(|_| assert!(answer.contains("± 20 %")));
    let held =
        found.or_else(|| answer.contains("this generator was the limit").then_some(answer)).expect(&ended.stdout);
    let rate: f64 = held.split("/s").next().unwrap().parse().expect("a rate");
    // The server can do just under 100/s; a busy machine makes it slower, never faster.
    assert!((1.0..110.0).contains(&rate), "{}", ended.stdout);
}

#[test]
fn a_promise_that_never_holds_is_said_so_with_1() {
    let (book, desk) = (Notebook::start(Duration::from_millis(10)), Desk::new());
    // Half of that is below what is tried, so that the probes are two and not six: one of ten starts lasts long at low rates.
    let probe = ["--rate", "0.99", "--find-max", "p50<1ms", "--find-max-probe", "1s", "--json", "search.json"];
    let ended = desk.squall(&[&["run", &book.url("/")], &probe[..]].concat());
    // A machine that was too busy for a probe says so, and nothing of the target.
    if ended.stdout.contains("does not count") {
        return;
    }
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    assert!(ended.stdout.contains("not even"), "{}", ended.stdout);
    let search = desk.json("search.json");
    assert_eq!(search["answer"]["kind"], "nothing_holds", "{search:#}");
    assert_eq!((&search["schema"], &search["exit_code"]), (&"squall.search/1".into(), &1.into()));
    let (requests, probes) = (book.paths().len() as u64, search["probes"].as_array().unwrap());
    assert_eq!(probes.len(), ended.stdout.lines().filter(|line| line.contains("  no: ")).count(), "{}", ended.stdout);
    assert!(probes.iter().all(|probe| probe["value"].as_f64().is_none_or(|value| value >= 1.0)), "{search:#}");
    // Half of each probe of a second is warm-up that the server saw too.
    assert!(probes.iter().map(|probe| probe["requests"].as_u64().unwrap()).sum::<u64>() <= requests);
}

#[test]
fn nobody_there_ends_the_search_at_once_with_3() {
    let url = format!("http://{}/", refused_address());
    let desk = Desk::new();
    let ended = desk.squall(&["run", &url, "--find-max", "p99<1s", "--find-max-probe", "1s", "--json", "search.json"]);
    assert_eq!(ended.code, 3, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("the target could not be reached"), "{}", ended.stderr);
    let search = desk.json("search.json");
    assert_eq!((&search["exit_code"], &search["answer"]["kind"]), (&3.into(), &"unknown".into()), "{search:#}");
}

/// A target that only fails: the promise about errors is the one that was broken, and lower rates are not worth a try.
#[test]
fn a_target_that_only_fails_is_not_blamed_for_its_latency() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/nothing");
    let ended = desk.squall(&["run", &url, "--find-max", "p99<50s", "--find-max-probe", "1s"]);
    assert!(!ended.stdout.contains("\nhighest rate"), "{}", ended.stdout);
    // A machine that was too busy for a probe says so, and nothing of the target.
    if !ended.stdout.contains("does not count") {
        assert_eq!(ended.code, 1, "{}", ended.stdout);
        assert!(ended.stdout.contains("not even 50/s holds p99<50s: error_rate<1% was 100"), "{}", ended.stdout);
        assert_eq!(ended.stdout.lines().filter(|line| line.contains("  no: ")).count(), 2, "{}", ended.stdout);
    }
}

//! Coordinated omission is visible: a server freezes for 2 s in a run of 10 s at 100/s.

use crate::support::{RunningProcess, TestFolder, number, section, target, wait_until};
use rustix::process::Signal;
use std::time::Duration;

const GUIDE: &str = include_str!("../../../../docs/guide.md");

#[test]
fn freeze_of_the_target_shows_in_the_response_time() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let load = ["--rate", "100", "--for", "10s", "--requests", "1000"];
    let running = folder.start(&[&["run", &url, "--quiet", "--json", "result.json"], &load[..]].concat());
    wait_until("three seconds of requests", || target.requests() >= 300);
    target.freeze(Duration::from_secs(2));
    assert_eq!(running.end().code, 0);
    let result = folder.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), 1000.0);
    let response = number(&result, "/latency_ms/response/p99");
    assert!((1700.0..5000.0).contains(&response), "{response} ms");
}

/// With four users only four requests were in flight, so the service time alone looks good. The guide's
/// commands show it; only the address differs.
#[test]
fn freeze_example_of_the_guide_shows_in_the_response_time_and_not_in_the_service_time() {
    let (target, folder) = (target(), TestFolder::new());
    let commands: Vec<String> = section(GUIDE, "## The built-in shop")
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .map(|command| command.replace("http://127.0.0.1:8089", &target.url("")))
        .collect();
    let [run, freeze] = &commands[..] else { panic!("{commands:?}") };
    // A busy machine may need longer than the run to make up for the freeze.
    let run = format!("exec {run} --allow-missing --json result.json");
    let running = RunningProcess::from_child(folder.shell(&run).spawn().expect("a shell"));
    wait_until("three seconds of requests", || target.requests() >= 300);
    let frozen = RunningProcess::from_child(folder.shell(freeze).spawn().expect("a shell")).end();
    assert_eq!((frozen.code, frozen.stdout.as_str()), (0, "{\"frozen_ms\":2000}"), "{frozen:?}");
    let ended = running.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = folder.json("result.json");
    let p99 = |time: &str| number(&result, &format!("/latency_ms/{time}/p99"));
    assert!((1500.0..5000.0).contains(&p99("response")), "{}", ended.stdout);
    assert!(p99("service") < p99("response") / 4.0, "{}", ended.stdout);
}

#[test]
fn wait_for_a_free_user_counts_in_groups_and_tasks() {
    let (target, folder) = (target(), TestFolder::new());
    folder.write(
        "steps.toml",
        "[load]\nrate = '40/s'\n[[task]]\nname = 'buy'\n\
         [[task.step]]\nname = 'cart'\nget = '/delay/100'\ngroup = 'checkout'\n\
         [[task.step]]\nname = 'pay'\nget = '/delay/50'\ngroup = 'checkout'\n",
    );
    let (_, result) =
        folder.result(&["steps.toml", "--target", &target.url(""), "--requests", "10", "--max-users", "1"]);
    let metrics = result["metrics"].as_array().expect("metrics");
    let slowest = |name: &str| {
        let named = metrics.iter().find(|metric| metric["name"] == name);
        number(named.unwrap_or_else(|| panic!("no {name} in {metrics:#?}")), "/response_ms/max")
    };
    // The tenth is due at 225 ms and begins after nine others of 150 ms each.
    for name in ["buy/cart", "buy", "checkout"] {
        assert!(slowest(name) > 1000.0, "{name}: {} ms", slowest(name));
    }
}

#[test]
fn generator_that_was_paused_fails_strict() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let running = folder.start(&["run", &url, "--rate", "100", "--for", "4s", "--strict", "--json", "result.json"]);
    wait_until("a second of requests", || target.requests() >= 100);
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.stdout.contains("the generator made starts late, which added up to"), "{ended:?}");
    let result = folder.json("result.json");
    assert!(number(&result, "/generator/schedule_lag_ms/p99") > 1000.0, "{:#}", result["generator"]);
    assert_eq!(number(&result, "/totals/requests"), 400.0);
}

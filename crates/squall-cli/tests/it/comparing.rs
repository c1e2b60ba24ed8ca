//! `squall compare` with two results, with the baseline, with neither.

use crate::support::{Desk, target};

fn run(desk: &Desk, url: &str, to: &[&str]) {
    let load = ["run", url, "--users", "4", "--for", "12s", "--quiet", "--name", "same"];
    let ended = desk.squall(&[&load[..], to].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn a_slower_run_is_a_regression_and_the_same_run_is_not() {
    let (target, desk) = (target(), Desk::new());
    std::thread::scope(|scope| {
        scope.spawn(|| run(&desk, &target.url("/delay/10"), &["--save-baseline"]));
        scope.spawn(|| run(&desk, &target.url("/delay/40"), &["--json", "slow.json"]));
    });
    desk.write("fast.json", &desk.read(".squall/baseline.json"));

    let same = desk.squall(&["compare", "fast.json"]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    let slower = desk.squall(&["compare", "slow.json"]);
    assert_eq!(slower.code, 1, "{}{}", slower.stdout, slower.stderr);
    let tolerated = desk.squall(&["compare", "slow.json", "fast.json", "--tolerance", "5%"]);
    assert_eq!(tolerated.code, 0, "faster is no regression: {}", tolerated.stdout);
    let json = desk.squall(&["compare", "fast.json", "slow.json", "--json"]);
    assert_eq!(json.code, 1);
    assert!(serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap()["rows"].is_array());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let desk = Desk::new();
    desk.write("other.json", "{\"schema\":\"other/1\"}").write("text.json", "hello");
    for (arguments, part) in [
        (&["compare", "other.json"][..], "--save-baseline"),
        (&["compare", "missing.json", "other.json"], "missing.json"),
        (&["compare", "text.json", "other.json"], "not a Squall result"),
        (&["compare", "other.json", "other.json"], "other/1"),
        (&["compare", "other.json", "other.json", "--tolerance", "much"], "share"),
        (&["compare"], "RESULT"),
    ] {
        let ended = desk.squall(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
}

//! `squall compare` with two results, with the baseline, and without either.

use crate::support::{TestFolder, target};
use serde_json::Value;

fn run(folder: &TestFolder, url: &str, to: &[&str]) {
    let load = ["run", url, "--users", "4", "--for", "12s", "--quiet", "--name", "same"];
    let ended = folder.squall(&[&load[..], to].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Replaces the seconds of the result file `name` by steady ones with response times of about `ms`.
/// The noise of a busy machine would decide the comparison otherwise; squall-report tests the
/// statistics.
fn set_steady_response_times(folder: &TestFolder, name: &str, ms: f64) {
    let mut result = folder.json(name);
    let smooth_out = |timeline: &mut Value| {
        for (index, second) in timeline.as_array_mut().expect("a timeline").iter_mut().enumerate() {
            let ms = ms * (1.0 + 0.01 * (index % 3) as f64);
            for field in ["mean_ms", "p50_ms", "p95_ms", "p99_ms"] {
                second[field] = ms.into();
            }
            let requests = (4000.0 / ms).round();
            if second.get("rate").is_some() {
                second["rate"] = requests.into();
            }
            if second.get("requests").is_some() {
                second["requests"] = (requests as u64).into();
            }
        }
    };
    smooth_out(&mut result["timeline"]);
    for metric in result["metrics"].as_array_mut().expect("metrics") {
        smooth_out(&mut metric["timeline"]);
    }
    folder.write(name, &result.to_string());
}

#[test]
fn slower_run_is_a_regression_and_an_equal_run_is_not() {
    let (target, folder) = (target(), TestFolder::new());
    std::thread::scope(|scope| {
        scope.spawn(|| run(&folder, &target.url("/delay/10"), &["--save-baseline"]));
        scope.spawn(|| run(&folder, &target.url("/delay/40"), &["--json", "slow.json"]));
    });
    set_steady_response_times(&folder, ".squall/baseline.json", 10.0);
    set_steady_response_times(&folder, "slow.json", 40.0);
    folder.write("fast.json", &folder.read(".squall/baseline.json"));

    let same = folder.squall(&["compare", "fast.json"]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    let slower = folder.squall(&["compare", "slow.json"]);
    assert_eq!(slower.code, 1, "{}{}", slower.stdout, slower.stderr);
    let tolerated = folder.squall(&["compare", "slow.json", "fast.json", "--tolerance", "5%"]);
    assert_eq!(tolerated.code, 0, "faster is no regression: {}", tolerated.stdout);
    let json = folder.squall(&["compare", "fast.json", "slow.json", "--json"]);
    assert_eq!(json.code, 1);
    assert!(serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap()["rows"].is_array());
}

#[test]
fn results_that_cannot_be_compared_are_refused() {
    let folder = TestFolder::new();
    folder.write("other.json", "{\"schema\":\"other/1\"}").write("text.json", "hello");
    for (arguments, part) in [
        (&["compare", "other.json"][..], "--save-baseline"),
        (&["compare", "missing.json", "other.json"], "missing.json"),
        (&["compare", "text.json", "other.json"], "not a Squall result"),
        (&["compare", "other.json", "other.json"], "other/1"),
        (&["compare", "other.json", "other.json", "--tolerance", "much"], "not a percentage"),
        (&["compare"], "RESULT"),
    ] {
        let ended = folder.squall(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
}

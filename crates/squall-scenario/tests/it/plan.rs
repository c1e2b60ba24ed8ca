//! The plan of a scenario: load defaults and profiles, and how flags override a file.

use squall_model::{Arrivals, LoadModel, Pause, Threshold};
use squall_scenario::{NoFiles, RawLoad, Scenario, ScenarioOverrides, Sourced};
use std::time::Duration;

use crate::harness::{CapturingServer, run};

const TASK: &str = "[[task]]\nname = 'x'\nget = '/'\n";

fn parse(load: &str, overrides: ScenarioOverrides) -> Scenario {
    let text = format!("target = 'http://127.0.0.1:1'\n[load]\n{load}\n{TASK}");
    Scenario::parse("shop.toml", &text, &mut NoFiles, overrides).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The description of the load, as `--check` prints it.
#[track_caller]
fn check(load: &str, expected: &str) {
    check_with(load, RawLoad::default(), expected);
}

#[track_caller]
fn check_with(load: &str, flags: RawLoad, expected: &str) {
    let scenario = parse(load, ScenarioOverrides { load: flags, ..ScenarioOverrides::default() });
    let text = scenario.describe();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("load")).expect("a line on load");
    assert_eq!(line.trim(), expected);
}

#[test]
fn load_description_states_the_load() {
    check("", "10 users for 30s");
    check("rate = 200", "200 iterations/s for 30s");
    check("rate = '90/m'\nfor = '1m'", "1.5 iterations/s for 1m");
    check("rate = 0.5\narrivals = 'poisson'", "0.5 iterations/s for 30s, Poisson arrivals");
    check("users = 50\npause = '1s'\nfor = 10", "50 users for 10s, pausing 1s");
    check("users = 50\npause = ['1s', '3s']", "50 users for 30s, pausing 1s to 3s");
    check("users = 2\nrequests = 1000", "2 users until 1000 iterations are done");
    check("rate = 5\nrequests = 10\nfor = '1m'", "5 iterations/s for 1m or until 10 iterations are done");
    check("rate = 100\nramp_up = '10s'", "0 → 100 iterations/s in 10s, then 100 for 20s");
    check("rate = 100\nprofile = 'ramp'", "0 → 100 iterations/s in 30s");
    check("rate = 100\nprofile = 'ramp'\nramp_up = '30s'", "0 → 100 iterations/s in 30s");
    check("rate = 100\nprofile = 'step'\nsteps = 2", "50 iterations/s for 15s, then 100 for 15s");
    check("users = 100\nprofile = 'spike'", "20 users for 10s, then 100 for 10s, then 20 for 10s");
    check("stages = '10s:100,30s:500'", "0 → 100 iterations/s in 10s, then 100 → 500 in 30s");
    check("rate = 100\nstages = ['10s:100', '30s:500']", "100 iterations/s for 10s, then 100 → 500 in 30s");
    check("users = 1\nstages = [{ for = '10s', to = 5 }]", "1 → 5 users in 10s");
}

#[test]
fn run_limited_by_iterations_describes_no_duration() {
    check("users = 1\nrequests = 1", "1 user until 1 iteration is done");
    check("rate = 5\nrequests = 40", "5 iterations/s until 40 iterations are done");
    check("rate = 5\nrequests = 40\nramp_up = '2s'", "0 → 5 iterations/s in 2s, then 5 until 40 iterations are done");
    check(
        "users = 5\npause = '1s'\nrequests = 40\nfor = '9s'",
        "5 users for 9s or until 40 iterations are done, pausing 1s",
    );
}

#[test]
fn plan_has_the_load_model_of_the_file() {
    let model = |load: &str| parse(load, ScenarioOverrides::default()).plan.load.model;
    assert!(matches!(model("rate = 5\narrivals = 'poisson'"), LoadModel::Open { arrivals: Arrivals::Poisson, .. }));
    assert!(matches!(model("users = 5\npause = '1s'"), LoadModel::Closed { pause: Pause::Fixed(_), .. }));
    let plan = parse("warm_up = '5s'", ScenarioOverrides::default()).plan;
    assert_eq!((plan.load.warm_up, plan.seed, plan.name.as_str()), (Duration::from_secs(5), 0, "shop"));
}

fn flag(name: &str, value: &str) -> Option<Sourced<String>> {
    Some(Sourced::from_flag(name, value))
}

#[test]
fn flag_overrides_the_file() {
    let none = RawLoad::default;
    let file = "rate = 100\nfor = '1m'\nramp_up = '10s'\narrivals = 'poisson'";
    check_with(
        file,
        RawLoad { rate: flag("--rate", "5/s"), ..none() },
        "0 → 5 iterations/s in 10s, then 5 for 50s, Poisson arrivals",
    );
    check_with(file, RawLoad { users: flag("--users", "5"), ..none() }, "0 → 5 users in 10s, then 5 for 50s");
    check_with(
        file,
        RawLoad { stages: flag("--stages", "5s:1"), ..none() },
        "100 → 1 iteration/s in 5s, Poisson arrivals",
    );
    check_with(
        "stages = '10s:100'",
        RawLoad { duration: flag("--for", "5s"), rate: flag("--rate", "1"), ..none() },
        "1 iteration/s for 5s",
    );
    check_with("users = 5\npause = '1s'", RawLoad { rate: flag("--rate", "5"), ..none() }, "5 iterations/s for 30s");
    check_with(
        "users = 5",
        RawLoad { pause: flag("--pause", "1s..2s"), ..none() },
        "5 users for 30s, pausing 1s to 2s",
    );
}

#[test]
fn shape_flag_without_a_level_is_refused_on_a_scenario_with_stages() {
    let stages = "stages = '10s:20,20s:50'";
    let ramp_up = RawLoad { ramp_up: flag("--ramp-up", "1s"), ..RawLoad::default() };
    let profile = RawLoad { profile: flag("--profile", "spike"), ..RawLoad::default() };
    for (load, name) in [(ramp_up.clone(), "--ramp-up"), (profile, "--profile")] {
        let text = format!("target = 'http://h'\n[load]\n{stages}\n[[task]]\nname = 'x'\nget = '/'\n");
        let overrides = ScenarioOverrides { load, ..Default::default() };
        let error = Scenario::parse("shop.toml", &text, &mut NoFiles, overrides).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} replaces the stages")) && error.contains("add --rate"), "{error}");
    }
    let with_rate = RawLoad { rate: flag("--rate", "9"), ..ramp_up.clone() };
    check_with(stages, with_rate, "0 → 9 iterations/s in 1s, then 9 for 29s");
    check_with(&format!("users = 5\n{stages}"), ramp_up, "0 → 5 users in 1s, then 5 for 29s");
}

#[test]
fn shorter_run_shortens_ramp_warm_up_and_stages_in_proportion() {
    let for_flag = |text: &str| RawLoad { duration: flag("--for", text), ..RawLoad::default() };
    let with_rate = RawLoad { rate: flag("--rate", "5"), ..for_flag("3s") };
    let ramp = "rate = 100\nramp_up = '5s'";
    check_with(ramp, for_flag("3s"), "0 → 100 iterations/s in 500ms, then 100 for 2.5s");
    check_with(ramp, with_rate.clone(), "0 → 5 iterations/s in 500ms, then 5 for 2.5s");
    check_with(ramp, for_flag("5s"), "0 → 100 iterations/s in 5s");
    check_with(
        "rate = 9\nfor = '10s'\nramp_up = '5s'",
        for_flag("1s"),
        "0 → 9 iterations/s in 500ms, then 9 for 500ms",
    );
    check_with("users = 4\nramp_up = '1m'", for_flag("3s"), "0 → 4 users in 3s");
    let stages = "stages = '10s:100,30s:500'";
    check_with(stages, for_flag("4s"), "0 → 100 iterations/s in 1s, then 100 → 500 in 3s");
    check_with(stages, for_flag("80s"), "0 → 100 iterations/s in 20s, then 100 → 500 in 1m");
    check_with(stages, with_rate, "5 iterations/s for 3s");
    check_with(
        stages,
        RawLoad { ramp_up: flag("--ramp-up", "1s"), users: flag("--users", "10"), ..for_flag("4s") },
        "0 → 10 users in 1s, then 10 for 3s",
    );
    let warm = parse("for = '20s'\nwarm_up = '10s'", ScenarioOverrides { load: for_flag("2s"), ..Default::default() });
    assert_eq!(warm.plan.load.warm_up, Duration::from_secs(1));
}

#[test]
fn description_says_how_a_shorter_run_differs_from_the_file() {
    let notes = |file: &str, run: &str| -> Vec<String> {
        let load = RawLoad { duration: flag("--for", run), ..RawLoad::default() };
        let text = parse(file, ScenarioOverrides { load, ..ScenarioOverrides::default() }).describe();
        text.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect()
    };
    assert_eq!(
        notes("rate = 9\nfor = '20s'\nramp_up = '5s'\nwarm_up = '4s'", "2s"),
        [
            "note: warm_up is 400ms instead of 4s: the run lasts 2s instead of 20s",
            "note: ramp_up is 500ms instead of 5s: the run lasts 2s instead of 20s",
        ]
    );
    assert_eq!(notes("stages = '10s:9'", "2s"), ["note: the stages last 2s instead of 10s, each in proportion"]);
    assert_eq!(notes("stages = '10s:9'", "10s"), [""; 0]);
    assert_eq!(notes("rate = 9\nramp_up = '5s'", "10s"), [""; 0]);
}

#[test]
fn flags_replace_name_target_seed_and_thresholds() {
    let overrides = ScenarioOverrides {
        name: Some(Sourced::from_flag("--name", "other")),
        target: Some(Sourced::from_flag("--target", "http://localhost:2/base")),
        seed: Some(Sourced::from_flag("--seed", 9u64)),
        thresholds: vec![Sourced::from_flag("--threshold", "p99<1s"), Sourced::from_flag("--threshold", "x:p50<1ms")],
        ..ScenarioOverrides::default()
    };
    let plan = parse("thresholds = ['p99<5s', 'p99>1ms', 'error_rate<1%']", overrides).plan;
    assert_eq!((plan.name.as_str(), plan.target.as_str(), plan.seed), ("other", "http://localhost:2/base", 9));
    let thresholds: Vec<String> = plan.thresholds.iter().map(Threshold::to_string).collect();
    assert_eq!(thresholds, ["p99>1ms", "error_rate<1%", "p99<1s", "x:p50<1ms"]);
}

#[track_caller]
fn check_thresholds(file: &str, flags: &[&str], expected: &[&str]) {
    let thresholds = flags.iter().map(|flag| Sourced::from_flag("--threshold", *flag)).collect();
    let plan =
        parse(&format!("thresholds = {file}"), ScenarioOverrides { thresholds, ..ScenarioOverrides::default() }).plan;
    let kept: Vec<String> = plan.thresholds.iter().map(Threshold::to_string).collect();
    assert_eq!(kept, expected, "{file} {flags:?}");
}

#[test]
fn thresholds_of_one_source_are_all_kept() {
    check_thresholds("[]", &["p99<1us", "p99<1s"], &["p99<1us", "p99<1s"]);
    check_thresholds("['p99<1us', 'p99<1s']", &[], &["p99<1us", "p99<1s"]);
    check_thresholds("['p99<5s', 'p99<6s', 'x:p99<1s']", &["p99<1us", "p99<1s"], &["x:p99<1s", "p99<1us", "p99<1s"]);
    check_thresholds("['p99[5s]<5s']", &["p99<1s"], &["p99[5s]<5s", "p99<1s"]);
    check_thresholds("['p99<1s', 'p99 < 1000ms']", &[], &["p99<1s"]);
    check_thresholds("[]", &["p99<1s", "p99<1s !abort", "p99<1s"], &["p99<1s", "p99<1s !abort"]);
}

#[test]
fn description_lists_the_metrics_of_thresholds() {
    let text = "target = 'http://h'\n[[on_start]]\nname = 'login'\nget = '/'\n[[task]]\nname = 'a'\nget = '/'\n\
                [[task]]\nname = 'b'\ngroup = 'shop'\n[[task.step]]\nname = 'one'\nget = '/'\ngroup = 'pay'\n";
    let scenario = Scenario::parse("x.toml", text, &mut NoFiles, ScenarioOverrides::default()).unwrap();
    let described = scenario.describe();
    let line = described.lines().find_map(|line| line.trim().strip_prefix("metrics")).expect("a line on metrics");
    assert_eq!(line.trim(), "a, b, b/one, on_start/login, pay, shop");
}

#[test]
fn planned_tasks_have_weights_and_conditions() {
    let text = "target = 'http://h'\n[[task]]\nname = 'a'\nweight = 2.5\nget = '/'\n\
                [[task]]\nname = 'b'\nget = '/'\nrequires = ['a']\nevery = ['1s', '2s']";
    let plan = Scenario::parse("x.toml", text, &mut NoFiles, ScenarioOverrides::default()).unwrap().plan;
    assert_eq!((plan.tasks[0].weight, plan.tasks[1].weight), (2.5, 1.0));
    assert_eq!(plan.tasks[1].requires, [squall_model::TaskIndex(0)]);
    assert_eq!(plan.tasks[1].every, Some(Pause::Between(Duration::from_secs(1), Duration::from_secs(2))));
    assert!(plan.tasks[0].is_unconditional());
}

/// The command line sets variables that the file declares. They keep the type of the given value.
#[test]
fn parameter_replaces_a_variable_of_the_file() {
    let set = |name: &str, value: &str| (name.to_owned(), Sourced::from_flag("--param", value));
    let of = |variables| ScenarioOverrides { variables, ..ScenarioOverrides::default() };
    let server = CapturingServer::start();
    let file = format!(
        "target = '{}'\n[variables]\nregion = 'eu'\ncount = 1\n[[task]]\nname = 'x'\npost = '/{{{{ region }}}}'\n\
         json = {{ count = '{{{{ count }}}}' }}",
        server.url
    );
    let parse = |overrides| Scenario::parse("shop.toml", &file, &mut NoFiles, overrides);
    run(&parse(of(vec![set("region", "us"), set("count", "7")])).expect("a sound scenario"), 1);
    let sent = server.take().concat();
    assert!(sent.starts_with("POST /us ") && sent.ends_with("{\"count\":7}"), "{sent}");
    let variables = |overrides| parse(overrides).expect("a sound scenario").variables().to_vec();
    let of_file = [("region".to_owned(), "eu".into()), ("count".to_owned(), 1.into())];
    assert_eq!(variables(ScenarioOverrides::default()), of_file);
    let errors = parse(of(vec![set("regoin", "us")])).unwrap_err().to_string();
    assert!(errors.contains("--param") && errors.contains("there is no variable `regoin`"), "{errors}");
    assert!(errors.contains("there are region, count"), "{errors}");
}

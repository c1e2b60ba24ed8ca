//! Scenarios written as code: what they declare becomes a plan, and mistakes name the code's file,
//! line and argument.

use squall_model::LoadModel;
use squall_scenario::{
    CodeLocation, CodeScenario, RawBrowser, RawCodeScenario, RawCodeTask, RawLoad, ScenarioOverrides, SourceLocation,
    Sourced,
};

fn line(line: usize, setting: Option<&str>) -> SourceLocation {
    SourceLocation::Code(CodeLocation { file: "shop.py".into(), line, setting: setting.map(Into::into) })
}

fn given<T>(value: impl Into<T>, setting: &str) -> Sourced<T> {
    Sourced { value: value.into(), location: line(3, Some(setting)) }
}

fn task(name: &str) -> RawCodeTask {
    let given = |argument: &str| line(7, Some(&format!("task '{name}': {argument}")));
    RawCodeTask {
        name: Sourced { value: name.to_owned(), location: given("name") },
        weight: Sourced { value: 1.0, location: given("weight") },
        requires: Vec::new(),
        every: None,
    }
}

fn shop(load: RawLoad) -> RawCodeScenario {
    RawCodeScenario {
        file: "shop.py".into(),
        location: line(3, None),
        name: given("Shop", "name"),
        target: Some(given("http://shop", "target")),
        absolute_origin: None,
        load,
        thresholds: Vec::new(),
        cql: squall_scenario::RawCql::default(),
        tasks: vec![task("browse")],
        browser: RawBrowser::default(),
        notes: Vec::new(),
    }
}

/// The scenario is rejected with exactly these lines; the last one counts the problems.
#[track_caller]
fn reject(raw: RawCodeScenario, overrides: ScenarioOverrides, lines: &[&str]) {
    let errors = CodeScenario::build(raw, overrides).expect_err("the scenario has a mistake");
    let text = errors.to_string();
    let shown: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(shown[..shown.len() - 1], *lines, "{text}");
}

#[test]
fn declared_load_becomes_the_plan() {
    let load = RawLoad {
        rate: Some(given("50", "rps")),
        duration: Some(given("20s", "duration")),
        profile: Some(given("ramp", "mode")),
        ..RawLoad::default()
    };
    let scenario = CodeScenario::build(shop(load), ScenarioOverrides::default()).unwrap();
    assert_eq!((scenario.plan.name.as_str(), scenario.plan.target.as_str()), ("Shop", "http://shop"));
    assert_eq!(scenario.plan.duration().as_secs(), 20);
    assert!(matches!(&scenario.plan.load.model, LoadModel::Open { rate, .. } if rate.peak() == 50.0));
    assert_eq!(scenario.plan.tasks[0].name, "browse");
}

#[test]
fn notes_of_the_code_come_before_those_of_a_shorter_run() {
    let load = RawLoad {
        rate: Some(given("50", "rps")),
        duration: Some(given("20s", "duration")),
        ramp_up: Some(given("5s", "ramp_up")),
        ..RawLoad::default()
    };
    let raw = RawCodeScenario { notes: vec!["shop.py:3: thresholds: read it so".to_owned()], ..shop(load) };
    let shorter = RawLoad { duration: Some(Sourced::from_flag("--for", "2s")), ..RawLoad::default() };
    let overrides = ScenarioOverrides { load: shorter, ..ScenarioOverrides::default() };
    let scenario = CodeScenario::build(raw, overrides).unwrap();
    assert_eq!(
        scenario.notes,
        ["shop.py:3: thresholds: read it so", "ramp_up is 500ms instead of 5s: the run lasts 2s instead of 20s"]
    );
}

#[test]
fn messages_name_file_line_and_argument_of_the_code() {
    let load = RawLoad {
        stages: Some(given("10s:5", "stages")),
        duration: Some(given("20s", "duration")),
        profile: Some(given("ramp", "mode")),
        ..RawLoad::default()
    };
    let mut raw = shop(load);
    raw.tasks[0].every = Some(Sourced { value: "x".into(), location: line(7, Some("task 'browse': every")) });
    reject(
        raw,
        ScenarioOverrides::default(),
        &[
            "shop.py:3: duration: both `stages` and `duration` are given",
            "   hint: stages say how long the run lasts: remove `duration`",
            "shop.py:3: mode: both `stages` and `mode` are given",
            "   hint: stages are a profile of their own: remove `mode`",
            "shop.py:7: task 'browse': every: `x` is not a duration: write 500ms, 30s, 2m, 1h30m, or a number of seconds",
        ],
    );
}

#[test]
fn hints_use_the_names_of_the_code() {
    let load = RawLoad { steps: Some(given("3", "steps")), ..RawLoad::default() };
    reject(
        shop(load),
        ScenarioOverrides::default(),
        &["shop.py:3: steps: `steps` needs mode `step`", "   hint: add mode = \"step\""],
    );
    let load = RawLoad { profile: Some(given("wave", "mode")), ..RawLoad::default() };
    reject(
        shop(load),
        ScenarioOverrides::default(),
        &["shop.py:3: mode: unknown mode `wave`", "   hint: there are constant, ramp, step and spike"],
    );
}

#[test]
fn flag_errors_name_the_flag_and_settings_as_the_code_does() {
    let flags = RawLoad {
        stages: Some(Sourced::from_flag("--stages", "10s:5")),
        duration: Some(Sourced::from_flag("--for", "10s")),
        ..RawLoad::default()
    };
    reject(
        shop(RawLoad::default()),
        ScenarioOverrides { load: flags, ..ScenarioOverrides::default() },
        &[
            "--for: both `stages` and `duration` are given",
            "   hint: stages say how long the run lasts: remove `duration`",
        ],
    );
}

#[test]
fn scenario_without_target_needs_an_absolute_url() {
    let without_target = RawCodeScenario { target: None, ..shop(RawLoad::default()) };
    reject(
        without_target.clone(),
        ScenarioOverrides::default(),
        &[
            "shop.py: there is no target for paths like \"/\" to start from",
            "   hint: add --target http://…, or @scenario(target=\"http://…\")",
        ],
    );
    let absolute = RawCodeScenario { absolute_origin: Some("https://api:8443".into()), ..without_target };
    let scenario = CodeScenario::build(absolute, ScenarioOverrides::default()).unwrap();
    assert_eq!(scenario.plan.target, "https://api:8443");
}

/// The code makes the requests, but what all of them share is checked like any other request.
#[test]
fn headers_and_address_family_are_checked_against_the_target() {
    let mut overrides = ScenarioOverrides::default();
    overrides.http.ip = Some(Sourced::from_flag("--ip", "6"));
    let raw = RawCodeScenario { target: Some(given("http://127.0.0.1", "target")), ..shop(RawLoad::default()) };
    reject(raw, overrides, &["shop.py:3: target: an IPv4 address cannot be reached with IPv6 only"]);
    let mut overrides = ScenarioOverrides::default();
    overrides.http.headers = vec![(Sourced::from_flag("--header", "a b"), Sourced::from_flag("--header", "c"))];
    let errors = CodeScenario::build(shop(RawLoad::default()), overrides).unwrap_err();
    assert!(errors.to_string().starts_with("--header: "), "{errors}");
}

/// Code may name a metric at run time, but a misspelt task name is a mistake.
#[test]
fn thresholds_may_name_metrics_that_only_the_code_knows() {
    let threshold =
        |text: &str| RawCodeScenario { thresholds: vec![given(text, "thresholds")], ..shop(RawLoad::default()) };
    CodeScenario::build(threshold("queue:p99<1s"), ScenarioOverrides::default()).unwrap();
    reject(
        threshold("brows:p99<1s"),
        ScenarioOverrides::default(),
        &["shop.py:3: thresholds: there is no metric `brows`", "   hint: did you mean `browse`?"],
    );
}

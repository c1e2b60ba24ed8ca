//! Tests of the comparison: equal runs, slower runs, and runs with too little data.

use crate::sample_run::{Random, Recipe};
use squall_report::{
    ChangeVerdict, ComparedStatistic, MetricSecondJson, Percentiles, ResultFile, RunComparison, TerminalStyle,
    build_result, compare,
};

fn result_of(recipe: Recipe) -> ResultFile {
    build_result(&recipe.make().run())
}

fn recipe_without_errors(seed: u64) -> Recipe {
    Recipe { seconds: 40, rate: 100, seed, failing: 0..0, drift: 0.02, ..Recipe::default() }
}

/// A result in which the seconds of every metric follow an AR(1) process around `level`
/// milliseconds.
fn with_ar1_noise(template: &ResultFile, seconds: u32, correlation: f64, level: f64, seed: u64) -> ResultFile {
    let mut file = template.clone();
    let mut random = Random(seed);
    let second = file.timeline[0].clone();
    file.timeline.clear();
    file.run.active_s = f64::from(seconds);
    file.metrics.truncate(1);
    file.metrics[0].timeline.clear();
    let mut state = random.normal() / (1.0 - correlation * correlation).sqrt();
    for t_s in 1..=seconds {
        state = correlation * state + random.normal();
        let factor = level * (0.05 * state).exp();
        let mut second = second.clone();
        (second.t_s, second.rate, second.errors) = (t_s, (100.0 / factor).round(), 0);
        let jitter = |random: &mut Random| factor * (1.0 + 0.01 * random.normal());
        second.mean_ms = jitter(&mut random);
        second.p50_ms = 0.9 * jitter(&mut random);
        second.p95_ms = 2.0 * jitter(&mut random);
        second.p99_ms = 4.0 * jitter(&mut random);
        file.metrics[0].timeline.push(MetricSecondJson {
            t_s,
            requests: second.rate as u64,
            errors: 0,
            mean_ms: second.mean_ms,
            p50_ms: second.p50_ms,
            p95_ms: second.p95_ms,
            p99_ms: second.p99_ms,
        });
        file.timeline.push(second);
    }
    let average =
        |of: fn(&MetricSecondJson) -> f64| file.metrics[0].timeline.iter().map(of).sum::<f64>() / f64::from(seconds);
    let (rate, mean, p50) = (average(|s| s.requests as f64), average(|s| s.mean_ms), average(|s| s.p50_ms));
    let response =
        Percentiles { mean, p50, p95: average(|s| s.p95_ms), p99: average(|s| s.p99_ms), ..Percentiles::default() };
    (file.totals.rate, file.metrics[0].rate) = (rate, rate);
    (file.latency_ms.response, file.metrics[0].response_ms) = (response, response);
    file
}

fn changes(comparison: &RunComparison, metric: &str) -> Vec<(ComparedStatistic, ChangeVerdict)> {
    let rows = comparison.rows.iter().filter(|row| row.metric == metric);
    rows.map(|row| (row.statistic, row.change)).collect()
}

#[test]
fn equal_runs_are_rarely_called_different() {
    let template = result_of(recipe_without_errors(1));
    for (seconds, correlation) in
        [(10, 0.0), (10, 0.5), (10, 0.8), (12, 0.0), (30, 0.5), (60, 0.8), (60, 0.0), (120, 0.9)]
    {
        let runs = 200u64;
        let flagged = (0..runs).filter(|seed| {
            let run = |seed| with_ar1_noise(&template, seconds, correlation, 10.0, seed);
            compare(&run(2 * seed + 1), &run(2 * seed + 2), 0.0).regressed()
        });
        let share = flagged.count() as f64 / runs as f64;
        assert!(share <= 0.05, "{share} of equal runs of {seconds} s at {correlation} were called a regression");
    }
}

#[test]
fn slowdown_of_20_percent_is_detected() {
    let template = result_of(recipe_without_errors(1));
    for (seconds, correlation) in [(20, 0.0), (30, 0.3), (60, 0.5), (120, 0.7)] {
        let runs = 100u64;
        let found = (0..runs).filter(|seed| {
            let base = with_ar1_noise(&template, seconds, correlation, 10.0, 2 * seed + 1);
            let new = with_ar1_noise(&template, seconds, correlation, 12.0, 2 * seed + 2);
            compare(&base, &new, 0.05).regressed()
        });
        let share = found.count() as f64 / runs as f64;
        assert!(share >= 0.9, "only {share} of slowdowns in {seconds} s at {correlation} were found");
    }
}

#[test]
fn slowdown_of_50_percent_is_detected_in_ten_seconds() {
    let template = result_of(recipe_without_errors(1));
    for correlation in [0.0, 0.3] {
        let runs = 100u64;
        let found = (0..runs).filter(|seed| {
            let base = with_ar1_noise(&template, 10, correlation, 10.0, 2 * seed + 1);
            let new = with_ar1_noise(&template, 10, correlation, 15.0, 2 * seed + 2);
            let comparison = compare(&base, &new, 0.05);
            assert!(
                comparison.rows.iter().all(|row| row.change != ChangeVerdict::NotEnoughData),
                "{:?}",
                comparison.rows
            );
            comparison.regressed()
        });
        let share = found.count() as f64 / runs as f64;
        assert!(share >= 0.9, "only {share} of slowdowns at {correlation} were found");
    }
}

#[test]
fn steady_rate_without_judged_latencies_is_inconclusive() {
    let base = result_of(recipe_without_errors(1));
    let mut new = base.clone();
    // Responses in nine seconds only; an open load keeps its rate in all of them.
    for second in new.timeline.iter_mut().skip(9) {
        (second.mean_ms, second.p50_ms, second.p95_ms, second.p99_ms) = (f64::NAN, f64::NAN, f64::NAN, f64::NAN);
    }
    new.metrics.truncate(0);
    let comparison = compare(&base, &new, 0.05);
    assert!(
        comparison
            .rows
            .iter()
            .any(|row| row.statistic == ComparedStatistic::Rate && row.change != ChangeVerdict::NotEnoughData)
    );
    assert_eq!(comparison.exit_code(), 2);
    assert!(comparison.table(TerminalStyle::PLAIN).contains("Not enough data"));
}

#[test]
fn table_shows_a_slower_target_metric_by_metric() {
    let comparison = compare(
        &result_of(recipe_without_errors(1)),
        &result_of(Recipe { slowness: 1.2, ..recipe_without_errors(2) }),
        0.05,
    );
    assert!(comparison.regressed());
    assert_eq!(comparison.exit_code(), 1);
    let browse = changes(&comparison, "browse");
    assert!(browse.contains(&(ComparedStatistic::P50, ChangeVerdict::Regressed)), "{browse:?}");
    assert!(browse.contains(&(ComparedStatistic::ErrorRate, ChangeVerdict::NoSignificantChange)), "{browse:?}");
    let p50 = comparison.rows.iter().find(|r| r.metric == "browse" && r.statistic == ComparedStatistic::P50).unwrap();
    let effect = p50.effect.unwrap();
    assert!((0.15..0.25).contains(&effect.relative()), "{effect:?}");
    assert!(effect.low < effect.difference && effect.difference < effect.high && effect.low > 0.0);
    insta::assert_snapshot!(comparison.table(TerminalStyle { colour: false, width: 110 }));
}

#[test]
fn slowdown_within_the_tolerance_is_accepted() {
    let comparison = compare(
        &result_of(recipe_without_errors(1)),
        &result_of(Recipe { slowness: 1.2, ..recipe_without_errors(2) }),
        0.3,
    );
    assert!(!comparison.regressed());
    assert!(changes(&comparison, "browse").contains(&(ComparedStatistic::P50, ChangeVerdict::WithinTolerance)));
}

#[test]
fn faster_target_is_an_improvement() {
    let comparison = compare(
        &result_of(Recipe { slowness: 1.3, ..recipe_without_errors(1) }),
        &result_of(recipe_without_errors(2)),
        0.0,
    );
    assert!(changes(&comparison, "all requests").contains(&(ComparedStatistic::P50, ChangeVerdict::Improved)));
    assert!(!comparison.regressed());
}

#[test]
fn run_compared_with_itself_has_no_change() {
    let file = result_of(Recipe::default());
    let comparison = compare(&file, &file, 0.0);
    let any = |change| comparison.rows.iter().any(|row| row.change == change);
    assert!(any(ChangeVerdict::NoSignificantChange));
    assert!(!any(ChangeVerdict::Regressed) && !any(ChangeVerdict::Improved) && !any(ChangeVerdict::WithinTolerance));
}

#[test]
fn new_errors_are_a_regression() {
    let broken = result_of(Recipe { failing: 0..40, ..recipe_without_errors(2) });
    let comparison = compare(&result_of(recipe_without_errors(1)), &broken, 0.05);
    assert!(
        changes(&comparison, "purchase › checkout tier=gold")
            .contains(&(ComparedStatistic::ErrorRate, ChangeVerdict::Regressed))
    );
}

#[test]
fn one_slow_second_is_not_a_regression() {
    let base = result_of(recipe_without_errors(1));
    let mut new = base.clone();
    new.timeline[20].p99_ms = 2000.0;
    new.timeline[20].mean_ms = 200.0;
    assert!(!compare(&base, &new, 0.0).regressed());
}

#[test]
fn runs_shorter_than_ten_seconds_are_not_judged() {
    let short = |seed| result_of(Recipe { seconds: 8, ..recipe_without_errors(seed) });
    let comparison =
        compare(&short(1), &result_of(Recipe { seconds: 8, slowness: 5.0, ..recipe_without_errors(2) }), 0.05);
    assert!(comparison.rows.iter().all(|row| row.change == ChangeVerdict::NotEnoughData));
    assert!(comparison.table(TerminalStyle::PLAIN).contains("Not enough data"));
    assert_eq!(comparison.exit_code(), 2, "nothing is known, and that is not green");
}

#[test]
fn runs_without_a_common_metric_cannot_be_compared() {
    let base = result_of(recipe_without_errors(1));
    let mut new = result_of(recipe_without_errors(2));
    new.metrics.iter_mut().for_each(|metric| metric.name += " v2");
    let comparison = compare(&base, &new, 0.05);
    assert!(comparison.table(TerminalStyle::PLAIN).contains("no metric in common"));
    assert_eq!((comparison.common, comparison.exit_code()), (0, 2));
    assert_eq!(compare(&base, &base, 0.05).exit_code(), 0);
}

#[test]
fn drifting_target_is_not_a_regression() {
    // A swing of 30 % over 25 s: forty seconds cannot distinguish a slower program from a slow
    // phase.
    let drifting = |seed, slowness| result_of(Recipe { drift: 0.3, slowness, ..recipe_without_errors(seed) });
    assert!(!compare(&drifting(1, 1.0), &drifting(2, 1.03), 0.0).regressed());
}

#[test]
fn warm_up_and_drain_are_not_compared() {
    let base = result_of(Recipe { warm_up: 10, ..recipe_without_errors(1) });
    assert_eq!(compare(&base, &base, 0.0).seconds, (30, 30));
    let mut interrupted = base.clone();
    interrupted.run.active_s = 25.0;
    assert_eq!(compare(&base, &interrupted, 0.0).seconds, (30, 15));
}

#[test]
fn comparison_warns_about_differing_loads_and_saturated_generators() {
    let base = result_of(recipe_without_errors(1));
    let mut new = result_of(Recipe { rate: 200, ..recipe_without_errors(2) });
    new.generator.saturated = true;
    new.run.stop = "interrupted".to_owned();
    new.metrics.remove(0);
    let comparison = compare(&base, &new, 0.05);
    assert_eq!(comparison.warnings.len(), 3, "{:?}", comparison.warnings);
    assert_eq!((comparison.only_in_base, comparison.only_in_new), (vec!["browse".to_owned()], vec![]));
}

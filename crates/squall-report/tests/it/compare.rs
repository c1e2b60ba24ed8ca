//! Comparison: equal runs are called equal, slower ones slower, and too little data too little.

use crate::sample::{Random, Recipe};
use squall_report::{
    ChangeVerdict, ComparedStatistic, MetricSecondJson, Percentiles, ResultFile, RunComparison, TerminalStyle,
    build_result, compare,
};

fn made(recipe: Recipe) -> ResultFile {
    build_result(&recipe.make().run())
}

fn quiet(seed: u64) -> Recipe {
    Recipe { seconds: 40, rate: 100, seed, failing: 0..0, drift: 0.02, ..Recipe::default() }
}

/// A run whose every metric's seconds follow an AR(1) process around `level` milliseconds.
fn noisy(template: &ResultFile, seconds: u32, correlation: f64, level: f64, seed: u64) -> ResultFile {
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
    let template = made(quiet(1));
    for (seconds, correlation) in
        [(10, 0.0), (10, 0.5), (10, 0.8), (12, 0.0), (30, 0.5), (60, 0.8), (60, 0.0), (120, 0.9)]
    {
        let runs = 200u64;
        let flagged = (0..runs).filter(|seed| {
            let run = |seed| noisy(&template, seconds, correlation, 10.0, seed);
            compare(&run(2 * seed + 1), &run(2 * seed + 2), 0.0).regressed()
        });
        let share = flagged.count() as f64 / runs as f64;
        assert!(share <= 0.05, "{share} of equal runs of {seconds} s at {correlation} were called a regression");
    }
}

#[test]
fn a_slowdown_of_a_fifth_is_found() {
    let template = made(quiet(1));
    for (seconds, correlation) in [(20, 0.0), (30, 0.3), (60, 0.5), (120, 0.7)] {
        let runs = 100u64;
        let found = (0..runs).filter(|seed| {
            let base = noisy(&template, seconds, correlation, 10.0, 2 * seed + 1);
            let new = noisy(&template, seconds, correlation, 12.0, 2 * seed + 2);
            compare(&base, &new, 0.05).regressed()
        });
        let share = found.count() as f64 / runs as f64;
        assert!(share >= 0.9, "only {share} of slowdowns in {seconds} s at {correlation} were found");
    }
}

#[test]
fn ten_seconds_are_enough_to_see_half_again_as_slow() {
    let template = made(quiet(1));
    for correlation in [0.0, 0.3] {
        let runs = 100u64;
        let found = (0..runs).filter(|seed| {
            let base = noisy(&template, 10, correlation, 10.0, 2 * seed + 1);
            let new = noisy(&template, 10, correlation, 15.0, 2 * seed + 2);
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
fn a_steady_rate_does_not_stand_for_latencies_that_could_not_be_judged() {
    let base = made(quiet(1));
    let mut new = base.clone();
    // Answers in nine seconds only; an open load keeps its rate in all of them.
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
fn a_slower_target_is_told_metric_by_metric() {
    let comparison = compare(&made(quiet(1)), &made(Recipe { slowness: 1.2, ..quiet(2) }), 0.05);
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
fn the_same_slowdown_is_accepted_within_the_tolerance() {
    let comparison = compare(&made(quiet(1)), &made(Recipe { slowness: 1.2, ..quiet(2) }), 0.3);
    assert!(!comparison.regressed());
    assert!(changes(&comparison, "browse").contains(&(ComparedStatistic::P50, ChangeVerdict::WithinTolerance)));
}

#[test]
fn a_faster_target_is_an_improvement() {
    let comparison = compare(&made(Recipe { slowness: 1.3, ..quiet(1) }), &made(quiet(2)), 0.0);
    assert!(changes(&comparison, "all requests").contains(&(ComparedStatistic::P50, ChangeVerdict::Improved)));
    assert!(!comparison.regressed());
}

#[test]
fn the_same_run_does_not_differ_from_itself() {
    let file = made(Recipe::default());
    let comparison = compare(&file, &file, 0.0);
    let said = |change| comparison.rows.iter().any(|row| row.change == change);
    assert!(said(ChangeVerdict::NoSignificantChange));
    assert!(!said(ChangeVerdict::Regressed) && !said(ChangeVerdict::Improved) && !said(ChangeVerdict::WithinTolerance));
}

#[test]
fn errors_that_were_not_there_before_are_a_regression() {
    let broken = made(Recipe { failing: 0..40, ..quiet(2) });
    let comparison = compare(&made(quiet(1)), &broken, 0.05);
    assert!(
        changes(&comparison, "purchase › checkout tier=gold")
            .contains(&(ComparedStatistic::ErrorRate, ChangeVerdict::Regressed))
    );
}

#[test]
fn one_bad_second_is_no_evidence() {
    let base = made(quiet(1));
    let mut new = base.clone();
    new.timeline[20].p99_ms = 2000.0;
    new.timeline[20].mean_ms = 200.0;
    assert!(!compare(&base, &new, 0.0).regressed());
}

#[test]
fn short_runs_are_not_judged() {
    let short = |seed| made(Recipe { seconds: 8, ..quiet(seed) });
    let comparison = compare(&short(1), &made(Recipe { seconds: 8, slowness: 5.0, ..quiet(2) }), 0.05);
    assert!(comparison.rows.iter().all(|row| row.change == ChangeVerdict::NotEnoughData));
    assert!(comparison.table(TerminalStyle::PLAIN).contains("Not enough data"));
    assert_eq!(comparison.exit_code(), 2, "nothing is known, and that is not green");
}

#[test]
fn runs_without_a_common_metric_cannot_be_compared() {
    let base = made(quiet(1));
    let mut new = made(quiet(2));
    new.metrics.iter_mut().for_each(|metric| metric.name += " v2");
    let comparison = compare(&base, &new, 0.05);
    assert!(comparison.table(TerminalStyle::PLAIN).contains("no metric in common"));
    assert_eq!((comparison.common, comparison.exit_code()), (0, 2));
    assert_eq!(compare(&base, &base, 0.05).exit_code(), 0);
}

#[test]
fn a_drifting_target_is_no_evidence_either() {
    // A swing of 30 % over 25 s: forty seconds cannot tell a slower program from a slow stretch.
    let drifting = |seed, slowness| made(Recipe { drift: 0.3, slowness, ..quiet(seed) });
    assert!(!compare(&drifting(1, 1.0), &drifting(2, 1.03), 0.0).regressed());
}

#[test]
fn warm_up_and_drain_are_left_out() {
    let base = made(Recipe { warm_up: 10, ..quiet(1) });
    assert_eq!(compare(&base, &base, 0.0).seconds, (30, 30));
    let mut interrupted = base.clone();
    interrupted.run.active_s = 25.0;
    assert_eq!(compare(&base, &interrupted, 0.0).seconds, (30, 15));
}

#[test]
fn runs_that_are_hard_to_compare_say_why() {
    let base = made(quiet(1));
    let mut new = made(Recipe { rate: 200, ..quiet(2) });
    new.generator.saturated = true;
    new.run.stop = "interrupted".to_owned();
    new.metrics.remove(0);
    let comparison = compare(&base, &new, 0.05);
    assert_eq!(comparison.warnings.len(), 3, "{:?}", comparison.warnings);
    assert_eq!((comparison.only_in_base, comparison.only_in_new), (vec!["browse".to_owned()], vec![]));
}

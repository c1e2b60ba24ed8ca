//! Tests of the terminal summary.

use crate::sample_run::{Finished, Recipe, Target, fleet, shop, threshold_result};
use squall_metrics::{MetricKey, MetricKind, MetricView};
use squall_model::StopReason;
use squall_report::{ScheduleRule, TerminalStyle, html, summary, warning_lines};
use std::sync::Arc;

#[test]
fn summary_of_a_run_with_errors_and_a_breached_threshold() {
    let mut finished = shop();
    finished.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(48.2e6), true, None),
        threshold_result("checkout:p95[10s]<100ms", Some(67.1e6), true, None),
        threshold_result("error_rate<1%", Some(0.0158), false, Some(15)),
    ];
    insta::assert_snapshot!(summary(&finished.run(), TerminalStyle::PLAIN));
}

#[test]
fn summary_of_a_saturated_generator() {
    let mut finished = Recipe { warm_up: 5, ..Recipe::default() }.make();
    finished.view.engine.dropped = 1234;
    finished.facts.generator.saturated = true;
    finished.facts.generator.saturated_because = vec!["one thread was busy 99 % of the time: add --threads".to_owned()];
    insta::assert_snapshot!(summary(&finished.run(), TerminalStyle { colour: false, width: 72 }));
}

#[test]
fn single_reason_of_the_generator_is_the_whole_warning() {
    let mut finished = shop();
    finished.facts.generator.saturated = true;
    let reason =
        "6 of 175 starts were more than 10 ms late, which added up to 9.6 ms to p99 (12.3 ms): stop other programs";
    finished.facts.generator.saturated_because = vec![reason.to_owned()];
    let text = summary(&finished.run(), TerminalStyle { colour: false, width: 160 });
    assert!(text.contains(&format!("\n\n  ! {reason}\n\n")), "{text}");
    finished.facts.generator.saturated_because.push("the generator used 99 % of its 2 core(s)".to_owned());
    let text = summary(&finished.run(), TerminalStyle { colour: false, width: 160 });
    assert!(text.contains("  ! The generator could not keep its schedule") && text.contains("  · 6 of 175"), "{text}");
}

#[test]
fn missing_starts_are_mentioned_once() {
    let mut finished = shop();
    finished.view.engine.dropped = 30;
    finished.facts.generator.saturated = true;
    let reason = "30 starts never happened because all 1 users were busy: raise --max-users or lower the rate";
    finished.facts.generator.saturated_because = vec![reason.to_owned()];
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert_eq!(text.matches("never happened").count(), 1, "{text}");
}

#[test]
fn warnings_name_lost_workers_and_the_limit_of_the_generator() {
    let wide = TerminalStyle { colour: false, width: 160 };
    assert_eq!(warning_lines(&shop().run(), wide), "");
    let lost = warning_lines(&fleet().run(), wide);
    let expected = "  ! 3 workers, 1 lost, 1 left before the end\n  ! w2 was lost after 15.3 s: 1,500 requests are \
                    reported, up to 131 requests that it sent are missing\n  ! 412 starts that were due are not reported: \
                    no worker held them, or lost workers made up to 131 of them\n";
    assert_eq!(lost, expected, "the verdict names the missing starts once more");
    let mut finished = shop();
    finished.facts.generator.saturated = true;
    finished.facts.generator.saturated_because = vec!["the generator used 99 % of its core".to_owned()];
    assert_eq!(warning_lines(&finished.run(), wide), "\n  ! the generator used 99 % of its core\n");
    finished.schedule_rule = ScheduleRule::AllowMissing;
    assert_eq!(warning_lines(&finished.run(), wide), "");
}

/// A run whose metrics have these names, all with the samples of one; figures of pages are custom metrics.
fn with_metrics(names: &[String]) -> Finished {
    let mut finished = shop();
    let one = finished.view.metrics[0].clone();
    let metric = |name: &String| {
        let kind = if name.contains(':') { MetricKind::Custom } else { MetricKind::Request };
        MetricView { key: Arc::new(MetricKey { kind, ..MetricKey::request(name) }), ..one.clone() }
    };
    finished.view.metrics = names.iter().map(metric).collect();
    finished
}

/// The first words of the rows of metrics, which are those with a rate.
fn metric_rows(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.contains("/s ") && line.contains('/'));
    rows.filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("buy") || *name == "api")
        .collect()
}

#[test]
fn figures_of_pages_follow_their_step_and_layout_shifts_have_no_unit() {
    let names = ["buy/home:ttfb", "buy/home", "api", "buy/pay", "buy/home:cls", "buy/pay:lcp", "api:other"];
    let finished = with_metrics(&names.map(str::to_owned));
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    let expected = ["buy/home", "buy/home:ttfb", "buy/home:cls", "api", "buy/pay", "buy/pay:lcp"];
    assert_eq!(metric_rows(&text), expected, "{text}");
    let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
    assert!(row("buy/home:ttfb").contains(" ms") && !row("buy/home:cls").contains(" ms"), "{text}");
    let page = html(&finished.run());
    let at = |name: &str| page.find(&format!("<td>{name}")).expect(name);
    assert!(at("buy/home<") < at("buy/home:cls") && at("buy/home:cls") < at("api<"), "the page has the same order");
}

#[test]
fn summary_of_many_figures_of_pages_shows_the_steps_first() {
    let steps: Vec<String> = (0..20).map(|n| format!("buy/step{n:02}")).collect();
    let figures = steps.iter().flat_map(|step| [format!("{step}:lcp"), format!("{step}:cls")]);
    let finished = with_metrics(&steps.iter().cloned().chain(figures).collect::<Vec<_>>());
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    let rows = metric_rows(&text);
    assert!(rows.len() == 30 && rows[..20] == steps && rows[20] == "buy/step00:lcp", "{text}");
}

/// The verdict must not scroll off the screen after hundreds of names.
#[test]
fn summary_of_many_metrics_shows_the_failing_and_the_busiest() {
    let mut finished = shop();
    let one = finished.view.metrics[0].clone();
    finished.view.metrics = (0..500)
        .map(|n| {
            let mut metric = one.clone();
            metric.key = std::sync::Arc::new(MetricKey { name: format!("series-{n:03}"), ..(*one.key).clone() });
            (metric.requests, metric.errors) = (1000 + n, u64::from(n == 7));
            metric
        })
        .collect();
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    let shown: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with("series-")).collect();
    assert_eq!(shown.len(), 30, "{text}");
    assert_eq!((shown[0], shown[1], shown[29]), ("series-007", "series-499", "series-471"));
    assert!(text.contains("… and 470 more; --json has them all"), "{text}");
}

/// The end of a message often names the cause; a pipe has no width limit.
#[test]
fn error_messages_are_wrapped_not_truncated() {
    let mut finished = shop();
    let long = format!("expected $.items[0].name to be \"{}\", got the end", "x".repeat(150));
    finished.view.errors.iter_mut().for_each(|note| note.message = long.clone());
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    let part = text.split_once("what went wrong").unwrap().1;
    assert!(part.split_whitespace().collect::<String>().contains(&long.replace(' ', "")), "{text}");
}

/// The message of a failed check may contain a whole response body.
#[test]
fn long_error_message_keeps_its_first_and_last_lines() {
    let mut finished = shop();
    let long = format!("the beginning {}the end", "more ".repeat(400));
    finished.view.errors.iter_mut().for_each(|note| note.message = long.clone());
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    let part = text.split_once("what went wrong").unwrap().1;
    assert!(part.contains("the beginning") && part.contains("the end") && part.contains("more lines; --json has them"));
    let lines = part.lines().filter(|line| line.contains("more more")).count();
    assert!(lines <= 12 * finished.view.errors.len(), "{text}");
}

#[test]
fn passed_run_with_only_errors_suggests_a_threshold() {
    let mut finished = shop();
    finished.view.all.errors = finished.view.all.requests;
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("100 % of the requests failed"), "{text}");
}

#[test]
fn summary_of_an_unreachable_target() {
    let finished = Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make();
    insta::assert_snapshot!(summary(&finished.run(), TerminalStyle::PLAIN));
}

#[test]
fn summary_of_a_fleet_that_lost_a_worker() {
    insta::assert_snapshot!(summary(&fleet().run(), TerminalStyle { colour: false, width: 90 }));
}

#[test]
fn starts_of_lost_workers_are_reported_as_an_upper_bound() {
    let mut finished = fleet();
    finished.facts.lost_at_most = 500;
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("· up to 412 starts were due and never happened"), "{text}");
    assert!(text.contains("The generator may not have made all the load"), "{text}");
    finished.facts.lost_at_most = 0;
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("· 412 starts were due and never happened"), "{text}");
}

#[test]
fn summary_of_a_run_without_measurements() {
    let mut finished = Recipe { seconds: 2, warm_up: 2, ..Recipe::default() }.make();
    finished.facts.stop = StopReason::Interrupted;
    insta::assert_snapshot!(summary(&finished.run(), TerminalStyle::PLAIN));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut finished = shop();
    finished.facts.thresholds = vec![
        threshold_result("checkout:p95[10s]<100ms", Some(67.1e6), true, None),
        threshold_result("error_rate<1%", Some(0.0158), false, Some(15)),
    ];
    for width in [36, 40, 60, 70, 80, 100, 140] {
        let text = summary(&finished.run(), TerminalStyle { colour: false, width });
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(widest.chars().count() <= width, "{width} columns, but: {widest}\n{text}");
    }
}

#[test]
fn coloured_summary_without_codes_equals_the_plain_one() {
    let finished = shop();
    let painted = summary(&finished.run(), TerminalStyle { colour: true, width: 100 });
    assert!(painted.contains("\x1b["));
    let mut plain = String::new();
    let mut rest = painted.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain += before;
        rest = after.split_once('m').expect("every sequence ends").1;
    }
    assert_eq!(plain + rest, summary(&finished.run(), TerminalStyle::PLAIN));
}

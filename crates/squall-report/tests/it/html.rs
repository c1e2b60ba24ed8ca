//! Tests of the HTML report: complete, self-contained and escaped.

use crate::sample_run::{Finished, Recipe, Target, fleet, shop, threshold_result};
use squall_metrics::MetricKey;
use squall_model::{FleetEvent, FleetEventKind, LoadModel, Pause, Profile};
use squall_report::{ResultFile, TerminalStyle, build_result, compare, comparison_html, html};
use std::time::Duration;

/// Checks that every tag is closed in order and attributes are quoted. Skips scripts and styles.
#[track_caller]
fn assert_well_formed(page: &str) {
    const VOID: [&str; 1] = ["meta"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!doctype html>").expect("a doctype");
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("every tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "an attribute of <{tag}> is not closed");
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes something else");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if name == "script" || name == "style" {
                let end = format!("</{name}>");
                rest = &rest[rest.find(&end).expect("scripts and styles end")..];
            }
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "left open");
}

#[track_caller]
fn check(finished: &Finished) -> String {
    let page = html(&finished.run());
    assert_well_formed(&page);
    for bad in ["NaN", "inf\"", "inf ", "-inf", "<link", " src=", "href=", "url(", "@import", "fetch("] {
        assert!(!page.contains(bad), "`{bad}` in the page");
    }
    let data = page.split_once("id=\"seconds\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).expect("the seconds are JSON");
    let lengths: Vec<_> = data.as_object().unwrap().values().map(|list| list.as_array().unwrap().len()).collect();
    assert!(lengths.iter().all(|n| *n == lengths[0] && *n <= 900), "{lengths:?}");
    page
}

#[test]
fn rate_chart_includes_the_warm_up() {
    let page = check(&Recipe { seconds: 6, warm_up: 3, ..Recipe::default() }.make());
    let data = page.split_once("id=\"seconds\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert!(data["rate"].as_array().unwrap().iter().all(|rate| rate.as_f64() == Some(200.0)), "{}", data["rate"]);
}

#[test]
fn run_with_errors_has_every_section() {
    let mut finished = Recipe { phases: true, ..Recipe::default() }.make();
    finished.facts.thresholds = vec![threshold_result("error_rate<1%", Some(0.0165), false, Some(15))];
    let page = check(&finished);
    for part in [
        "1 of 1 thresholds breached",
        "<b>6,000</b>",
        "<b>200/s</b>",
        "<b>1.65 %</b>",
        "error_rate&lt;1%",
        "Requests per second",
        "Response time",
        "Errors per second",
        "Response time distribution",
        "Latency by percentile",
        "purchase › checkout tier=gold",
        "HTTP_503",
        "sent = recorded = reported 6,000",
        "Where the time goes",
        "first byte",
        "squall run shop.toml --json result.json",
    ] {
        assert!(page.contains(part), "`{part}` is missing");
    }
    assert_eq!(page.matches("<figure>").count(), 8);
}

#[test]
fn names_and_messages_are_escaped() {
    let mut finished = shop();
    let attack = "</script><script>alert('x')</script><img src=x onerror=\"alert(1)\">";
    finished.plan.name = format!("a name {attack}");
    finished.plan.target = attack.to_owned();
    finished.view.errors[0].message = attack.to_owned();
    std::sync::Arc::make_mut(&mut finished.view.metrics[0].key).name = attack.to_owned();
    let mut hostile = threshold_result("p99<1s", Some(1.0), true, None);
    hostile.threshold.metric = Some(attack.to_owned());
    finished.facts.thresholds = vec![hostile];
    finished.facts.generator.saturated = true;
    finished.facts.generator.saturated_because = vec![attack.to_owned()];
    let mut run = finished.run();
    run.command = Some(attack);
    run.version = attack;
    let page = html(&run);
    assert_well_formed(&page);
    assert!(!page.contains("<img") && !page.contains("<script>alert") && !page.contains("onerror=\"alert"));
    assert_eq!(page.matches("&lt;img src=x").count(), 9);
}

#[test]
fn fleet_section_lists_workers_and_escapes_their_events() {
    let mut finished = fleet();
    let page = check(&finished);
    let parts =
        ["<h2>Workers</h2>", "w2-5f3a", "<td class=\"bad\">lost</td>", "412 starts", "15.3 s", "w2 was not heard of"];
    for part in parts {
        assert!(page.contains(part), "`{part}` is missing");
    }
    let facts = finished.facts.fleet.as_mut().unwrap();
    let worker = &mut facts.workers[0];
    for text in [&mut worker.id, &mut worker.instance, &mut facts.events[0].text] {
        *text = "<script>alert(1)</script>".to_owned();
    }
    let page = check(&finished);
    assert!(!page.contains("<script>alert"));
    assert!(!check(&shop()).contains("<h2>Workers</h2>"));
}

#[test]
fn unusual_runs_have_well_formed_pages() {
    check(&Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make());
    check(&Recipe { seconds: 1, rate: 2, ..Recipe::default() }.make());
    let nothing = check(&Recipe { seconds: 3, warm_up: 3, ..Recipe::default() }.make());
    assert!(nothing.contains("No request was measured"));
    let mut finished = Recipe { seconds: 1, ..Recipe::default() }.make();
    finished.view = squall_metrics::Collector::new([], 1).finish();
    check(&finished);
}

#[test]
fn long_runs_have_a_limited_number_of_points() {
    let page = check(&Recipe { seconds: 2000, rate: 4, failing: 5..9, ..Recipe::default() }.make());
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

/// What people mail and attach must stay small.
#[test]
fn ten_minutes_of_fifty_metrics_take_less_than_250_kb() {
    let mut finished = Recipe { seconds: 600, rate: 60, ..Recipe::default() }.make();
    let metrics = finished.view.metrics.clone();
    finished.view.metrics = (0..50)
        .map(|number| {
            let mut metric = metrics[number % metrics.len()].clone();
            metric.key = MetricKey::request(format!("GET /api/products/{number}")).into();
            metric
        })
        .collect();
    let page = check(&finished);
    assert!(page.len() < 250_000, "{} bytes", page.len());
}

#[test]
fn heatmap_has_a_column_for_each_second_and_rows_of_times() {
    let page = check(&Recipe { seconds: 30, ..Recipe::default() }.make());
    let chart = page.split_once("<b>Where the times fell</b>").unwrap().1.split_once("</svg>").unwrap().0;
    let paths: Vec<&str> = chart.split("<path class=\"heat-").skip(1).collect();
    assert!(paths.len() > 4, "{} levels of darkness", paths.len());
    let cells = paths.iter().flat_map(|path| path.split_once("d=\"M").unwrap().1.split('"').next().unwrap().split('M'));
    let ends: Vec<usize> = cells
        .map(|cell| {
            let (x, rest) = cell.split_once(' ').unwrap();
            let width = rest.split_once('h').unwrap().1.split('v').next().unwrap();
            x.parse::<usize>().unwrap() + width.parse::<usize>().unwrap()
        })
        .collect();
    assert_eq!(ends.iter().max(), Some(&30));
    for class in ["line heat-line", "line heat-line high"] {
        assert!(chart.contains(&format!("class=\"{class}\"")), "{class}");
    }
}

#[test]
fn events_are_flags_in_every_chart_over_time_and_rows_of_a_list() {
    let mut finished = fleet();
    finished.facts.thresholds = vec![threshold_result("error_rate<1%", Some(0.0165), false, Some(18))];
    let page = check(&finished);
    for (letter, text) in
        [('A', "w2 was not heard of"), ('B', "threshold error_rate&lt;1% was breached"), ('C', "w3 left")]
    {
        assert_eq!(page.matches(&format!(">{letter}</text>")).count(), 6, "{letter}");
        let row = format!("<b class=\"letter\">{letter}</b>");
        let (_, rest) = page.split_once(&row).unwrap_or_else(|| panic!("{letter}"));
        assert!(rest.split("</tr>").next().unwrap().contains(text), "{text}");
    }
}

#[test]
fn letters_of_events_in_the_same_second_stand_beside_each_other() {
    let mut finished = fleet();
    let fleet = finished.facts.fleet.as_mut().unwrap();
    let noted = |t_s: f64| FleetEvent::new(t_s, FleetEventKind::Note, format!("note of {t_s}"));
    fleet.events = vec![noted(5.0), noted(5.01), noted(5.02), noted(12.0)];
    let page = check(&finished);
    let chart = page.split_once("<b>Requests per second</b>").unwrap().1.split_once("</svg>").unwrap().0;
    let texts = chart.split("class=\"flag middle\" x=\"").skip(1);
    let letters: Vec<f64> = texts.map(|text| text.split('"').next().unwrap().parse().unwrap()).collect();
    assert_eq!(letters.len(), 4);
    assert!(letters.windows(2).all(|pair| pair[1] - pair[0] >= 12.0), "{letters:?}");
}

fn result_of(recipe: Recipe) -> ResultFile {
    build_result(&recipe.make().run())
}

#[test]
fn comparison_page_has_the_numbers_of_the_terminals_table() {
    let recipe =
        |seed, slowness| Recipe { seed, slowness, seconds: 40, failing: 0..0, drift: 0.02, ..Recipe::default() };
    let (base, new) = (result_of(recipe(1, 1.0)), result_of(recipe(2, 1.4)));
    let comparison = compare(&base, &new, 0.05);
    assert!(comparison.regressed());
    let page = comparison_html(&comparison, &base, &new);
    assert_well_formed(&page);
    for bad in ["NaN", "<script", "<link", " src=", "href=", "url("] {
        assert!(!page.contains(bad), "`{bad}` in the page");
    }
    let view = comparison.view(&base, &new);
    let table = comparison.table(TerminalStyle { colour: false, width: 200 });
    assert!(table.contains(&view.headline) && page.contains(&view.headline));
    for row in &view.rows {
        for text in [&row.base, &row.new, &row.change, &row.interval, &row.p] {
            assert!(table.contains(text.as_str()) && page.contains(&text.replace('<', "&lt;")), "{text}");
        }
    }
    assert!(view.rows.iter().any(|row| row.range.is_some_and(|[low, _, _]| low > 0.05)));
    assert!(page.contains("class=\"point bad\""));
    let load = view.facts.iter().find(|fact| fact.what == "Load").unwrap();
    assert!(!load.differs && load.base == "200/s for 40s");
    let at_p99 = |points: &[(f64, f64)]| points.iter().find(|(p, _)| *p >= 99.0).unwrap().1;
    assert!((at_p99(&view.new.percentiles) / new.latency_ms.response.p99 - 1.0).abs() < 0.05);
    assert_eq!(view.base.t_s.len(), 40);
}

#[test]
fn closed_model_has_no_target_rate() {
    let mut finished = shop();
    let users = Profile::constant(36.0, Duration::from_secs(30)).unwrap();
    finished.plan.load.model = LoadModel::Closed { users, pause: Pause::Fixed(Duration::from_millis(500)) };
    let page = check(&finished);
    assert!(page.contains("36 users for 30s, pausing 500ms · closed load"));
    assert!(!page.contains("asked for"));
}

#[test]
fn target_that_equals_the_name_is_shown_once() {
    let mut finished = shop();
    assert!(check(&finished).contains("<p class=\"what\">"));
    finished.plan.name = format!("{}/health", finished.plan.target);
    assert!(!check(&finished).contains("<p class=\"what\">"));
}

/// A line without length would be invisible.
#[test]
fn run_of_one_second_has_visible_lines() {
    let page = check(&Recipe { seconds: 1, rate: 20, failing: 0..0, ..Recipe::default() }.make());
    for class in ["rate", "target", "users", "p50", "p95", "p99"] {
        let (_, rest) =
            page.split_once(&format!("class=\"line {class}\" d=\"M60.0 ")).unwrap_or_else(|| panic!("{class}"));
        let path = rest.split('"').next().unwrap();
        assert!(path.contains("L580.0 "), "{class} ends at {path}");
    }
}

#[test]
fn bars_end_below_the_percentile_labels() {
    let page = check(&shop());
    let chart = page.split_once("<b>Response time distribution</b>").unwrap().1.split_once("</svg>").unwrap().0;
    let places = |class: &str| -> Vec<f64> {
        let of_class = chart.split(class).skip(1);
        of_class.map(|rest| rest.split_once(" y=\"").unwrap().1.split('"').next().unwrap().parse().unwrap()).collect()
    };
    let (labels, bars) = (places("class=\"label"), places("class=\"bar"));
    assert!(labels.len() == 3 && bars.len() > 3, "{labels:?} {bars:?}");
    let (lowest_label, highest_bar) =
        (labels.iter().copied().fold(0.0, f64::max), bars.into_iter().fold(f64::MAX, f64::min));
    assert!(lowest_label < highest_bar, "{lowest_label} {highest_bar}");
}

#[test]
fn target_line_is_absent_if_iterations_make_several_requests() {
    let mut finished = shop();
    assert_eq!(finished.view.engine.iterations, finished.view.all.requests);
    assert!(check(&finished).contains("asked for"));
    finished.view.engine.iterations /= 2;
    assert!(!check(&finished).contains("asked for"));
}

#[test]
fn cards_fill_their_rows() {
    let mut finished = shop();
    finished.view.engine.dropped = 1200;
    let page = check(&finished);
    assert_eq!(page.matches("class=\"card ").count() % 4, 0);
    assert!(page.contains("<small>1,200 dropped, "));
}

#[test]
fn page_without_errors_has_a_note() {
    let mut recipe = Recipe { failing: 0..0, seconds: 5, rate: 10, ..Recipe::default() };
    recipe.seed = 3;
    let page = check(&recipe.make());
    assert!(page.contains("No errors"));
}

//! Defines the exported metric families and their names. Both formats render these families, so
//! they always agree. It writes no format itself.

use squall_metrics::{Histogram, MetricKind, MetricView};
use squall_model::LoadModel;

use super::ScrapeInput;

/// Upper bounds of the classic buckets in seconds: 100 µs to a minute, about three per power of
/// ten.
pub(super) const BUCKET_BOUNDS: [f64; 18] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

pub(super) type LabelPairs = Vec<(String, String)>;

/// All samples of one name.
pub(super) struct MetricFamily<'a> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) series: FamilySamples<'a>,
}

pub(super) enum FamilySamples<'a> {
    Counter(Vec<(LabelPairs, f64)>),
    Gauge(Vec<(LabelPairs, f64)>),
    Histogram(Vec<(LabelPairs, &'a Histogram)>),
}

pub(super) fn families<'a>(scrape: &ScrapeInput<'a>) -> Vec<MetricFamily<'a>> {
    let mut families = run_families(scrape);
    families.extend(engine_families(scrape));
    families.extend(per_metric_families(&scrape.view.metrics));
    if let Some(generator) = scrape.generator {
        let (cpu, rss) = (generator.cpu_s, generator.max_rss_bytes as f64);
        families.push(counter("squall_generator_cpu_seconds_total", "CPU time of the generator.", cpu));
        families.push(gauge("squall_generator_max_rss_bytes", "Most memory the generator has held.", rss));
        let saturated = f64::from(u8::from(generator.saturated));
        families.push(gauge("squall_generator_saturated", "1 if the generator cannot keep up.", saturated));
    }
    families
}

fn run_families<'a>(scrape: &ScrapeInput<'a>) -> Vec<MetricFamily<'a>> {
    let plan = scrape.plan;
    let labels = [("scenario", plan.name.as_str()), ("target", &plan.target), ("version", scrape.version)];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let level = plan.load.model.profile().level(scrape.elapsed);
    let target = match plan.load.model {
        LoadModel::Open { .. } => gauge("squall_target_rate", "Iterations per second that the load asks for.", level),
        LoadModel::Closed { .. } => gauge("squall_target_users", "Virtual users that the load asks for.", level),
    };
    vec![
        MetricFamily {
            name: "squall_run_info",
            help: "What is being run.",
            series: FamilySamples::Gauge(vec![(labels, 1.0)]),
        },
        gauge("squall_elapsed_seconds", "Time since the start of the run.", scrape.elapsed.as_secs_f64()),
        target,
    ]
}

fn engine_families<'a>(scrape: &ScrapeInput<'a>) -> Vec<MetricFamily<'a>> {
    let engine = &scrape.view.engine;
    let lag = FamilySamples::Histogram(vec![(LabelPairs::new(), &engine.schedule_lag)]);
    vec![
        gauge("squall_users", "Virtual users alive.", engine.users as f64),
        gauge("squall_users_busy", "Virtual users in an iteration.", engine.busy as f64),
        counter("squall_sent_total", "Requests begun, unsent ones and the warm-up included.", engine.begun as f64),
        counter("squall_warm_up_total", "Requests kept out of the results as warm-up.", engine.warm_up_requests as f64),
        counter("squall_iterations_total", "Iterations started.", engine.iterations as f64),
        counter("squall_dropped_total", "Starts that were due and never happened.", engine.dropped as f64),
        counter("squall_late_total", "Starts that happened later than allowed.", engine.late as f64),
        MetricFamily {
            name: "squall_schedule_lag_seconds",
            help: "How late the engine was for each start.",
            series: lag,
        },
    ]
}

fn per_metric_families(metrics: &[MetricView]) -> Vec<MetricFamily<'_>> {
    let numbers = |of: fn(&MetricView) -> f64| {
        FamilySamples::Counter(metrics.iter().map(|metric| (labels(metric), of(metric))).collect::<Vec<_>>())
    };
    let times = |of: fn(&MetricView) -> &Histogram| {
        FamilySamples::Histogram(metrics.iter().map(|metric| (labels(metric), of(metric))).collect())
    };
    let outcomes = metrics.iter().flat_map(|metric| {
        metric.outcomes.iter().map(|(outcome, &n)| {
            let mut labels = labels(metric);
            labels.push(("category".to_owned(), outcome.category.name().to_owned()));
            labels.push(("code".to_owned(), outcome.code.to_string()));
            (labels, n as f64)
        })
    });
    let family = |name, help, series| MetricFamily { name, help, series };
    vec![
        family("squall_requests_total", "Requests ended.", numbers(|m| m.requests as f64)),
        family("squall_errors_total", "Requests that failed.", numbers(|m| m.errors as f64)),
        family("squall_outcomes_total", "Requests by how they ended.", FamilySamples::Counter(outcomes.collect())),
        family("squall_received_bytes_total", "Bytes received.", numbers(|m| m.bytes_in as f64)),
        family("squall_sent_bytes_total", "Bytes sent.", numbers(|m| m.bytes_out as f64)),
        family("squall_response_seconds", "Time from the intended start to the end.", times(|m| &m.response)),
        family("squall_service_seconds", "Time from the actual start to the end.", times(|m| &m.service)),
    ]
}

/// The labels of a metric. Tags get the prefix `tag_`, so that they cannot collide with other
/// labels.
fn labels(metric: &MetricView) -> LabelPairs {
    let key = &metric.key;
    let kind = match key.kind {
        MetricKind::Request => "request",
        MetricKind::Group => "group",
        MetricKind::Custom => "custom",
    };
    let mut labels = vec![("metric".to_owned(), key.name.clone()), ("kind".to_owned(), kind.to_owned())];
    labels.extend(key.group.iter().map(|group| ("group".to_owned(), group.clone())));
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut tags = std::collections::BTreeMap::new();
    for (name, value) in &key.tags {
        let mut label = format!("tag_{}", name.chars().map(legal).collect::<String>());
        // Two tags may map to one label name, and the scraper rejects a repeated label.
        while tags.contains_key(&label) {
            label.push('_');
        }
        tags.insert(label, value.clone());
    }
    labels.extend(tags);
    labels
}

fn counter(name: &'static str, help: &'static str, value: f64) -> MetricFamily<'static> {
    MetricFamily { name, help, series: FamilySamples::Counter(vec![(LabelPairs::new(), value)]) }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> MetricFamily<'static> {
    MetricFamily { name, help, series: FamilySamples::Gauge(vec![(LabelPairs::new(), value)]) }
}

/// For each of [`BUCKET_BOUNDS`], the number of values at or below it.
pub(super) fn cumulative_counts(histogram: &Histogram) -> [u64; BUCKET_BOUNDS.len()] {
    let mut counts = [0; BUCKET_BOUNDS.len()];
    for (_, highest, n) in histogram.ranges() {
        let bound = BUCKET_BOUNDS.iter().position(|bound| highest as f64 <= bound * 1e9);
        if let Some(at) = bound {
            counts[at] += n;
        }
    }
    for at in 1..counts.len() {
        counts[at] += counts[at - 1];
    }
    counts
}

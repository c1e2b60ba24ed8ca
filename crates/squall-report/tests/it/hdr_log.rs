//! Tests that parse the HDR log with the reader of the HdrHistogram library.

use crate::sample_run::{Finished, Recipe};
use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use squall_metrics::{Collector, Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
use squall_report::HdrLogWriter;
use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

/// Writes a run's log, with one call every `stride` seconds.
fn write_log(recipe: Recipe, stride: usize) -> (Finished, String, usize) {
    let start = UNIX_EPOCH + Duration::from_millis(1_794_779_763_250);
    let mut log = HdrLogWriter::new(Vec::new(), start).unwrap();
    let finished = recipe.watch(|view| {
        if view.timeline.len() % stride == 0 {
            log.write_new_seconds(view, Duration::from_secs(view.timeline.len() as u64)).unwrap();
        }
    });
    log.write_new_seconds(&finished.view, finished.facts.elapsed).unwrap();
    let lost = log.lost_seconds();
    (finished, String::from_utf8(log.finish().unwrap()).unwrap(), lost)
}

/// The sum of the intervals of each tag, and their number.
fn read_log(text: &str) -> BTreeMap<String, (Histogram<u64>, usize)> {
    let mut tags = BTreeMap::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(interval) = entry.expect("the log parses") else { continue };
        assert_eq!(interval.duration(), Duration::from_secs(1));
        let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert!((histogram.max() as f64 / 1e6 - interval.max()).abs() <= 0.001 * interval.max() + 0.001);
        let tag = interval.tag().map_or(String::new(), |tag| tag.as_str().to_owned());
        let (sum, intervals) = tags.entry(tag).or_insert_with(|| (Histogram::new(3).unwrap(), 0));
        sum.add(histogram).unwrap();
        *intervals += 1;
    }
    tags
}

#[test]
fn log_has_every_second_of_every_metric() {
    let (finished, text, _) = write_log(Recipe::default(), 1);
    let tags = read_log(&text);
    let (all, intervals) = &tags[""];
    assert_eq!((all.len(), *intervals), (6000, 30));
    for (tag, name) in [("browse", "browse"), ("purchase/login", "login"), ("purchase/checkout;tier=gold", "checkout")]
    {
        let metric = finished.view.metric(name).unwrap();
        for (suffix, histogram) in [("rt", &metric.response), ("st", &metric.service), ("wt", &metric.wait)] {
            let (read, _) = &tags[&format!("{tag}-{suffix}")];
            assert_eq!(read.len(), histogram.count(), "{tag}-{suffix}");
            let (theirs, ours) = (read.value_at_quantile(0.99) as f64, histogram.percentile(99.0) as f64);
            assert!((theirs - ours).abs() <= 0.001 * ours, "{tag}-{suffix}: {theirs} for {ours}");
        }
    }
    let head: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    insta::assert_snapshot!(head);
}

#[test]
fn seconds_that_close_together_are_written_as_separate_intervals() {
    let (_, every, _) = write_log(Recipe::default(), 1);
    let (_, rarely, lost) = write_log(Recipe::default(), 7);
    assert_eq!((every == rarely, lost), (true, 0));
}

#[test]
fn dropped_seconds_leave_a_comment_in_the_log() {
    let (_, text, lost) = write_log(Recipe::default(), 25);
    assert_eq!((lost, read_log(&text)[""].1), (15, 15));
    assert!(text.contains("#[15 seconds from 0 s on are missing here]"));
}

/// `a b` and `a,b` would map to one tag, and readers would add them up.
#[test]
fn metrics_with_colliding_tag_names_get_distinct_tags() {
    let source = SourceId { instance: 0, thread: 0 };
    let mut collector = Collector::new([source], 5);
    let mut log = HdrLogWriter::new(Vec::new(), UNIX_EPOCH).unwrap();
    for second in 0..2 {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        for (name, requests) in [("a b", 1), ("a,b", 2), ("a_b", 3)] {
            let metric = recorder.metric(MetricKey::request(name));
            for _ in 0..requests {
                recorder.count_begun();
                let (wait, service) = (Duration::ZERO, Duration::from_millis(1));
                let (outcome, bytes_in, bytes_out, due_in_warm_up) = (Outcome::of_status(200), 0, 0, false);
                recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up });
            }
        }
        let (metrics, errors, engine) = recorder.harvest(1, 1);
        let (seq, last) = (u64::from(second), second == 1);
        collector.merge(Delta { source, seq, second, metrics, errors, engine, last }).unwrap();
        log.write_new_seconds(collector.view(), Duration::from_secs(u64::from(second) + 1)).unwrap();
    }
    let tags = read_log(&String::from_utf8(log.finish().unwrap()).unwrap());
    let counts: Vec<_> = tags.iter().filter(|(tag, _)| tag.contains("-rt")).map(|(_, (sum, _))| sum.len()).collect();
    let mut sorted = counts.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [2, 4, 6], "{:?}", tags.keys());
}

#[test]
fn partial_second_is_a_shorter_interval() {
    let finished = Recipe { seconds: 1, ..Recipe::default() }.make();
    let mut log = HdrLogWriter::new(Vec::new(), std::time::UNIX_EPOCH).unwrap();
    log.write_new_seconds(&finished.view, Duration::from_millis(250)).unwrap();
    let text = String::from_utf8(log.finish().unwrap()).unwrap();
    assert!(text.lines().filter(|line| line.contains("HISTF")).all(|line| line.contains("0.000,0.250,")), "{text}");
}

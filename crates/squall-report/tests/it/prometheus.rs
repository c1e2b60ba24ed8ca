//! Tests of both Prometheus formats, with a minimal protobuf decoder.

use crate::sample_run::{Finished, Recipe};
use squall_report::prometheus::{ScrapeInput, protobuf, text};
use std::time::Duration;

fn scrape(finished: &Finished) -> ScrapeInput<'_> {
    ScrapeInput {
        view: &finished.view,
        plan: &finished.plan,
        elapsed: Duration::from_secs(12),
        generator: Some(&finished.facts.generator),
        version: "0.1.0",
    }
}

fn small_run() -> Finished {
    Recipe { seconds: 2, rate: 50, ..Recipe::default() }.make()
}

#[test]
fn text_matches_the_exposition_format() {
    insta::assert_snapshot!(text(&scrape(&small_run())));
}

#[test]
fn labels_are_escaped() {
    let mut finished = small_run();
    std::sync::Arc::make_mut(&mut finished.view.metrics[0].key).name = "a\"b\\c\nd".to_owned();
    assert!(text(&scrape(&finished)).contains(r#"squall_requests_total{metric="a\"b\\c\nd",kind="request"}"#));
}

#[test]
fn tags_with_colliding_label_names_keep_their_values() {
    let mut finished = small_run();
    let key = std::sync::Arc::make_mut(&mut finished.view.metrics[0].key);
    key.tags = [("k y", "1"), ("k-y", "2"), ("k_y", "3")].map(|(name, value)| (name.into(), value.into())).into();
    let text = text(&scrape(&finished));
    assert!(text.contains("tag_k_y=\"1\",tag_k_y_=\"2\",tag_k_y__=\"3\""), "{text}");
}

#[test]
fn classic_buckets_are_cumulative() {
    let finished = small_run();
    let text = text(&scrape(&finished));
    let browse = |suffix: &str| -> Vec<f64> {
        let head = format!("squall_response_seconds_{suffix}{{metric=\"browse\"");
        text.lines().filter(|l| l.starts_with(&head)).map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let buckets = browse("bucket");
    assert!(buckets.is_sorted());
    let metric = finished.view.metric("browse").unwrap();
    assert_eq!(buckets.last(), Some(&(metric.requests as f64)));
    assert_eq!(browse("count"), [metric.requests as f64]);
    assert!((browse("sum")[0] - metric.response.sum() as f64 / 1e9).abs() < 1e-9);
}

#[derive(Debug, Clone)]
enum Wire {
    Integer(u64),
    Double(f64),
    Bytes(Vec<u8>),
}

type Fields = Vec<(u64, Wire)>;

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Fields {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Wire::Integer(varint(&mut bytes)),
            1 => {
                let (head, rest) = bytes.split_at(8);
                bytes = rest;
                Wire::Double(f64::from_le_bytes(head.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                Wire::Bytes(head.to_vec())
            }
            other => panic!("wire type {other} is not used"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn all(fields: &Fields, field: u64) -> Vec<Wire> {
    fields.iter().filter(|(number, _)| *number == field).map(|(_, value)| value.clone()).collect()
}

fn texts(fields: &Fields, field: u64) -> Vec<String> {
    messages(fields, field).into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

fn messages(fields: &Fields, field: u64) -> Vec<Vec<u8>> {
    all(fields, field)
        .into_iter()
        .map(|value| match value {
            Wire::Bytes(bytes) => bytes,
            other => panic!("{other:?} is not a message"),
        })
        .collect()
}

fn integers(fields: &Fields, field: u64) -> Vec<u64> {
    all(fields, field)
        .into_iter()
        .map(|value| match value {
            Wire::Integer(value) => value,
            other => panic!("{other:?} is not an integer"),
        })
        .collect()
}

fn doubles(fields: &Fields, field: u64) -> Vec<f64> {
    all(fields, field)
        .into_iter()
        .map(|value| match value {
            Wire::Double(value) => value,
            other => panic!("{other:?} is not a double"),
        })
        .collect()
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn families(mut bytes: &[u8]) -> Vec<Fields> {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        let length = varint(&mut bytes) as usize;
        let (head, rest) = bytes.split_at(length);
        families.push(fields(head));
        bytes = rest;
    }
    families
}

#[test]
fn protobuf_and_text_have_the_same_families() {
    let finished = small_run();
    let text = text(&scrape(&finished));
    let in_text: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).map(|l| l.split(' ').next().unwrap()).collect();
    let names: Vec<String> = families(&protobuf(&scrape(&finished))).iter().flat_map(|f| texts(f, 1)).collect();
    assert_eq!(names, in_text);
}

#[test]
fn native_histograms_count_every_request_in_its_bucket() {
    let finished = small_run();
    let families = families(&protobuf(&scrape(&finished)));
    let response = families.iter().find(|f| texts(f, 1) == ["squall_response_seconds"]).unwrap();
    assert_eq!(integers(response, 3), [4], "type histogram");
    let metric = fields(&messages(response, 4)[0]);
    let label = fields(&messages(&metric, 1)[0]);
    assert_eq!((texts(&label, 1), texts(&label, 2)), (vec!["metric".to_owned()], vec!["browse".to_owned()]));

    let histogram = fields(&messages(&metric, 7)[0]);
    let browse = finished.view.metric("browse").unwrap();
    assert_eq!(integers(&histogram, 1), [browse.requests]);
    assert_eq!(integers(&histogram, 5).into_iter().map(zigzag).collect::<Vec<_>>(), [4], "schema");
    assert_eq!((doubles(&histogram, 6).len(), integers(&histogram, 7)), (1, vec![0]));
    assert_eq!(messages(&histogram, 3).len(), 18, "classic buckets are there too");

    let mut indices = Vec::new();
    let mut at = 0i64;
    for span in messages(&histogram, 12).iter().map(|span| fields(span)) {
        at += zigzag(integers(&span, 1)[0]);
        let length = integers(&span, 2)[0] as i64;
        indices.extend(at..at + length);
        at += length;
    }
    let mut count = 0;
    let counts = integers(&histogram, 13).into_iter().map(|delta| {
        count += zigzag(delta);
        count
    });
    let buckets: Vec<(i64, i64)> = indices.into_iter().zip(counts).collect();
    assert!(buckets.iter().all(|(_, n)| *n > 0));
    assert_eq!(buckets.iter().map(|(_, n)| n).sum::<i64>(), browse.requests as i64);
    for (index, n) in &buckets {
        let upper = 2f64.powf(*index as f64 / 16.0) * 1e9;
        let lower = 2f64.powf((index - 1) as f64 / 16.0) * 1e9;
        let exact = browse.response.count_at_most(upper as u64) - browse.response.count_at_most(lower as u64);
        assert!(exact.abs_diff(*n as u64) <= 2, "bucket {index}: {n} for {exact}");
    }
}

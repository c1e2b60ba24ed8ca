//! Renders the protobuf exposition format: length-delimited `io.prometheus.client.MetricFamily`
//! messages whose histograms have classic and native buckets. The encoder is written by hand,
//! because the format has eight small messages that do not change.

use squall_metrics::Histogram;

use super::{
    ScrapeInput,
    metric_families::{BUCKET_BOUNDS, FamilySamples, LabelPairs, MetricFamily, cumulative_counts, families},
    native_histogram::{NATIVE_SCHEMA, NativeHistogram, ZERO_THRESHOLD},
};

/// The scrape as protobuf.
pub fn protobuf(scrape: &ScrapeInput<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families(scrape) {
        let message = family_message(&family);
        varint(&mut out, message.0.len() as u64);
        out.extend(message.0);
    }
    out
}

fn family_message(family: &MetricFamily<'_>) -> ProtobufMessage {
    let mut message = ProtobufMessage::default();
    message.text(1, family.name);
    message.text(2, family.help);
    match &family.series {
        FamilySamples::Counter(series) => {
            message.integer(3, 0);
            series.iter().for_each(|(labels, value)| message.message(4, number_metric(labels, 3, *value)));
        }
        FamilySamples::Gauge(series) => {
            message.integer(3, 1);
            series.iter().for_each(|(labels, value)| message.message(4, number_metric(labels, 2, *value)));
        }
        FamilySamples::Histogram(series) => {
            message.integer(3, 4);
            for (labels, histogram) in series {
                let mut metric = labelled_metric(labels);
                metric.message(7, histogram_message(histogram));
                message.message(4, metric);
            }
        }
    }
    message
}

/// A Metric with a Gauge or Counter in `field`.
fn number_metric(labels: &LabelPairs, field: u32, value: f64) -> ProtobufMessage {
    let mut metric = labelled_metric(labels);
    let mut inner = ProtobufMessage::default();
    inner.double(1, value);
    metric.message(field, inner);
    metric
}

fn labelled_metric(labels: &LabelPairs) -> ProtobufMessage {
    let mut metric = ProtobufMessage::default();
    for (name, value) in labels {
        let mut pair = ProtobufMessage::default();
        pair.text(1, name);
        pair.text(2, value);
        metric.message(1, pair);
    }
    metric
}

fn histogram_message(histogram: &Histogram) -> ProtobufMessage {
    let mut message = ProtobufMessage::default();
    message.integer(1, histogram.count());
    message.double(2, histogram.sum() as f64 / 1e9);
    for (bound, n) in BUCKET_BOUNDS.iter().zip(cumulative_counts(histogram)) {
        let mut bucket = ProtobufMessage::default();
        bucket.integer(1, n);
        bucket.double(2, *bound);
        message.message(3, bucket);
    }
    let native = NativeHistogram::from_histogram(histogram);
    message.signed(5, i64::from(NATIVE_SCHEMA));
    message.double(6, ZERO_THRESHOLD);
    message.integer(7, native.zeros);
    for (gap, length) in native.spans {
        let mut span = ProtobufMessage::default();
        span.signed(1, i64::from(gap));
        span.integer(2, u64::from(length));
        message.message(12, span);
    }
    native.deltas.iter().for_each(|delta| message.signed(13, *delta));
    message
}

/// The bytes of a protobuf message.
#[derive(Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn key(&mut self, field: u32, wire: u32) {
        varint(&mut self.0, u64::from(field << 3 | wire));
    }

    fn integer(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        varint(&mut self.0, value);
    }

    /// Zigzag encoding: small numbers of either sign are short.
    fn signed(&mut self, field: u32, value: i64) {
        self.integer(field, ((value << 1) ^ (value >> 63)) as u64);
    }

    fn double(&mut self, field: u32, value: f64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, message: ProtobufMessage) {
        self.bytes(field, &message.0);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

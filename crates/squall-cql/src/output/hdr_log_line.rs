//! The HdrHistogram log, version 1.3, in the form of cassandra-stress: one line per interval and
//! tag. `-st` tags hold service times, `-rt` response times and `-wt` wait times.

use super::java_number::fixed;
use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Serializer, V2DeflateSerializer},
};
use jiff::{Timestamp, tz::TimeZone};
use std::time::Duration;

/// The lines before the first interval. `start` is the time since 1970 at which the run began; the
/// log counts from its full second.
pub fn hdr_log_header(start: Duration) -> String {
    let seconds = start.as_secs();
    let date = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default();
    let date = date.to_zoned(TimeZone::UTC).strftime("%a %b %d %H:%M:%S UTC %Y");
    format!(
        "#Logging op latencies for Cassandra Stress\n\
         #[Histogram log format version 1.3]\n\
         #[BaseTime: {seconds}.000 (seconds since epoch)]\n\
         #[StartTime: {seconds}.000 (seconds since epoch), {date}]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
    )
}

/// The line of one interval, or `None` if nothing was recorded in it. `start` counts from the base
/// time; values are nanoseconds.
pub fn hdr_log_line(tag: &str, start: Duration, length: Duration, values: &Histogram<u64>) -> Option<String> {
    if values.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(values, &mut bytes).expect("a histogram fits into memory twice");
    let seconds = |time: Duration| fixed(time.as_secs_f64(), 3);
    let max = fixed(values.max() as f64 / 1e6, 3);
    Some(format!("Tag={tag},{},{},{max},{}\n", seconds(start), seconds(length), STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn the_header_equals_that_of_cassandra_stress() {
        let expected = "\
#Logging op latencies for Cassandra Stress
#[Histogram log format version 1.3]
#[BaseTime: 1794922492.000 (seconds since epoch)]
#[StartTime: 1794922492.000 (seconds since epoch), Tue Nov 17 13:34:52 UTC 2026]
\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"
";
        assert_eq!(hdr_log_header(Duration::from_millis(1_794_922_492_999)), expected);
    }

    #[test]
    fn a_line_has_milliseconds_and_a_histogram_that_is_read_back() {
        let mut values = Histogram::<u64>::new(3).unwrap();
        values.record_n(1_000_000, 10).unwrap();
        values.record(116_900_000).unwrap();
        let line = hdr_log_line("READ-st", Duration::from_secs(2), Duration::from_secs(1), &values).unwrap();
        let (start, payload) = line.trim_end().rsplit_once(',').unwrap();
        assert_eq!(start, "Tag=READ-st,2.000,1.000,116.916");
        assert!(payload.starts_with("HISTFAAA"), "{payload}");
        let bytes = STANDARD.decode(payload).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!((read.len(), read.max()), (11, values.max()));
    }

    #[test]
    fn an_empty_interval_has_no_line() {
        let values = Histogram::<u64>::new(3).unwrap();
        assert_eq!(hdr_log_line("READ-st", Duration::ZERO, Duration::from_secs(1), &values), None);
    }
}

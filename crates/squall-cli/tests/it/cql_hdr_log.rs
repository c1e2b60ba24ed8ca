//! The HdrHistogram log of `squall cql`, read back by PyPI's hdrhistogram, which shares no code with the
//! program.

use crate::support::TestFolder;
use squall_testkit::cassandra::Cassandra;
use std::{collections::BTreeMap, path::Path, process::Command};

/// Prints the tag, the number of values and the highest value of each interval.
const READ_LOG: &str = "\
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 3600 * 10**9, 3))
while (interval := reader.get_next_interval_histogram()) is not None:
    print(interval.get_tag(), interval.get_total_count(), interval.get_max_value())
";

fn python() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-hdrhistogram");
    let output = Command::new(script).output().expect("the script starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a path").trim().to_owned()
}

#[test]
fn an_independent_reader_finds_every_operation_in_the_hdr_log() {
    let folder = TestFolder::new();
    let port = format!("native={}", Cassandra::shared().port());
    let command = ["cql", "write", "n=450", "no-warmup", "-rate", "threads=8", "fixed=300/s"];
    let connection = ["-schema", "keyspace=hdr_log", "-node", "127.0.0.1", "-port", &port];
    let mode = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];
    let ended = folder.squall(&[&command[..], &connection, &mode, &["-log", "hdrfile=run.hdr"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    let log = folder.path("run.hdr");
    let read = Command::new(python()).args(["-c", READ_LOG]).arg(&log).output().expect("Python starts");
    assert!(read.status.success(), "{read:?}");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut highest: f64 = 0.0;
    for line in String::from_utf8(read.stdout).expect("text").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        *counts.entry(words[0].to_owned()).or_default() += words[1].parse::<u64>().expect("a count");
        if words[0] == "WRITE-rt" {
            highest = highest.max(words[2].parse().expect("nanoseconds"));
        }
    }
    let expected = ["WRITE-rt", "WRITE-st", "WRITE-wt"].map(|tag| (tag.to_owned(), 450));
    assert_eq!(counts, BTreeMap::from(expected));
    // The summary shows the response time of `fixed=`, in milliseconds with one decimal.
    let shown = ended.stdout.lines().find(|line| line.starts_with("Latency max")).expect("a summary");
    let shown: f64 = shown.split([':', 'm']).nth(2).and_then(|ms| ms.trim().parse().ok()).expect("milliseconds");
    assert!((highest / 1e6 - shown).abs() <= 0.1 + shown / 500.0, "{highest} ns, {shown} ms");
}

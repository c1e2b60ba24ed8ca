//! The summary at the end of a run: one line per figure, with the figure of each operation in
//! brackets.

use super::{
    java_number::{fixed, grouped, grouped_count},
    table::{Latencies, OperationRates},
};
use std::{fmt::Write, time::Duration};

/// The figures of one operation, or of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperationSummary<'n> {
    pub name: &'n str,
    pub rates: OperationRates,
    pub latencies: Latencies,
    pub partitions: u64,
    pub errors: u64,
}

const RATE_NAMES: [(&str, &str); 3] = [("Op rate", "op/s"), ("Partition rate", "pk/s"), ("Row rate", "row/s")];

const LATENCY_NAMES: [&str; 6] = [
    "Latency mean",
    "Latency median",
    "Latency 95th percentile",
    "Latency 99th percentile",
    "Latency 99.9th percentile",
    "Latency max",
];

/// The summary, with an empty line as its last. `operations` are in alphabetical order.
pub fn summary(all: &OperationSummary<'_>, operations: &[OperationSummary<'_>], elapsed: Duration) -> String {
    let mut text = "\n\nResults:\n".to_owned();
    let mut put = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<26}: {value}");
    };
    for (i, (name, unit)) in RATE_NAMES.into_iter().enumerate() {
        let list = brackets(operations, |operation| format!("{} {unit}", grouped(operation.rates.values()[i], 0)));
        // The brackets of the three rates stand below each other.
        put(name, format!("{:>8} {unit:<5} {list}", grouped(all.rates.values()[i], 0)));
    }
    for (i, name) in LATENCY_NAMES.into_iter().enumerate() {
        let list = brackets(operations, |operation| format!("{} ms", grouped(operation.latencies.values()[i], 1)));
        put(name, format!("{:>6} ms {list}", fixed(all.latencies.values()[i], 1)));
    }
    let partitions = brackets(operations, |operation| grouped_count(operation.partitions));
    put("Total partitions", format!("{:>10} {partitions}", grouped_count(all.partitions)));
    let errors = brackets(operations, |operation| grouped_count(operation.errors));
    put("Total errors", format!("{:>10} {errors}", grouped_count(all.errors)));
    put("Total GC count", "0".to_owned());
    put("Total GC memory", "0.000 KiB".to_owned());
    put("Total GC time", "   0.0 seconds".to_owned());
    put("Avg GC time", "   NaN ms".to_owned());
    put("StdDev GC time", "   0.0 ms".to_owned());
    put("Total operation time", clock(elapsed));
    text.push('\n');
    text
}

fn brackets(operations: &[OperationSummary<'_>], value: impl Fn(&OperationSummary<'_>) -> String) -> String {
    let values: Vec<String> =
        operations.iter().map(|operation| format!("{}: {}", operation.name, value(operation))).collect();
    format!("[{}]", values.join(", "))
}

/// `HH:mm:ss`; the hours of a longer run have more digits.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str, rate: f64, latencies: [f64; 6], partitions: u64) -> OperationSummary<'_> {
        let [mean, median, p95, p99, p999, max] = latencies;
        OperationSummary {
            name,
            rates: OperationRates { operations: rate, partitions: rate, rows: rate },
            latencies: Latencies { mean, median, p95, p99, p999, max },
            partitions,
            errors: 0,
        }
    }

    #[test]
    fn the_summary_equals_that_of_cassandra_stress() {
        let all = operation("total", 60.3, [11.5, 6.0, 42.7, 57.0, 65.9, 65.9], 100);
        let operations = [
            operation("READ", 37.4, [14.2, 7.4, 49.8, 57.0, 65.9, 65.9], 62),
            operation("WRITE", 22.9, [7.2, 5.2, 13.3, 40.6, 40.6, 40.6], 38),
        ];
        let expected = "

Results:
Op rate                   :       60 op/s  [READ: 37 op/s, WRITE: 23 op/s]
Partition rate            :       60 pk/s  [READ: 37 pk/s, WRITE: 23 pk/s]
Row rate                  :       60 row/s [READ: 37 row/s, WRITE: 23 row/s]
Latency mean              :   11.5 ms [READ: 14.2 ms, WRITE: 7.2 ms]
Latency median            :    6.0 ms [READ: 7.4 ms, WRITE: 5.2 ms]
Latency 95th percentile   :   42.7 ms [READ: 49.8 ms, WRITE: 13.3 ms]
Latency 99th percentile   :   57.0 ms [READ: 57.0 ms, WRITE: 40.6 ms]
Latency 99.9th percentile :   65.9 ms [READ: 65.9 ms, WRITE: 40.6 ms]
Latency max               :   65.9 ms [READ: 65.9 ms, WRITE: 40.6 ms]
Total partitions          :        100 [READ: 62, WRITE: 38]
Total errors              :          0 [READ: 0, WRITE: 0]
Total GC count            : 0
Total GC memory           : 0.000 KiB
Total GC time             :    0.0 seconds
Avg GC time               :    NaN ms
StdDev GC time            :    0.0 ms
Total operation time      : 00:00:01

";
        assert_eq!(summary(&all, &operations, Duration::from_millis(1700)), expected);
    }

    #[test]
    fn large_numbers_are_grouped() {
        let all = operation("total", 125_468.4, [1.0; 6], 10_000_000);
        let text = summary(&all, &[all], Duration::from_secs(100 * 3600 + 61));
        assert!(text.contains("Op rate                   :  125,468 op/s  [total: 125,468 op/s]"), "{text}");
        assert!(text.contains("Total partitions          : 10,000,000 [total: 10,000,000]"), "{text}");
        assert!(text.contains("Total operation time      : 100:01:01"), "{text}");
    }
}

//! The table of intervals: one line per interval and operation, and one for all operations.

use super::java_number::fixed;
use std::time::Duration;

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableRow<'n> {
    /// `READ`, the name of a query, or `total`.
    pub name: &'n str,
    /// Operations since the start of the run.
    pub total_operations: u64,
    /// Of this interval.
    pub rates: OperationRates,
    /// Of this interval.
    pub latencies: Latencies,
    /// Since the start of the run.
    pub elapsed: Duration,
    pub standard_error: f64,
    /// Of this interval.
    pub errors: u64,
}

/// Per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OperationRates {
    pub operations: f64,
    pub partitions: f64,
    pub rows: f64,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latencies {
    pub mean: f64,
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

const NAMES: [&str; 19] = [
    "type",
    "total ops",
    "op/s",
    "pk/s",
    "row/s",
    "mean",
    "med",
    ".95",
    ".99",
    ".999",
    "max",
    "time",
    "stderr",
    "errors",
    "gc: #",
    "max ms",
    "sum ms",
    "sdv ms",
    "mb",
];

/// The first line of the table.
pub fn table_header() -> String {
    line(NAMES)
}

impl TableRow<'_> {
    /// The line. The five columns about Java's garbage collection are 0.
    pub fn line(&self) -> String {
        let name = format!("{},", self.name);
        let total = self.total_operations.to_string();
        let rates = self.rates.values().map(|rate| fixed(rate, 0));
        let latencies = self.latencies.values().map(|latency| fixed(latency, 1));
        let (time, error) = (fixed(self.elapsed.as_secs_f64(), 1), fixed(self.standard_error, 5));
        let errors = self.errors.to_string();
        let [operations, partitions, rows] = &rates;
        let [mean, median, p95, p99, p999, max] = &latencies;
        line([
            &name, &total, operations, partitions, rows, mean, median, p95, p99, p999, max, &time, &error, &errors,
            "0", "0", "0", "0", "0",
        ])
    }
}

impl OperationRates {
    /// Operations, partitions, rows.
    pub(super) fn values(&self) -> [f64; 3] {
        [self.operations, self.partitions, self.rows]
    }
}

impl Latencies {
    /// Mean, median, 95th, 99th and 99.9th percentile, highest.
    pub(super) fn values(&self) -> [f64; 6] {
        [self.mean, self.median, self.p95, self.p99, self.p999, self.max]
    }
}

/// A line of the table at the end of a search for the number of threads: the number of threads
/// stands before it, `id` before the header.
pub fn labelled_line(label: &str, width: usize, line: &str) -> String {
    format!("{label:>width$}, {line}")
}

fn line(cells: [&str; 19]) -> String {
    let [kind, total, rest @ ..] = cells;
    let widths = [8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 9, 7, 7, 8, 8, 8, 8];
    let mut out = format!("{kind:<10}{total:>10}");
    for (cell, width) in rest.into_iter().zip(widths) {
        out.push_str(&format!(",{cell:>width$}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_equal_those_of_cassandra_stress() {
        assert_eq!(
            table_header(),
            "type       total ops,    op/s,    pk/s,   row/s,    mean,     med,     .95,     .99,    .999,     max,   \
             time,   stderr, errors,  gc: #,  max ms,  sum ms,  sdv ms,      mb"
        );
        let latencies = Latencies { mean: 15.7, median: 6.1, p95: 56.3, p99: 57.0, p999: 57.0, max: 57.0 };
        let row = TableRow {
            name: "READ",
            total_operations: 62,
            rates: OperationRates { operations: 43.6, partitions: 43.6, rows: 43.6 },
            latencies,
            elapsed: Duration::from_millis(1690),
            standard_error: 0.031_001,
            errors: 0,
        };
        assert_eq!(
            row.line(),
            "READ,             62,      44,      44,      44,    15.7,     6.1,    56.3,    57.0,    57.0,    57.0,    \
             1.7,  0.03100,      0,      0,       0,       0,       0,       0"
        );
        assert!(labelled_line("4 threadCount", 15, "x").starts_with("  4 threadCount, x"));
    }
}

//! The lines around the table that say what the run does.

use super::java_number::fixed;
use crate::{StopRule, StressOperation};
use std::time::Duration;

/// `Running WRITE with 4 threads for 2000 iteration`.
pub fn running_line(operation: &StressOperation, threads: u32, stop: &StopRule) -> String {
    let until = match stop {
        StopRule::Partitions(count) => format!("for {count} iteration"),
        StopRule::Time(time) => {
            let (number, unit) = in_largest_unit(*time);
            format!("for {number} {}", unit.to_lowercase())
        }
        StopRule::StandardError { target, .. } => format!("until stderr of mean < {target}"),
    };
    format!("Running {} with {threads} threads {until}", operation_names(operation))
}

/// `Warming up WRITE with 500 iterations...`.
pub fn warm_up_line(operation: &str, count: u64) -> String {
    format!("Warming up {operation} with {count} iterations...")
}

/// The line of a node, with the spelling of the original.
pub fn host_line(datacenter: &str, address: &str, rack: &str) -> String {
    format!("Datatacenter: {datacenter}; Host: /{address}; Rack: {rack}")
}

/// The line before each step of a search for the number of threads, after an empty one.
pub fn step_line(threads: u32) -> String {
    format!("\nRunning with {threads} threadCount")
}

/// `Improvement over 4 threadCount: 12%`; `change` is a fraction.
pub fn improvement_line(threads: u32, change: f64) -> String {
    format!("Improvement over {threads} threadCount: {}%", fixed(change * 100.0, 0))
}

/// `WRITE`, or a list in brackets if there are several kinds of operations.
fn operation_names(operation: &StressOperation) -> String {
    let list = |names: Vec<&str>| format!("[{}]", names.join(", "));
    match operation {
        StressOperation::Basic(operation) => operation.name().to_owned(),
        StressOperation::Mixed { weights, .. } => {
            let mut kinds: Vec<_> = weights.iter().map(|(kind, _)| *kind).collect();
            kinds.sort();
            list(kinds.into_iter().map(crate::BasicOperation::name).collect())
        }
        StressOperation::User { weights, .. } => {
            let mut names: Vec<&str> = weights.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            list(names)
        }
    }
}

/// A time in the largest unit of which it is a whole number.
pub(super) fn in_largest_unit(time: Duration) -> (u64, &'static str) {
    let units = [(86_400, "DAYS"), (3600, "HOURS"), (60, "MINUTES")];
    let seconds = time.as_secs();
    let unit = units.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    unit.map_or((seconds, "SECONDS"), |(length, name)| (seconds / length, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BasicOperation, Distribution};

    #[test]
    fn lines_equal_those_of_cassandra_stress() {
        let write = StressOperation::Basic(BasicOperation::Write);
        let mixed = StressOperation::Mixed {
            weights: vec![(BasicOperation::Write, 1.0), (BasicOperation::Read, 2.0)],
            clustering: Distribution::gaussian(1, 10),
        };
        let error = StopRule::StandardError { target: 0.02, min_intervals: 30, max_intervals: 200 };
        assert_eq!(
            running_line(&write, 4, &StopRule::Partitions(2000)),
            "Running WRITE with 4 threads for 2000 iteration"
        );
        let five = StopRule::Time(Duration::from_secs(5));
        assert_eq!(running_line(&mixed, 2, &five), "Running [READ, WRITE] with 2 threads for 5 seconds");
        assert_eq!(running_line(&write, 4, &error), "Running WRITE with 4 threads until stderr of mean < 0.02");
        assert_eq!(warm_up_line("WRITE", 500), "Warming up WRITE with 500 iterations...");
        assert_eq!(host_line("dc1", "127.0.0.1", "rack1"), "Datatacenter: dc1; Host: /127.0.0.1; Rack: rack1");
        assert_eq!(step_line(4), "\nRunning with 4 threadCount");
        assert_eq!(improvement_line(4, 0.119), "Improvement over 4 threadCount: 12%");
    }
}

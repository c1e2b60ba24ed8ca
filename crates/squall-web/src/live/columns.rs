//! The columns of a run's seconds in the live feed, in the order in which messages have them. Long
//! runs are joined to fewer points: counts become their mean per second, rounded up, all others
//! their highest value, so that no failure and no peak disappears. Percentiles are never averaged.

use squall_metrics::RunSecond;

/// The most points of one snapshot.
pub(crate) const MAX_POINTS: usize = 3600;

/// How the values of several seconds become one.
#[derive(Clone, Copy)]
enum Join {
    Mean,
    Highest,
}

struct Column {
    name: &'static str,
    join: Join,
    of: fn(&RunSecond) -> u64,
}

const fn count(name: &'static str, of: fn(&RunSecond) -> u64) -> Column {
    Column { name, join: Join::Mean, of }
}

const fn highest(name: &'static str, of: fn(&RunSecond) -> u64) -> Column {
    Column { name, join: Join::Highest, of }
}

const COLUMNS: [Column; 19] = [
    highest("t", |second| second.t_s.into()),
    count("requests", |second| second.requests),
    count("errors", |second| second.errors),
    count("iterations", |second| second.iterations),
    highest("users", |second| second.users),
    highest("busy", |second| second.busy),
    highest("p50", |second| micros(second.p50)),
    highest("p95", |second| micros(second.p95)),
    highest("p99", |second| micros(second.p99)),
    highest("max", |second| micros(second.max)),
    highest("service_p50", |second| micros(second.service_p50)),
    highest("service_p95", |second| micros(second.service_p95)),
    highest("service_p99", |second| micros(second.service_p99)),
    highest("lag_p99", |second| micros(second.lag_p99)),
    count("dropped", |second| second.dropped),
    count("late", |second| second.late),
    count("bytes_in", |second| second.bytes_in),
    count("bytes_out", |second| second.bytes_out),
    count("warm_up", |second| second.warm_up_requests),
];

pub(super) fn column_names() -> [&'static str; COLUMNS.len()] {
    COLUMNS.map(|column| column.name)
}

/// One second as a row.
pub(super) fn row(second: &RunSecond) -> [u64; COLUMNS.len()] {
    COLUMNS.map(|column| (column.of)(second))
}

/// All seconds by column, `step` of them joined to one point.
pub(super) fn by_column(seconds: &[RunSecond], step: usize) -> Vec<Vec<u64>> {
    let join = |column: &Column, part: &[RunSecond]| {
        let values = part.iter().map(column.of);
        match column.join {
            Join::Mean => mean_per_second(values.sum(), part.len()),
            Join::Highest => values.max().unwrap_or(0),
        }
    };
    COLUMNS.iter().map(|column| seconds.chunks(step).map(|part| join(column, part)).collect()).collect()
}

/// The mean of a count over joined seconds, rounded up, so that a single failure does not become 0.
pub(crate) fn mean_per_second(sum: u64, seconds: usize) -> u64 {
    sum.div_ceil(seconds.max(1) as u64)
}

/// How many seconds one point joins.
pub(super) fn step_for(seconds: usize) -> usize {
    seconds.div_ceil(MAX_POINTS).max(1)
}

/// Nanoseconds as microseconds, rounded. A time that is not 0 stays at least 1.
pub(crate) fn micros(nanos: u64) -> u64 {
    if nanos == 0 { 0 } else { ((nanos + 500) / 1000).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_keeps_its_peaks_its_number_of_requests_and_a_single_error() {
        let seconds: Vec<RunSecond> = (1..=7300)
            .map(|t_s| RunSecond {
                t_s,
                requests: 10,
                errors: u64::from(t_s == 5000),
                p99: if t_s == 5000 { 9_000_000 } else { 1000 },
                ..RunSecond::default()
            })
            .collect();
        let step = step_for(seconds.len());
        let columns = by_column(&seconds, step);
        let column = |name: &str| &columns[column_names().iter().position(|n| *n == name).unwrap()];
        assert_eq!((step, column("t").len(), column("t")[0], *column("t").last().unwrap()), (3, 2434, 3, 7300));
        assert!(column("requests").iter().all(|n| *n == 10));
        assert_eq!(column("p99").iter().filter(|p99| **p99 == 9000).count(), 1);
        assert_eq!(column("errors").iter().sum::<u64>(), 1);
    }
}

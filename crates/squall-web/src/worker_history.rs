//! What each worker of a run did over time: its CPU use and its schedule lag, for the charts of the page
//! Workers. The measurements of a run are merged and have neither, so the time in which this process did not
//! watch the run is unknown. It judges no worker. The watcher fills it, `routes/fleet.rs` reads it.

use squall_orchestrator::{WorkerActivity, WorkerInfo};
use std::{collections::BTreeMap, time::Duration};

use crate::live::micros;

/// The most points of a worker. A longer run has fewer points in the same time.
const MAX_POINTS: u32 = 600;

#[derive(Debug)]
pub(crate) struct WorkerHistory {
    /// Seconds that a point stands for.
    step_s: u32,
    /// By the worker's name: a worker that was restarted continues its line.
    workers: BTreeMap<String, BTreeMap<u32, WorkerPoint>>,
}

/// The highest values of the seconds of a point; `None` if they are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerPoint {
    pub(crate) cpu_percent: Option<u32>,
    /// Microseconds.
    pub(crate) lag_p99: Option<u64>,
}

impl WorkerPoint {
    fn raise(&mut self, other: WorkerPoint) {
        self.cpu_percent = self.cpu_percent.max(other.cpu_percent);
        self.lag_p99 = self.lag_p99.max(other.lag_p99);
    }
}

impl Default for WorkerHistory {
    fn default() -> WorkerHistory {
        WorkerHistory { step_s: 1, workers: BTreeMap::new() }
    }
}

impl WorkerHistory {
    /// Keeps what the workers report in the second under way at `elapsed`, and the lag of the latest second
    /// of each.
    pub(crate) fn note(&mut self, elapsed: Duration, workers: &[WorkerInfo], activity: &[WorkerActivity]) {
        let now_s = elapsed.as_secs() as u32 + 1;
        for worker in workers {
            let cpu_percent = Some(worker.cpu_percent.round() as u32);
            self.add(&worker.id, now_s, WorkerPoint { cpu_percent, ..WorkerPoint::default() });
        }
        for part in activity {
            if let Some(latest) = part.latest.filter(|latest| latest.t_s > 0) {
                let lag_p99 = Some(micros(latest.lag_p99));
                self.add(&part.id, latest.t_s, WorkerPoint { lag_p99, ..WorkerPoint::default() });
            }
        }
    }

    fn add(&mut self, worker: &str, t_s: u32, point: WorkerPoint) {
        while (t_s - 1) / self.step_s >= MAX_POINTS {
            self.halve();
        }
        let place = (t_s - 1) / self.step_s;
        let points = match self.workers.get_mut(worker) {
            Some(points) => points,
            None => self.workers.entry(worker.to_owned()).or_default(),
        };
        points.entry(place).or_default().raise(point);
    }

    fn halve(&mut self) {
        self.step_s *= 2;
        for points in self.workers.values_mut() {
            let mut halved = BTreeMap::<u32, WorkerPoint>::new();
            for (place, point) in std::mem::take(points) {
                halved.entry(place / 2).or_default().raise(point);
            }
            *points = halved;
        }
    }

    /// The ends of the points in seconds, for all workers.
    pub(crate) fn times(&self) -> Vec<u32> {
        let last = self.workers.values().filter_map(|points| points.last_key_value()).map(|(place, _)| *place).max();
        last.map_or_else(Vec::new, |last| (0..=last).map(|place| (place + 1) * self.step_s).collect())
    }

    /// Each worker with a point for each of `times`.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (&str, Vec<WorkerPoint>)> {
        let points = self.times().len() as u32;
        self.workers.iter().map(move |(id, known)| {
            (id.as_str(), (0..points).map(|place| known.get(&place).copied().unwrap_or_default()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_orchestrator::WorkerSecond;

    fn worker(id: &str, cpu_percent: f64) -> WorkerInfo {
        WorkerInfo { id: id.into(), cpu_percent, ..WorkerInfo::default() }
    }

    fn part(id: &str, t_s: u32, lag_p99: u64) -> WorkerActivity {
        let latest = Some(WorkerSecond { t_s, requests: 0, users: 0, busy: 0, lag_p99 });
        let (id, state) = (id.into(), "working");
        WorkerActivity { id, instance: 1, state, joined_s: 0.0, ended_s: None, lost_at_most: 0, latest }
    }

    /// A worker's name, its CPU use and its lag.
    type Line<'a> = (&'a str, Vec<Option<u32>>, Vec<Option<u64>>);

    fn lines(history: &WorkerHistory) -> Vec<Line<'_>> {
        let cpu = |points: &[WorkerPoint]| points.iter().map(|point| point.cpu_percent).collect();
        let lag = |points: &[WorkerPoint]| points.iter().map(|point| point.lag_p99).collect();
        history.workers().map(|(id, points)| (id, cpu(&points), lag(&points))).collect()
    }

    #[test]
    fn worker_that_joins_late_or_is_lost_has_gaps() {
        let mut history = WorkerHistory::default();
        history.note(Duration::from_millis(400), &[worker("w1", 40.4)], &[]);
        history.note(Duration::from_millis(900), &[worker("w1", 20.0)], &[]);
        history.note(Duration::from_millis(1200), &[worker("w2", 7.0)], &[part("w1", 1, 3_000_000)]);
        assert_eq!(history.times(), [1, 2]);
        let expected =
            [("w1", vec![Some(40), None], vec![Some(3000), None]), ("w2", vec![None, Some(7)], vec![None, None])];
        assert_eq!(lines(&history), expected);
    }

    #[test]
    fn long_run_has_points_of_several_seconds_with_their_highest_values() {
        let mut history = WorkerHistory::default();
        for second in 0..=u64::from(MAX_POINTS) {
            history.note(Duration::from_secs(second), &[worker("w1", second as f64)], &[]);
        }
        let times = history.times();
        assert_eq!((times.len(), times[0], times[300]), (301, 2, 602));
        assert_eq!(lines(&history)[0].1[..2], [Some(1), Some(3)]);
    }
}

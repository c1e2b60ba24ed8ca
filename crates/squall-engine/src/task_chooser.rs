//! Chooses the next task. Weights hold exactly, by a fixed low-discrepancy cycle instead of chance:
//! any sequence of starts has each task as often as its weight asks for, to within one. Tasks with
//! conditions (`requires`, `every`) are chosen per user among those that are ready.

use fastrand::Rng;
use squall_model::{TaskIndex, TaskSpec};
use std::time::Instant;

/// A repeating order of tasks. Every prefix has each task as often as its weight
/// asks for, to within one.
#[derive(Debug, Clone)]
pub struct TaskCycle {
    order: Vec<TaskIndex>,
    offset: u64,
}

/// The longest cycle. Weights that need a longer one are rounded to this many parts.
const MAX_CYCLE_LENGTH: u64 = 10_000;

impl TaskCycle {
    pub fn new(tasks: &[TaskSpec], seed: u64) -> TaskCycle {
        let parts = integer_weights(tasks);
        let total: u64 = parts.iter().sum();
        let mut given = vec![0u64; parts.len()];
        // Pfair scheduling: turn j of a task with w of W parts is due in the window ((j-1)·W/w,
        // j·W/w]; the open window that closes first is next. It keeps every task within one turn of
        // its weight at every position.
        let turn = |position: u64, given: &[u64]| {
            (0..parts.len())
                .filter(|&i| given[i] * total < (position + 1) * parts[i])
                .min_by_key(|&i| ((given[i] + 1) * total).div_ceil(parts[i]))
                .expect("at every position some task is behind its weight")
        };
        let order = (0..total)
            .map(|position| {
                let next = turn(position, &given);
                given[next] += 1;
                TaskIndex(next)
            })
            .collect();
        TaskCycle { order, offset: Rng::with_seed(seed).u64(0..total) }
    }

    /// The task of start `number`.
    pub fn task(&self, number: u64) -> TaskIndex {
        self.order[((number + self.offset) % self.order.len() as u64) as usize]
    }
}

/// Weights as whole numbers without a common divisor.
fn integer_weights(tasks: &[TaskSpec]) -> Vec<u64> {
    let whole = |scale: f64| tasks.iter().all(|t| (t.weight * scale - (t.weight * scale).round()).abs() < 1e-9);
    let sum: f64 = tasks.iter().map(|t| t.weight).sum();
    let scale = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 100.0, 1000.0]
        .into_iter()
        .find(|s| whole(*s) && sum * s <= MAX_CYCLE_LENGTH as f64)
        .unwrap_or(MAX_CYCLE_LENGTH as f64 / sum);
    let parts: Vec<u64> = tasks.iter().map(|t| ((t.weight * scale).round() as u64).max(1)).collect();
    let divisor = parts.iter().copied().fold(0, gcd);
    parts.into_iter().map(|p| p / divisor).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One user's choice among tasks with conditions.
pub(crate) struct UserTaskChooser {
    completed: Vec<bool>,
    allowed_from: Vec<Option<Instant>>,
    credit: Vec<f64>,
    random: Rng,
}

impl UserTaskChooser {
    pub(crate) fn new(tasks: &[TaskSpec], seed: u64) -> UserTaskChooser {
        let n = tasks.len();
        UserTaskChooser {
            completed: vec![false; n],
            allowed_from: vec![None; n],
            credit: vec![0.0; n],
            random: Rng::with_seed(seed),
        }
    }

    /// The tasks that may run at `now`, or the time to try again. `Err(None)`: no task will ever be
    /// ready.
    pub(crate) fn ready_tasks(&self, tasks: &[TaskSpec], now: Instant) -> Result<Vec<usize>, Option<Instant>> {
        let unlocked = |i: usize| tasks[i].requires.iter().all(|r| self.completed[r.0]);
        let ready: Vec<usize> =
            (0..tasks.len()).filter(|&i| unlocked(i) && self.allowed_from[i].is_none_or(|at| at <= now)).collect();
        if ready.is_empty() {
            return Err((0..tasks.len()).filter(|&i| unlocked(i)).filter_map(|i| self.allowed_from[i]).min());
        }
        Ok(ready)
    }

    /// The next task at `now`, or the time to try again.
    pub(crate) fn pick(&mut self, tasks: &[TaskSpec], now: Instant) -> Result<TaskIndex, Option<Instant>> {
        let ready = self.ready_tasks(tasks, now)?;
        let total: f64 = ready.iter().map(|&i| tasks[i].weight).sum();
        ready.iter().for_each(|&i| self.credit[i] += tasks[i].weight);
        let richest = ready.into_iter().max_by(|&a, &b| self.credit[a].total_cmp(&self.credit[b]).then(b.cmp(&a)));
        let chosen = richest.expect("at least one task is ready");
        self.credit[chosen] -= total;
        self.allowed_from[chosen] = tasks[chosen].every.map(|every| now + every.pick(self.random.f64()));
        Ok(TaskIndex(chosen))
    }

    pub(crate) fn mark_completed(&mut self, task: TaskIndex) {
        self.completed[task.0] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use squall_model::Pause;
    use std::time::Duration;

    fn tasks(weights: &[f64]) -> Vec<TaskSpec> {
        weights.iter().map(|w| TaskSpec { weight: *w, ..TaskSpec::new("t") }).collect()
    }

    #[test]
    fn weights_of_3_to_1_are_exact_over_any_80_starts() {
        for seed in 0..20 {
            let cycle = TaskCycle::new(&tasks(&[3.0, 1.0]), seed);
            for from in 0..200 {
                let first = (from..from + 80).filter(|k| cycle.task(*k) == TaskIndex(0)).count();
                assert_eq!(first, 60);
            }
        }
    }

    #[test]
    fn order_of_tasks_depends_on_the_seed() {
        let order = |seed| (0..50).map(|k| TaskCycle::new(&tasks(&[5.0, 3.0, 2.0]), seed).task(k)).collect::<Vec<_>>();
        assert_eq!(order(7), order(7));
        assert!((0..20).any(|seed| order(seed) != order(7)));
    }

    #[test]
    fn irrational_weights_are_rounded() {
        let cycle = TaskCycle::new(&tasks(&[1.0, std::f64::consts::PI]), 0);
        let first = (0..10_000).filter(|k| cycle.task(*k) == TaskIndex(0)).count();
        assert!(first.abs_diff(2_415) <= 2, "{first}");
    }

    proptest! {
        #[test]
        fn any_range_of_starts_has_each_task_by_its_weight_to_within_two(weights in prop::collection::vec(1u32..30, 1..6), from in 0u64..500, len in 1u64..300) {
            let specs = tasks(&weights.iter().map(|w| f64::from(*w)).collect::<Vec<_>>());
            let cycle = TaskCycle::new(&specs, 3);
            let total: f64 = specs.iter().map(|t| t.weight).sum();
            for (i, spec) in specs.iter().enumerate() {
                let seen = (from..from + len).filter(|k| cycle.task(*k) == TaskIndex(i)).count() as f64;
                prop_assert!((seen - len as f64 * spec.weight / total).abs() < 2.0);
            }
        }
    }

    #[test]
    fn task_is_not_picked_before_its_required_task_completed() {
        let mut specs = tasks(&[1.0, 100.0]);
        specs[1].requires = vec![TaskIndex(0)];
        let (mut choice, now) = (UserTaskChooser::new(&specs, 0), Instant::now());
        assert_eq!(choice.pick(&specs, now), Ok(TaskIndex(0)));
        assert_eq!(choice.pick(&specs, now), Ok(TaskIndex(0)), "picked is not completed");
        choice.mark_completed(TaskIndex(0));
        assert_eq!(choice.pick(&specs, now), Ok(TaskIndex(1)));
    }

    #[test]
    fn task_with_every_is_not_ready_before_its_interval() {
        let mut specs = tasks(&[1.0]);
        specs[0].every = Some(Pause::Fixed(Duration::from_secs(2)));
        let (mut choice, now) = (UserTaskChooser::new(&specs, 0), Instant::now());
        assert_eq!(choice.pick(&specs, now), Ok(TaskIndex(0)));
        let later = now + Duration::from_secs(2);
        assert_eq!(choice.pick(&specs, now + Duration::from_secs(1)), Err(Some(later)));
        assert_eq!(choice.pick(&specs, later), Ok(TaskIndex(0)));
    }
}

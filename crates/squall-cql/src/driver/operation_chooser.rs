//! Which operation a user runs next: one kind by weight, repeated as often as `clustering=` says.

use crate::{Distribution, Sampler, StressOperation};

/// One user's choice.
#[derive(Debug)]
pub(super) struct OperationChooser {
    /// The sums of the weights up to each operation; the last is all of them.
    weight_sums: Vec<f64>,
    run_length: Sampler,
    chosen: usize,
    remaining: i64,
}

impl OperationChooser {
    pub(super) fn new(weights: &[f64], command: &StressOperation) -> OperationChooser {
        let weight_sums = weights.iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        let run_length = match command {
            StressOperation::Basic(_) => Distribution::Fixed(1),
            StressOperation::Mixed { clustering, .. } | StressOperation::User { clustering, .. } => clustering.clone(),
        };
        OperationChooser {
            weight_sums: weight_sums.collect(),
            run_length: Sampler::new(run_length),
            chosen: 0,
            remaining: 0,
        }
    }

    /// The index of the next operation.
    pub(super) fn next(&mut self) -> usize {
        if self.weight_sums.len() < 2 {
            return 0;
        }
        if self.remaining <= 0 {
            let all = self.weight_sums.last().copied().unwrap_or_default();
            let point = fastrand::f64() * all;
            let chosen = self.weight_sums.partition_point(|sum| *sum <= point);
            self.chosen = chosen.min(self.weight_sums.len() - 1);
            self.remaining = self.run_length.draw();
        }
        self.remaining -= 1;
        self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BasicOperation;

    #[test]
    fn operations_repeat_in_runs_and_follow_their_weights() {
        let operations = [(BasicOperation::Read, 3.0), (BasicOperation::Write, 1.0)];
        let command = StressOperation::Mixed { weights: operations.to_vec(), clustering: Distribution::Fixed(4) };
        let mut chooser = OperationChooser::new(&[3.0, 1.0], &command);
        let runs: Vec<[usize; 4]> = (0..4000).map(|_| std::array::from_fn(|_| chooser.next())).collect();
        assert!(runs.iter().all(|run| run.iter().all(|operation| *operation == run[0])));
        let reads = runs.iter().filter(|run| run[0] == 0).count();
        // Six standard deviations around 3,000.
        assert!((2836..=3164).contains(&reads), "{reads}");
    }
}

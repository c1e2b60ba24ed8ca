//! The search of `--find-max`: doubles the rate until a probe fails, then bisects. Takes the
//! outcomes of probes and returns the next rate; runs and prints nothing. `find_max` calls it.

/// The outcome of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// The target held every threshold.
    Passed,
    /// The target breached a threshold.
    Failed,
    /// The generator could not make this rate, so the probe says nothing about the target.
    GeneratorTooSlow,
}

/// The outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FindMaxOutcome {
    /// `rate` passed, `above` failed.
    Found { rate: f64, above: f64 },
    /// `rate` passed; at `above` the generator was too slow.
    GeneratorLimit { rate: f64, above: f64 },
    /// The lowest rate that was probed failed.
    NothingHolds { lowest: f64 },
    /// The generator was too slow for the lowest rate that was probed.
    NothingMade { lowest: f64 },
    /// No probe failed.
    NoLimit { rate: f64 },
}

/// The search probes no lower rate.
const MIN_RATE: f64 = 0.5;
/// The search probes no higher rate.
const MAX_RATE: f64 = 1e7;

/// The state of a search.
#[derive(Debug, Clone)]
pub(super) struct RateSearch {
    first_rate: f64,
    precision: f64,
    highest_passed: Option<f64>,
    /// The lowest rate that did not pass, and its outcome.
    lowest_failed: Option<(f64, ProbeOutcome)>,
}

impl RateSearch {
    pub(super) fn new(first_rate: f64, precision: f64) -> RateSearch {
        RateSearch { first_rate, precision, highest_passed: None, lowest_failed: None }
    }

    /// The next rate to probe; `None` when the outcome is known.
    pub(super) fn next_rate(&self) -> Option<f64> {
        match (self.highest_passed, self.lowest_failed) {
            (None, None) => Some(self.first_rate),
            (Some(passed), None) => Some(passed * 2.0).filter(|rate| *rate <= MAX_RATE),
            (None, Some((failed, _))) => Some(failed / 2.0).filter(|rate| *rate >= MIN_RATE),
            (Some(passed), Some((failed, _))) if failed - passed <= passed * self.precision => None,
            (Some(passed), Some((failed, _))) => {
                Some(round_to_three_digits((passed + failed) / 2.0)).filter(|rate| *rate > passed && *rate < failed)
            }
        }
    }

    /// Records the outcome of a probe at `rate`.
    pub(super) fn record(&mut self, rate: f64, outcome: ProbeOutcome) {
        match outcome {
            ProbeOutcome::Passed => {
                self.highest_passed = Some(self.highest_passed.map_or(rate, |known| known.max(rate)))
            }
            ProbeOutcome::Failed | ProbeOutcome::GeneratorTooSlow => {
                if self.lowest_failed.is_none_or(|(known, _)| rate < known) {
                    self.lowest_failed = Some((rate, outcome));
                }
            }
        }
    }

    /// The outcome so far; `None` before the first probe.
    pub(super) fn outcome(&self) -> Option<FindMaxOutcome> {
        Some(match (self.highest_passed, self.lowest_failed) {
            (None, None) => return None,
            (Some(rate), None) => FindMaxOutcome::NoLimit { rate },
            (Some(rate), Some((above, ProbeOutcome::GeneratorTooSlow))) => {
                FindMaxOutcome::GeneratorLimit { rate, above }
            }
            (Some(rate), Some((above, _))) => FindMaxOutcome::Found { rate, above },
            (None, Some((lowest, ProbeOutcome::GeneratorTooSlow))) => FindMaxOutcome::NothingMade { lowest },
            (None, Some((lowest, _))) => FindMaxOutcome::NothingHolds { lowest },
        })
    }
}

/// Keeps the rates in the table short enough to read and to type.
fn round_to_three_digits(rate: f64) -> f64 {
    let scale = 10f64.powf(2.0 - rate.log10().floor());
    (rate * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(first: f64, precision: f64, mut probe: impl FnMut(f64) -> ProbeOutcome) -> (FindMaxOutcome, usize) {
        let mut search = RateSearch::new(first, precision);
        let mut probes = 0;
        while let Some(rate) = search.next_rate() {
            search.record(rate, probe(rate));
            probes += 1;
        }
        (search.outcome().expect("at least one probe"), probes)
    }

    fn limit(at: f64) -> impl Fn(f64) -> ProbeOutcome {
        move |rate| if rate <= at { ProbeOutcome::Passed } else { ProbeOutcome::Failed }
    }

    #[test]
    fn probes_that_the_generator_cannot_make_end_as_generator_limit() {
        let probe = |rate: f64| if rate <= 900.0 { ProbeOutcome::Passed } else { ProbeOutcome::GeneratorTooSlow };
        let (outcome, _) = search(100.0, 0.05, probe);
        assert!(matches!(outcome, FindMaxOutcome::GeneratorLimit { rate, .. } if rate > 850.0), "{outcome:?}");
    }

    #[test]
    fn searches_without_both_a_pass_and_a_failure_name_what_is_missing() {
        assert!(
            matches!(search(50.0, 0.05, |_| ProbeOutcome::Failed).0, FindMaxOutcome::NothingHolds { lowest } if lowest < 1.0)
        );
        assert!(matches!(search(50.0, 0.05, |_| ProbeOutcome::GeneratorTooSlow).0, FindMaxOutcome::NothingMade { .. }));
        assert!(matches!(search(50.0, 0.05, |_| ProbeOutcome::Passed).0, FindMaxOutcome::NoLimit { .. }));
    }

    proptest! {
        #[test]
        fn limit_of_the_target_is_found_within_the_precision(at in 2.0..1e6f64, first in 1.0..5000.0f64, percent in 1u32..30) {
            let precision = f64::from(percent) / 100.0;
            let (outcome, probes) = search(first, precision, limit(at));
            let FindMaxOutcome::Found { rate, above } = outcome else { panic!("{outcome:?}") };
            prop_assert!(rate <= at && at < above, "{} is in {}..{}", at, rate, above);
            // Rates have three digits, so the search cannot be more precise than 1 %.
            prop_assert!(above - rate <= rate * precision.max(0.011), "{}..{}", rate, above);
            prop_assert!(probes < 50);
        }
    }
}

//! Doubling, then bisection: is told how a probe went, says what to probe next. Runs nothing and prints nothing.

/// How one probe went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// Every promise was kept.
    Passed,
    /// The target broke one.
    Failed,
    /// The generator could not make this rate, so that the probe says nothing about the target.
    GeneratorTooSlow,
}

/// What has been found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FindMaxOutcome {
    /// `rate` held, `above` did not.
    Found { rate: f64, above: f64 },
    /// `rate` held; at `above` the generator was the limit.
    GeneratorLimit { rate: f64, above: f64 },
    /// Not even this held.
    NothingHolds { lowest: f64 },
    /// Not even this could be made.
    NothingMade { lowest: f64 },
    /// No limit was found.
    NoLimit { rate: f64 },
}

/// Lower rates are not tried.
const MIN_RATE: f64 = 0.5;
/// Higher rates are not tried.
const MAX_RATE: f64 = 1e7;

/// The state of a search.
#[derive(Debug, Clone)]
pub(super) struct RateSearch {
    first_rate: f64,
    precision: f64,
    highest_passed: Option<f64>,
    /// The lowest rate that did not hold, and why.
    lowest_failed: Option<(f64, ProbeOutcome)>,
}

impl RateSearch {
    pub(super) fn new(first: f64, precision: f64) -> RateSearch {
        RateSearch { first_rate: first, precision, highest_passed: None, lowest_failed: None }
    }

    /// The next rate to probe; `None` when the answer is known.
    pub(super) fn next_rate(&self) -> Option<f64> {
        match (self.highest_passed, self.lowest_failed) {
            (None, None) => Some(self.first_rate),
            (Some(held), None) => Some(held * 2.0).filter(|rate| *rate <= MAX_RATE),
            (None, Some((limit, _))) => Some(limit / 2.0).filter(|rate| *rate >= MIN_RATE),
            (Some(held), Some((limit, _))) if limit - held <= held * self.precision => None,
            (Some(held), Some((limit, _))) => {
                Some(round_to_three_digits((held + limit) / 2.0)).filter(|rate| *rate > held && *rate < limit)
            }
        }
    }

    /// Takes note of how a probe at `rate` went.
    pub(super) fn record(&mut self, rate: f64, held: ProbeOutcome) {
        match held {
            ProbeOutcome::Passed => {
                self.highest_passed = Some(self.highest_passed.map_or(rate, |known| known.max(rate)))
            }
            ProbeOutcome::Failed | ProbeOutcome::GeneratorTooSlow => {
                if self.lowest_failed.is_none_or(|(known, _)| rate < known) {
                    self.lowest_failed = Some((rate, held));
                }
            }
        }
    }

    /// What is known so far; `None` before the first probe.
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

/// To three digits, so that the rates in the table can be read and typed.
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
    fn the_generator_is_not_blamed_on_the_target() {
        let probe = |rate: f64| if rate <= 900.0 { ProbeOutcome::Passed } else { ProbeOutcome::GeneratorTooSlow };
        let (answer, _) = search(100.0, 0.05, probe);
        assert!(matches!(answer, FindMaxOutcome::GeneratorLimit { rate, .. } if rate > 850.0), "{answer:?}");
    }

    #[test]
    fn a_target_that_never_holds_is_said_to() {
        assert!(
            matches!(search(50.0, 0.05, |_| ProbeOutcome::Failed).0, FindMaxOutcome::NothingHolds { lowest } if lowest < 1.0)
        );
        assert!(matches!(search(50.0, 0.05, |_| ProbeOutcome::GeneratorTooSlow).0, FindMaxOutcome::NothingMade { .. }));
        assert!(matches!(search(50.0, 0.05, |_| ProbeOutcome::Passed).0, FindMaxOutcome::NoLimit { .. }));
    }

    proptest! {
        #[test]
        fn the_true_limit_is_found_within_the_precision(at in 2.0..1e6f64, first in 1.0..5000.0f64, percent in 1u32..30) {
            let precision = f64::from(percent) / 100.0;
            let (answer, probes) = search(first, precision, limit(at));
            let FindMaxOutcome::Found { rate, above } = answer else { panic!("{answer:?}") };
            prop_assert!(rate <= at && at < above, "{} is in {}..{}", at, rate, above);
            // Rounding to three digits is the finest that can be asked for.
            prop_assert!(above - rate <= rate * precision.max(0.011), "{}..{}", rate, above);
            prop_assert!(probes < 50);
        }
    }
}

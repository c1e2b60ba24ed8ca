//! Doubling, then bisection: is told how a probe went, says what to probe next. Runs nothing and prints nothing.

/// How one probe went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Every promise was kept.
    Yes,
    /// The target broke one.
    No,
    /// The generator could not make this rate, so that the probe says nothing about the target.
    GeneratorTooSlow,
}

/// What has been found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Answer {
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
const LOWEST: f64 = 0.5;
/// Higher rates are not tried.
const HIGHEST: f64 = 1e7;

/// The state of a search.
#[derive(Debug, Clone)]
pub(super) struct Search {
    first: f64,
    precision: f64,
    held: Option<f64>,
    /// The lowest rate that did not hold, and why.
    limit: Option<(f64, Held)>,
}

impl Search {
    pub(super) fn new(first: f64, precision: f64) -> Search {
        Search { first, precision, held: None, limit: None }
    }

    /// The next rate to probe; `None` when the answer is known.
    pub(super) fn next(&self) -> Option<f64> {
        match (self.held, self.limit) {
            (None, None) => Some(self.first),
            (Some(held), None) => Some(held * 2.0).filter(|rate| *rate <= HIGHEST),
            (None, Some((limit, _))) => Some(limit / 2.0).filter(|rate| *rate >= LOWEST),
            (Some(held), Some((limit, _))) if limit - held <= held * self.precision => None,
            (Some(held), Some((limit, _))) => {
                Some(rounded((held + limit) / 2.0)).filter(|rate| *rate > held && *rate < limit)
            }
        }
    }

    /// Takes note of how a probe at `rate` went.
    pub(super) fn note(&mut self, rate: f64, held: Held) {
        match held {
            Held::Yes => self.held = Some(self.held.map_or(rate, |known| known.max(rate))),
            Held::No | Held::GeneratorTooSlow => {
                if self.limit.is_none_or(|(known, _)| rate < known) {
                    self.limit = Some((rate, held));
                }
            }
        }
    }

    /// What is known so far; `None` before the first probe.
    pub(super) fn answer(&self) -> Option<Answer> {
        Some(match (self.held, self.limit) {
            (None, None) => return None,
            (Some(rate), None) => Answer::NoLimit { rate },
            (Some(rate), Some((above, Held::GeneratorTooSlow))) => Answer::GeneratorLimit { rate, above },
            (Some(rate), Some((above, _))) => Answer::Found { rate, above },
            (None, Some((lowest, Held::GeneratorTooSlow))) => Answer::NothingMade { lowest },
            (None, Some((lowest, _))) => Answer::NothingHolds { lowest },
        })
    }
}

/// To three digits, so that the rates in the table can be read and typed.
fn rounded(rate: f64) -> f64 {
    let scale = 10f64.powf(2.0 - rate.log10().floor());
    (rate * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(first: f64, precision: f64, mut probe: impl FnMut(f64) -> Held) -> (Answer, usize) {
        let mut search = Search::new(first, precision);
        let mut probes = 0;
        while let Some(rate) = search.next() {
            search.note(rate, probe(rate));
            probes += 1;
        }
        (search.answer().expect("at least one probe"), probes)
    }

    fn limit(at: f64) -> impl Fn(f64) -> Held {
        move |rate| if rate <= at { Held::Yes } else { Held::No }
    }

    #[test]
    fn the_generator_is_not_blamed_on_the_target() {
        let probe = |rate: f64| if rate <= 900.0 { Held::Yes } else { Held::GeneratorTooSlow };
        let (answer, _) = search(100.0, 0.05, probe);
        assert!(matches!(answer, Answer::GeneratorLimit { rate, .. } if rate > 850.0), "{answer:?}");
    }

    #[test]
    fn a_target_that_never_holds_is_said_to() {
        assert!(matches!(search(50.0, 0.05, |_| Held::No).0, Answer::NothingHolds { lowest } if lowest < 1.0));
        assert!(matches!(search(50.0, 0.05, |_| Held::GeneratorTooSlow).0, Answer::NothingMade { .. }));
        assert!(matches!(search(50.0, 0.05, |_| Held::Yes).0, Answer::NoLimit { .. }));
    }

    proptest! {
        #[test]
        fn the_true_limit_is_found_within_the_precision(at in 2.0..1e6f64, first in 1.0..5000.0f64, percent in 1u32..30) {
            let precision = f64::from(percent) / 100.0;
            let (answer, probes) = search(first, precision, limit(at));
            let Answer::Found { rate, above } = answer else { panic!("{answer:?}") };
            prop_assert!(rate <= at && at < above, "{} is in {}..{}", at, rate, above);
            // Rounding to three digits is the finest that can be asked for.
            prop_assert!(above - rate <= rate * precision.max(0.011), "{}..{}", rate, above);
            prop_assert!(probes < 50);
        }
    }
}

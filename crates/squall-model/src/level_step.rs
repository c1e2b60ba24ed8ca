//! The steps in which a person raises or lowers a load: about a tenth, as a round number. It changes
//! no run; [`RunSpec::step_level`](crate::RunSpec::step_level) does.

use crate::LevelUnit;

/// One step up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelStep {
    Up,
    Down,
}

impl LevelStep {
    /// The level one step away from `level`. A step is 1, 2 or 5 times a power of ten and at most a
    /// tenth of the level, but at least one user. A step down from a lower edge such as 100 is as
    /// small as the step up to it, so that `Up` and `Down` cancel out.
    ///
    /// ```
    /// use squall_model::{LevelStep, LevelUnit};
    /// assert_eq!(LevelStep::Up.apply(50.0, LevelUnit::Rate), 55.0);
    /// assert_eq!(LevelStep::Down.apply(100.0, LevelUnit::Rate), 95.0);
    /// assert_eq!(LevelStep::Up.apply(3.0, LevelUnit::Users), 4.0);
    /// ```
    pub fn apply(self, level: f64, unit: LevelUnit) -> f64 {
        let smallest = match unit {
            LevelUnit::Users => 1.0,
            LevelUnit::Rate => 0.01,
        };
        let next = match self {
            LevelStep::Up => level + step_size(level).max(smallest),
            LevelStep::Down => level - step_size(level * (1.0 - 1e-9)).max(smallest),
        };
        match unit {
            LevelUnit::Users => next.round().max(0.0),
            // Removes the error of adding fractions.
            LevelUnit::Rate => ((next * 1e6).round() / 1e6).max(0.0),
        }
    }
}

/// The largest of 1, 2 and 5 times a power of ten that is at most a tenth of `level`. 0.1 for no load,
/// so that a load can start again.
fn step_size(level: f64) -> f64 {
    if level <= 0.0 {
        return 0.1;
    }
    let tenth = level / 10.0;
    let power = 10f64.powf(tenth.log10().floor());
    // A power of ten may be off by a rounding error.
    let fits = |step: &f64| *step <= tenth * (1.0 + 1e-12);
    [5.0 * power, 2.0 * power].into_iter().find(fits).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_a_round_number_of_about_a_tenth() {
        let up = |level| LevelStep::Up.apply(level, LevelUnit::Rate);
        assert_eq!([0.0, 1.0, 5.0, 47.0, 100.0, 250.0, 9_999.0].map(up), [0.1, 1.1, 5.5, 49.0, 110.0, 270.0, 10_499.0]);
        let users = |level| LevelStep::Up.apply(level, LevelUnit::Users);
        assert_eq!([0.0, 1.0, 9.0, 25.0, 100.0].map(users), [1.0, 2.0, 10.0, 27.0, 110.0]);
    }

    #[test]
    fn step_up_and_step_down_cancel_out() {
        for unit in [LevelUnit::Users, LevelUnit::Rate] {
            let mut levels = vec![1.0];
            for _ in 0..60 {
                levels.push(LevelStep::Up.apply(levels[levels.len() - 1], unit));
            }
            for pair in levels.windows(2) {
                assert_eq!(LevelStep::Down.apply(pair[1], unit), pair[0], "{unit:?}");
            }
        }
    }

    #[test]
    fn level_never_falls_below_zero() {
        assert_eq!(LevelStep::Down.apply(0.0, LevelUnit::Rate), 0.0);
        assert_eq!(LevelStep::Down.apply(1.0, LevelUnit::Users), 0.0);
    }
}

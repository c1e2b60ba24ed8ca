//! Axes: the position of a value between the ends, and the round values that get a tick. It does
//! not know about pixels.

/// One axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AxisScale {
    /// From 0 to `top`, a multiple of the round `step`.
    Linear { top: f64, step: f64 },
    /// Between two positive values.
    Log { bottom: f64, top: f64 },
}

impl AxisScale {
    /// From 0 up to at least `largest`.
    pub(super) fn linear(largest: f64) -> AxisScale {
        let largest = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let step = round_above(largest / 5.0);
        AxisScale::Linear { top: (largest / step - 1e-9).ceil() * step, step }
    }

    /// Like [`AxisScale::linear`], with whole numbers as ticks.
    pub(super) fn whole_numbers(largest: f64) -> AxisScale {
        match AxisScale::linear(largest) {
            AxisScale::Linear { step, .. } if step < 1.0 => {
                AxisScale::Linear { top: largest.ceil().max(1.0), step: 1.0 }
            }
            whole => whole,
        }
    }

    /// Logarithmic if the values span so wide a range that small ones would be invisible, else
    /// linear.
    pub(super) fn auto(smallest: f64, largest: f64) -> AxisScale {
        if smallest > 0.0 && largest / smallest > 30.0 {
            AxisScale::log(smallest, largest)
        } else {
            AxisScale::linear(largest)
        }
    }

    /// Between round values around two positive ones.
    pub(super) fn log(smallest: f64, largest: f64) -> AxisScale {
        let bottom = round_below(smallest);
        let top = round_above(largest);
        AxisScale::Log { bottom, top: if top > bottom { top } else { bottom * 10.0 } }
    }

    pub(super) fn is_log(self) -> bool {
        matches!(self, AxisScale::Log { .. })
    }

    /// 0 at the bottom, 1 at the top; never outside.
    pub(super) fn position(self, value: f64) -> f64 {
        let position = match self {
            AxisScale::Linear { top, .. } => value / top,
            AxisScale::Log { bottom, top } => (value.max(bottom) / bottom).ln() / (top / bottom).ln(),
        };
        position.clamp(0.0, 1.0)
    }

    /// Round values for ticks, in ascending order.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            AxisScale::Linear { top, step } => (0..=(top / step).round() as usize).map(|i| i as f64 * step).collect(),
            AxisScale::Log { bottom, top } => {
                let all = one_two_five(bottom, top);
                let tens = || all.iter().copied().filter(|v| (v.log10() - v.log10().round()).abs() < 1e-9);
                if tens().count() >= 3 { tens().collect() } else { all }
            }
        }
    }
}

fn round_below(value: f64) -> f64 {
    one_two_five(value / 10.0, value).last().copied().unwrap_or(value)
}

/// The first of 1, 2 and 5 times a power of ten that is not below `value`.
fn round_above(value: f64) -> f64 {
    one_two_five(value, value * 10.0).first().copied().unwrap_or(value)
}

/// 1, 2 and 5 times every power of ten from `low` to `high`.
fn one_two_five(low: f64, high: f64) -> Vec<f64> {
    let exponents = (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32);
    let values = exponents.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
    values.filter(|v| *v >= low * (1.0 - 1e-9) && *v <= high * (1.0 + 1e-9)).collect()
}

/// Ticks of a time axis of `seconds`: at most nine, at round minutes and seconds.
pub(super) fn time_ticks(seconds: u32) -> Vec<u32> {
    const STEPS: [u32; 16] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400];
    let step = STEPS.into_iter().find(|step| seconds / step <= 8).unwrap_or(86_400);
    (0..=seconds / step).map(|i| i * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(AxisScale::linear(187.0).ticks(), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert_eq!(AxisScale::linear(0.0).ticks().len(), 6);
        assert_eq!(AxisScale::log(0.9, 1200.0).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(AxisScale::log(0.3, 40.0).ticks(), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(time_ticks(30), [0, 5, 10, 15, 20, 25, 30]);
        assert_eq!(time_ticks(600), [0, 120, 240, 360, 480, 600]);
    }

    proptest! {
        #[test]
        fn positions_stay_in_range_and_in_order(a in 1e-3..1e9f64, b in 1e-3..1e9f64) {
            let (low, high) = (a.min(b), a.max(b));
            for scale in [AxisScale::linear(high), AxisScale::log(low, high), AxisScale::auto(low, high)] {
                prop_assert!(scale.position(low) <= scale.position(high));
                prop_assert!((0.0..=1.0).contains(&scale.position(high)));
                let ticks = scale.ticks();
                prop_assert!(ticks.is_sorted() && (2..=12).contains(&ticks.len()), "{:?} {:?}", scale, ticks);
            }
        }
    }
}

//! Welch's t-test on batch means. Neighbouring seconds of a run are correlated, so a plain test is
//! far too confident: on AR(1) noise with a correlation of 0.8 it calls half of all equal runs
//! different. Averaging batches removes most of the correlation; the remaining correlation of the
//! batches widens the error and lowers the degrees of freedom.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{
    ComparedStatistic, DifferenceEstimate,
    full_load_series::{ComparedSecond, FullLoadSeries, MIN_SECONDS},
};

/// Enough batches to estimate the variance, and few enough that each is long.
const MAX_BATCHES: usize = 20;
/// The batches of a run count as at least this many independent ones, however correlated they are.
/// With two degrees of freedom the interval is so wide that equal runs are called different in less
/// than one case of twenty; a test checks this for runs of ten seconds and longer.
const MIN_EFFECTIVE_BATCHES: f64 = 3.0;

/// A mean with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeanEstimate {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    degrees_of_freedom: f64,
}

/// The outcome of a comparison of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WelchTest {
    base: f64,
    difference: f64,
    /// Half the width of the 95 % interval.
    margin: f64,
    pub(super) p: f64,
}

impl MeanEstimate {
    /// The statistic's average second; `None` if there are too few batches to estimate the
    /// variance.
    pub(super) fn from_series(series: &FullLoadSeries, statistic: ComparedStatistic) -> Option<MeanEstimate> {
        let length = series.seconds.len().div_ceil(MAX_BATCHES).max(1);
        // The remainder is dropped at the beginning, where a run is least stable.
        let batches = series.seconds.rchunks_exact(length).rev().filter_map(|batch| batch_value(batch, statistic));
        MeanEstimate::from_batches(&batches.collect::<Vec<f64>>())
    }

    fn from_batches(batches: &[f64]) -> Option<MeanEstimate> {
        let k = batches.len() as f64;
        if batches.len() < MIN_SECONDS {
            return None;
        }
        let mean = batches.iter().sum::<f64>() / k;
        let deviations: Vec<f64> = batches.iter().map(|value| value - mean).collect();
        let squares: f64 = deviations.iter().map(|d| d * d).sum();
        // Equal batches have a variance of zero; rounding errors must not count.
        if squares <= k * (mean * 1e-9).powi(2) {
            return Some(MeanEstimate { mean, variance: 0.0, degrees_of_freedom: k - 1.0 });
        }
        let correlation = deviations.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / squares;
        // The estimate is biased towards -1/k, and more so the higher it is; negative values are
        // noise.
        let correlation = (correlation + (1.0 + 4.0 * correlation) / k).clamp(0.0, 0.9);
        let inflation = ((1.0 + correlation) / (1.0 - correlation)).min(k / MIN_EFFECTIVE_BATCHES);
        let effective = k / inflation;
        let variance = squares / (k - inflation) * inflation / k;
        Some(MeanEstimate { mean, variance, degrees_of_freedom: effective - 1.0 })
    }
}

/// A batch's value: totals for the rates, the mean over requests for the mean, the mean over
/// seconds for percentiles. `None` if a value needs requests and the batch has none.
fn batch_value(batch: &[ComparedSecond], statistic: ComparedStatistic) -> Option<f64> {
    let requests: f64 = batch.iter().map(|second| second.requests).sum();
    let busy = || batch.iter().filter(|second| second.requests > 0.0);
    let average = |of: fn(&ComparedSecond) -> f64| busy().map(of).sum::<f64>() / busy().count() as f64;
    match statistic {
        ComparedStatistic::Rate => Some(requests / batch.len() as f64),
        _ if requests == 0.0 => None,
        ComparedStatistic::ErrorRate => Some(batch.iter().map(|second| second.errors).sum::<f64>() / requests),
        ComparedStatistic::Mean => Some(busy().map(|second| second.mean * second.requests).sum::<f64>() / requests),
        ComparedStatistic::P50 => Some(average(|second| second.p50)),
        ComparedStatistic::P95 => Some(average(|second| second.p95)),
        ComparedStatistic::P99 => Some(average(|second| second.p99)),
    }
}

/// Welch's unequal-variances t-test, two-sided; `None` for numbers that are not finite.
pub(super) fn welch_test(base: MeanEstimate, new: MeanEstimate) -> Option<WelchTest> {
    let difference = new.mean - base.mean;
    let variance = base.variance + new.variance;
    if variance == 0.0 {
        let p = if difference.abs() <= 1e-9 * base.mean.abs() { 1.0 } else { 0.0 };
        return Some(WelchTest { base: base.mean, difference, margin: 0.0, p });
    }
    let part = |estimate: MeanEstimate| estimate.variance.powi(2) / estimate.degrees_of_freedom;
    let degrees_of_freedom = variance.powi(2) / (part(base) + part(new));
    let student =
        StudentsT::new(0.0, 1.0, degrees_of_freedom).ok().filter(|_| variance.is_finite() && difference.is_finite())?;
    let error = variance.sqrt();
    let p = 2.0 * student.cdf(-(difference / error).abs());
    Some(WelchTest { base: base.mean, difference, margin: student.inverse_cdf(0.975) * error, p })
}

impl WelchTest {
    pub(super) fn effect(self, p_adjusted: f64) -> DifferenceEstimate {
        let WelchTest { base, difference, margin, p } = self;
        DifferenceEstimate { difference, low: difference - margin, high: difference + margin, of: base, p, p_adjusted }
    }
}

/// Holm's correction of the p values: among many rows, some small p values occur by chance.
pub(super) fn holm_correction(p: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = p.iter().enumerate().filter_map(|(i, p)| Some((i, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p.len()];
    let mut least = 0f64;
    for (rank, (i, p)) in order.iter().enumerate() {
        least = least.max(p * (order.len() - rank) as f64).min(1.0);
        adjusted[*i] = Some(least);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holm_multiplies_by_the_remaining_rows_and_never_decreases() {
        let adjusted = holm_correction(&[Some(0.01), None, Some(0.04), Some(0.03)]);
        let expected = [Some(0.03), None, Some(0.06), Some(0.06)];
        for (a, e) in adjusted.iter().zip(expected) {
            assert!(a.zip(e).map_or(a.is_none() && e.is_none(), |(a, e)| (a - e).abs() < 1e-12), "{adjusted:?}");
        }
    }

    #[test]
    fn welch_test_on_independent_batches_gives_the_textbook_p_value() {
        // The correlation of these batches is negative, so no correction applies: t = 3.680 with
        // 19.16 degrees of freedom. The expected p is the integral of the density.
        let base: Vec<f64> = (0..12).map(|i| 10.0 + if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let new: Vec<f64> = (0..12).map(|i| 12.0 + if i % 2 == 0 { 1.5 } else { -1.5 }).collect();
        let test =
            welch_test(MeanEstimate::from_batches(&base).unwrap(), MeanEstimate::from_batches(&new).unwrap()).unwrap();
        assert!((test.difference - 2.0).abs() < 1e-12);
        let error = (12.0f64 / 11.0 / 12.0 + 27.0 / 11.0 / 12.0).sqrt();
        assert!((2.0 / error - 3.679_9).abs() < 1e-3, "t is {}", 2.0 / error);
        assert!((test.p - 0.001_5).abs() < 2e-4, "p is {}", test.p);
    }

    proptest! {
        #[test]
        fn run_compared_with_itself_has_no_difference(values in prop::collection::vec(0.0..1e6f64, 10..40)) {
            if let Some(estimate) = MeanEstimate::from_batches(&values) {
                let test = welch_test(estimate, estimate).unwrap();
                prop_assert_eq!((test.difference, test.p), (0.0, 1.0));
            }
        }

        #[test]
        fn swapping_the_runs_flips_the_sign_and_keeps_p(
            a in prop::collection::vec(1.0..1e3f64, 10..40), b in prop::collection::vec(1.0..1e3f64, 10..40),
        ) {
            if let (Some(a), Some(b)) = (MeanEstimate::from_batches(&a), MeanEstimate::from_batches(&b)) {
                let (there, back) = (welch_test(a, b).unwrap(), welch_test(b, a).unwrap());
                prop_assert!((there.difference + back.difference).abs() < 1e-9);
                prop_assert!((there.p - back.p).abs() < 1e-9 && (0.0..=1.0).contains(&there.p));
                prop_assert!(there.margin >= 0.0);
                // The interval excludes zero exactly when p is below 0.05.
                let excludes = there.difference.abs() > there.margin;
                prop_assert!(excludes == (there.p < 0.05) || (there.p - 0.05).abs() < 1e-6);
            }
        }

        #[test]
        fn arbitrary_numbers_never_give_nan(a in prop::collection::vec(any::<f64>(), 10..25), b in prop::collection::vec(any::<f64>(), 10..25)) {
            let estimates = MeanEstimate::from_batches(&a).zip(MeanEstimate::from_batches(&b));
            if let Some(test) = estimates.and_then(|(a, b)| welch_test(a, b)) {
                prop_assert!(!test.p.is_nan() && !test.margin.is_nan());
            }
        }

        #[test]
        fn scaling_both_runs_keeps_p(
            a in prop::collection::vec(1.0..1e3f64, 10..40), b in prop::collection::vec(1.0..1e3f64, 10..40), scale in 1e-3..1e3f64,
        ) {
            let scaled = |v: &[f64]| v.iter().map(|x| x * scale).collect::<Vec<_>>();
            let p = |a: &[f64], b: &[f64]| Some(welch_test(MeanEstimate::from_batches(a)?, MeanEstimate::from_batches(b)?)?.p);
            if let (Some(one), Some(other)) = (p(&a, &b), p(&scaled(&a), &scaled(&b))) {
                prop_assert!((one - other).abs() < 1e-6);
            }
        }
    }
}

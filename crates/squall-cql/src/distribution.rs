//! The distributions of cassandra-stress: how they are written, what they draw after a seed, and
//! their quantiles.
//! It does not know what a drawn value means. Populations, sizes, clustering and rates use it.

mod parse;
mod print;
mod ratio;
mod sampler;

use statrs::function::erf::erf_inv;
use std::{fmt, sync::Arc};

pub use parse::DistributionError;
pub(crate) use parse::{parse_count, parse_range};
pub use print::print_distribution;
pub use ratio::{Ratio, RatioSampler};
pub use sampler::Sampler;
pub(crate) use sampler::draw_uniform;

/// A distribution over whole numbers between a lowest and a highest value.
///
/// ```
/// use squall_cql::Distribution;
/// let distribution: Distribution = "gaussian(1..100)".parse()?;
/// assert_eq!((distribution.min(), distribution.quantile(0.5), distribution.max()), (1, 50, 100));
/// # Ok::<(), squall_cql::DistributionError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    Fixed(i64),
    Uniform {
        min: i64,
        max: i64,
    },
    Gaussian {
        min: i64,
        max: i64,
        mean: f64,
        deviation: f64,
    },
    Exponential {
        min: i64,
        max: i64,
        mean: f64,
    },
    Extreme(Extreme),
    /// Draws a quantum by the extreme distribution, and a value inside the quantum uniformly.
    /// `bounds` has one element more than there are quanta.
    Quantized {
        extreme: Extreme,
        bounds: Arc<[i64]>,
    },
    /// Counts up from a number that the seed gives.
    Sequence {
        first: i64,
        last: i64,
    },
    /// The highest value is as likely as the lowest one of the inner distribution.
    Inverted(Box<Distribution>),
}

/// A Weibull distribution above a lowest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extreme {
    pub min: i64,
    pub max: i64,
    pub shape: f64,
    pub scale: f64,
}

impl Distribution {
    /// Every value from `min` to `max` is equally likely.
    pub fn uniform(min: i64, max: i64) -> Distribution {
        if min == max { Distribution::Fixed(min) } else { Distribution::Uniform { min, max } }
    }

    /// A normal distribution around the middle; the bounds are three standard deviations away.
    pub fn gaussian(min: i64, max: i64) -> Distribution {
        Distribution::gaussian_within(min, max, 3.0)
    }

    /// A normal distribution around the middle; the bounds are `deviations` standard deviations
    /// away.
    pub fn gaussian_within(min: i64, max: i64, deviations: f64) -> Distribution {
        if min == max {
            return Distribution::Fixed(min);
        }
        let (low, high) = (min as f64, max as f64);
        Distribution::Gaussian { min, max, mean: f64::midpoint(low, high), deviation: (high - low) / 2.0 / deviations }
    }

    fn exponential(min: i64, max: i64) -> Distribution {
        let width = max as f64 - min as f64;
        Distribution::Exponential { min, max, mean: width / (0.5 * libm::log(width)) }
    }

    fn quantized(extreme: Extreme, quanta: usize) -> Distribution {
        let inner = (1..quanta).map(|i| extreme.quantile(i as f64 / quanta as f64));
        let bounds = [extreme.min].into_iter().chain(inner).chain([extreme.max.saturating_add(1)]).collect();
        Distribution::Quantized { extreme, bounds }
    }

    /// The lowest value that can be drawn.
    pub fn min(&self) -> i64 {
        self.quantile(0.0)
    }

    /// The highest value that can be drawn.
    pub fn max(&self) -> i64 {
        self.quantile(1.0)
    }

    /// The value below which the fraction `p` of all draws lies.
    pub fn quantile(&self, p: f64) -> i64 {
        match self {
            Distribution::Fixed(value) => *value,
            Distribution::Uniform { min, max } => {
                let width = *max as f64 + 1.0 - *min as f64;
                clamped(*min as f64 + p * width, *min, *max)
            }
            Distribution::Gaussian { min, max, mean, deviation } => {
                let normal = std::f64::consts::SQRT_2 * erf_inv(2.0 * p - 1.0);
                clamped(mean + deviation * normal, *min, *max)
            }
            Distribution::Exponential { min, max, mean } => above(*min, *max, -mean * libm::log(1.0 - p)),
            Distribution::Extreme(extreme) => extreme.quantile(p),
            Distribution::Quantized { extreme, bounds } => {
                let position = p * (bounds.len() - 1) as f64;
                let quantum = (position as usize).min(bounds.len() - 2);
                let width = (bounds[quantum + 1] - bounds[quantum]) as f64;
                above(bounds[quantum], extreme.max, (position - quantum as f64) * width)
            }
            Distribution::Sequence { first, last } => above(*first, *last, (*last as f64 - *first as f64) * p),
            Distribution::Inverted(inner) => mirrored(inner.quantile(p), inner),
        }
    }

    /// The mean of 51 quantiles, rounded towards zero. The expected number of rows of a partition is
    /// a product of these averages.
    pub fn average(&self) -> i64 {
        let sum: f64 = (0..=50).map(|step| self.quantile(f64::from(step) / 50.0) as f64).sum();
        (sum / 51.0) as i64
    }
}

impl Extreme {
    fn new(min: i64, max: i64, shape: f64) -> Extreme {
        let width = max as f64 - min as f64;
        let scale = width / libm::pow(0.5 * libm::log(width), 1.0 / shape);
        Extreme { min, max, shape, scale }
    }

    /// The distance from the lowest value, as a real number.
    fn offset(&self, p: f64) -> f64 {
        self.scale * libm::pow(-libm::log(1.0 - p), 1.0 / self.shape)
    }

    fn quantile(&self, p: f64) -> i64 {
        above(self.min, self.max, self.offset(p))
    }
}

/// As cassandra-stress prints a distribution in its settings.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Fixed(value) => write!(f, "Fixed:  key={value}"),
            Distribution::Uniform { min, max } => write!(f, "Uniform:  min={min},max={max}"),
            Distribution::Gaussian { min, max, mean, deviation } => {
                write!(f, "Gaussian:  min={min},max={max},mean={mean:.6},stdev={deviation:.6}")
            }
            Distribution::Exponential { min, max, mean } => {
                write!(f, "Exponential:  min={min},max={max},mean={mean:.6}")
            }
            Distribution::Extreme(Extreme { min, max, shape, scale }) => {
                write!(f, "Extreme:  min={min},max={max},shape={shape:.6}, scale={scale:.6}")
            }
            Distribution::Quantized { extreme: Extreme { min, max, shape, scale }, bounds } => write!(
                f,
                "QExtreme:  min={min},max={max},shape={shape:.6}, scale={scale:.6}, quantas={}",
                bounds.len() - 1
            ),
            Distribution::Sequence { first, last } => write!(f, "Sequence:  start={first},end={last}"),
            Distribution::Inverted(inner) => write!(f, "Inverse: {inner}"),
        }
    }
}

/// Cuts the fraction off and keeps the value between the bounds, as Java's conversions do.
fn clamped(value: f64, min: i64, max: i64) -> i64 {
    (value as i64).clamp(min, max)
}

/// `min` and the whole part of `offset`, at most `max`.
fn above(min: i64, max: i64, offset: f64) -> i64 {
    min.saturating_add(offset.max(0.0) as i64).min(max)
}

fn mirrored(value: i64, inner: &Distribution) -> i64 {
    inner.max().saturating_sub(value.saturating_sub(inner.min()))
}

#[cfg(test)]
mod tests;

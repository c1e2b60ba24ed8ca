//! Draws from a distribution. After the same seed the draws equal those of cassandra-stress, except
//! for QEXTREME, whose place inside a quantum is random there too. It chooses no seeds.

use super::{Distribution, Extreme, above, clamped};
use crate::random::JavaRandom;
use std::sync::LazyLock;

/// A distribution with the state of its generator.
#[derive(Debug, Clone)]
pub struct Sampler {
    distribution: Distribution,
    random: JavaRandom,
    /// The next number of a sequence.
    next: i64,
    /// The lowest and the highest value of an inverted distribution, which each draw needs.
    inverted_bounds: (i64, i64),
}

impl Sampler {
    /// Draws differ in every process until [`Sampler::seed`] is called, except that a sequence begins
    /// at its first value.
    pub fn new(distribution: Distribution) -> Sampler {
        let inverted_bounds = match &distribution {
            Distribution::Inverted(inner) => (inner.min(), inner.max()),
            _ => (0, 0),
        };
        Sampler { distribution, random: JavaRandom::unseeded(), next: 0, inverted_bounds }
    }

    /// The distribution that this sampler draws from.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Makes all following draws depend on the seed alone.
    pub fn seed(&mut self, seed: i64) {
        self.random = JavaRandom::new(seed);
        self.next = seed;
    }

    /// The next value.
    pub fn draw(&mut self) -> i64 {
        let value = draw(&self.distribution, &mut self.random, &mut self.next);
        match self.distribution {
            Distribution::Inverted(_) => {
                let (min, max) = self.inverted_bounds;
                max.saturating_sub(value.saturating_sub(min))
            }
            _ => value,
        }
    }

    /// The next value as a real number, for `double` and `float` columns and for ratios.
    pub fn draw_real(&mut self) -> f64 {
        let value = draw_real(&self.distribution, &mut self.random, &mut self.next);
        match self.distribution {
            Distribution::Inverted(_) => {
                let (min, max) = self.inverted_bounds;
                max as f64 - (value - min as f64)
            }
            _ => value,
        }
    }
}

/// UNIFORM(min..max) without a [`Sampler`], for the keys and cells of `standard1`.
pub(crate) fn draw_uniform(random: &mut JavaRandom, min: i64, max: i64) -> i64 {
    clamped(real_uniform(random, min, max), min, max)
}

/// The order of operations decides about the last bits, so it is that of the Java library.
fn real_uniform(random: &mut JavaRandom, min: i64, max: i64) -> f64 {
    let u = random.double();
    u * (max as f64 + 1.0) + (1.0 - u) * min as f64
}

/// A value of the distribution; of the inner one if it is inverted.
fn draw(distribution: &Distribution, random: &mut JavaRandom, next: &mut i64) -> i64 {
    match distribution {
        Distribution::Fixed(value) => *value,
        Distribution::Uniform { min, max } => draw_uniform(random, *min, *max),
        Distribution::Gaussian { min, max, mean, deviation } => {
            clamped(mean + deviation * random.gaussian(), *min, *max)
        }
        Distribution::Exponential { min, max, mean } => above(*min, *max, mean * exponential(random)),
        Distribution::Extreme(extreme) => draw_extreme(extreme, random),
        Distribution::Quantized { extreme, bounds } => {
            let (low, width) = quantum(bounds, draw_extreme(extreme, random));
            above(low, extreme.max, fastrand::f64() * width)
        }
        Distribution::Sequence { first, last } => {
            let count = last.wrapping_sub(*first).wrapping_add(1);
            let offset = next.checked_rem(count).unwrap_or_default();
            *next = next.wrapping_add(1);
            first.wrapping_add(offset)
        }
        Distribution::Inverted(inner) => draw_nested(inner, random, next),
    }
}

fn draw_real(distribution: &Distribution, random: &mut JavaRandom, next: &mut i64) -> f64 {
    match distribution {
        Distribution::Uniform { min, max } => real_uniform(random, *min, *max).clamp(*min as f64, *max as f64),
        Distribution::Gaussian { min, max, mean, deviation } => {
            (mean + deviation * random.gaussian()).clamp(*min as f64, *max as f64)
        }
        Distribution::Exponential { min, max, mean } => real_above(*min, *max, mean * exponential(random)),
        Distribution::Extreme(extreme) => real_above(extreme.min, extreme.max, extreme.offset(random.double())),
        Distribution::Quantized { extreme, bounds } => {
            let (low, width) = quantum(bounds, draw_extreme(extreme, random));
            real_above(low, extreme.max, fastrand::f64() * width)
        }
        Distribution::Inverted(inner) => match &**inner {
            Distribution::Inverted(_) => draw_nested(inner, random, next) as f64,
            inner => draw_real(inner, random, next),
        },
        Distribution::Fixed(_) | Distribution::Sequence { .. } => draw(distribution, random, next) as f64,
    }
}

/// A value of a distribution inside an inverted one, which may be inverted itself.
fn draw_nested(distribution: &Distribution, random: &mut JavaRandom, next: &mut i64) -> i64 {
    match distribution {
        Distribution::Inverted(inner) => super::mirrored(draw_nested(inner, random, next), inner),
        other => draw(other, random, next),
    }
}

fn draw_extreme(extreme: &Extreme, random: &mut JavaRandom) -> i64 {
    extreme.quantile(random.double())
}

/// The lowest value and the width of the quantum that contains `value`. A value on a bound belongs
/// to the quantum below it.
fn quantum(bounds: &[i64], value: i64) -> (i64, f64) {
    let above_value = bounds.partition_point(|bound| *bound < value);
    let quantum = above_value.saturating_sub(1).min(bounds.len() - 2);
    (bounds[quantum], (bounds[quantum + 1] - bounds[quantum]) as f64)
}

fn real_above(min: i64, max: i64, offset: f64) -> f64 {
    (min as f64 + offset.max(0.0)).min(max as f64)
}

/// A standard exponential value by algorithm SA of Ahrens and Dieter (1972), which the Java library
/// uses: other methods use the generator's draws differently.
fn exponential(random: &mut JavaRandom) -> f64 {
    /// `Σ (ln 2)^j / j!` for j from 1 to i + 1; the last one is 1 within the precision of `f64`.
    static SUMS: LazyLock<[f64; 16]> = LazyLock::new(|| {
        let (mut sum, mut term) = (0.0, 1.0);
        std::array::from_fn(|i| {
            term *= std::f64::consts::LN_2 / (i + 1) as f64;
            sum += term;
            sum
        })
    });
    let sums = &*SUMS;
    let (mut whole, mut u) = (0.0, random.double());
    // A draw of exactly 0 would double for ever.
    while u < 0.5 && whole < 64.0 {
        whole += sums[0];
        u *= 2.0;
    }
    u = 2.0 * u - 1.0;
    if u <= sums[0] {
        return whole + u;
    }
    let (mut i, mut lowest) = (0, random.double());
    while i == 0 || (u > sums[i] && i + 1 < sums.len()) {
        i += 1;
        lowest = lowest.min(random.double());
    }
    whole + lowest * sums[0]
}

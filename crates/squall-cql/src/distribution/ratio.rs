//! Ratios, written as a distribution and a divisor: `uniform(1..5)/10`. A ratio draws numbers
//! between 0 and 1; callers decide what it is a part of.

use super::{Distribution, DistributionError, Sampler};
use std::{fmt, str::FromStr};

/// A distribution divided by a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub distribution: Distribution,
    pub divisor: f64,
}

/// A ratio with the state of its generator.
#[derive(Debug, Clone)]
pub struct RatioSampler {
    sampler: Sampler,
    divisor: f64,
}

impl Ratio {
    /// The ratio 1, which is the default of every option.
    pub fn one() -> Ratio {
        Ratio { distribution: Distribution::Fixed(1), divisor: 1.0 }
    }

    /// Draws differ in every process.
    pub fn sampler(&self) -> RatioSampler {
        RatioSampler { sampler: Sampler::new(self.distribution.clone()), divisor: self.divisor }
    }

    /// The lowest ratio that can be drawn.
    pub fn min(&self) -> f64 {
        self.part(self.distribution.min() as f64)
    }

    /// The highest ratio that can be drawn.
    pub fn max(&self) -> f64 {
        self.part(self.distribution.max() as f64)
    }

    fn part(&self, value: f64) -> f64 {
        (value / self.divisor).clamp(0.0, 1.0)
    }
}

impl RatioSampler {
    /// The next ratio, between 0 and 1.
    pub fn draw(&mut self) -> f64 {
        (self.sampler.draw_real() / self.divisor).clamp(0.0, 1.0)
    }
}

impl FromStr for Ratio {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Ratio, DistributionError> {
        let invalid = || DistributionError::Ratio { text: text.to_owned() };
        let (distribution, divisor) = text.trim().rsplit_once('/').ok_or_else(invalid)?;
        let divisor: f64 = divisor.trim().parse().map_err(|_| invalid())?;
        if !(divisor.is_finite() && divisor > 0.0) {
            return Err(invalid());
        }
        Ok(Ratio { distribution: distribution.parse()?, divisor })
    }
}

/// As cassandra-stress prints a ratio in its settings.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ratio: divisor={:.6};delegate={}", self.divisor, self.distribution)
    }
}

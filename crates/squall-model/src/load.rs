//! How much load, of which kind, for how long. It does not know how load is made; the engine turns
//! these values into start times.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Profile, duration::bounded};

/// The load of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub model: LoadModel,
    /// Stop after this many iterations, if the profile has not ended before.
    pub iterations: Option<u64>,
    /// The first part of the run, whose samples are not in the results.
    #[serde(deserialize_with = "bounded")]
    pub warm_up: Duration,
}

/// What decides when the next iteration starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LoadModel {
    /// The clock: iterations start at the profile's rate per second, however slow the target is.
    Open { rate: Profile, arrivals: Arrivals },
    /// The users: each starts its next iteration when the previous one and a pause have ended.
    Closed { users: Profile, pause: Pause },
}

impl LoadModel {
    /// The level over time: a rate or a number of users.
    pub fn profile(&self) -> &Profile {
        match self {
            LoadModel::Open { rate, .. } => rate,
            LoadModel::Closed { users, .. } => users,
        }
    }

    /// Replaces the level over time.
    pub fn set_profile(&mut self, profile: Profile) {
        match self {
            LoadModel::Open { rate, .. } => *rate = profile,
            LoadModel::Closed { users, .. } => *users = profile,
        }
    }

    /// What the levels of the profile count.
    pub fn unit(&self) -> LevelUnit {
        match self {
            LoadModel::Open { .. } => LevelUnit::Rate,
            LoadModel::Closed { .. } => LevelUnit::Users,
        }
    }
}

/// What a level of the load counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelUnit {
    /// Virtual users, which are whole.
    Users,
    /// Starts per second.
    Rate,
}

impl LevelUnit {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            LevelUnit::Users => "users",
            LevelUnit::Rate => "rate",
        }
    }
}

/// How the starts of an open model are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Arrivals {
    /// At even intervals, by the profile.
    #[default]
    Even,
    /// As independent clients arrive: exponential intervals with the profile as their mean rate.
    Poisson,
}

/// Think time between two iterations of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    Fixed(#[serde(deserialize_with = "bounded")] Duration),
    Between(#[serde(deserialize_with = "bounded")] Duration, #[serde(deserialize_with = "bounded")] Duration),
}

impl Pause {
    pub const NONE: Pause = Pause::Fixed(Duration::ZERO);

    /// The pause for a random number `unit` in `0..1`.
    pub fn pick(self, unit: f64) -> Duration {
        match self {
            Pause::Fixed(duration) => duration,
            Pause::Between(least, most) => least + most.saturating_sub(least).mul_f64(unit),
        }
    }

    pub fn is_none(self) -> bool {
        matches!(self, Pause::Fixed(Duration::ZERO))
    }
}

/// Why a text is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rate: write 500, 500/s, 90/m or 0.5/h, above 0")]
pub struct ParseRateError(pub String);

/// Reads a rate as starts per second: `500`, `500/s`, `90/m`, `7200/h`, fractions allowed.
///
/// ```
/// assert_eq!(squall_model::parse_rate("90/m"), Ok(1.5));
/// assert!(squall_model::parse_rate("-5").is_err());
/// ```
pub fn parse_rate(text: &str) -> Result<f64, ParseRateError> {
    let refuse = || ParseRateError(text.to_owned());
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        _ => return Err(refuse()),
    };
    let number: f64 = number.trim().parse().map_err(|_| refuse())?;
    if !number.is_finite() || number <= 0.0 {
        return Err(refuse());
    }
    Ok(number / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_per_second_minute_and_hour_are_parsed() {
        assert_eq!(parse_rate("500"), Ok(500.0));
        assert_eq!(parse_rate("0.5/s"), Ok(0.5));
        assert_eq!(parse_rate("7200/h"), Ok(2.0));
        for text in ["", "0", "-1", "x", "5/d", "inf", "nan", "/s"] {
            assert!(parse_rate(text).is_err(), "{text:?} should be refused");
        }
    }

    #[test]
    fn random_pause_is_within_its_range() {
        let pause = Pause::Between(Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!(pause.pick(0.0), Duration::from_secs(1));
        assert_eq!(pause.pick(0.5), Duration::from_secs(2));
    }
}

//! Parses and formats durations as people write them: `500ms`, `30s`, `2m`, `1h30m`, or a bare
//! number of seconds. It refuses signs, inner blanks and unknown units instead of guessing, because
//! a guess could make a run sixty times too long.

use serde::{Deserialize, Deserializer, de::Error};
use std::time::Duration;

/// The longest duration. Sums of a few such durations do not overflow.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Deserializes a duration that may come from an untrusted message.
pub(crate) fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let duration = Duration::deserialize(from)?;
    if duration > MAX_DURATION { Err(D::Error::custom("a time is longer than a hundred years")) } else { Ok(duration) }
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write 500ms, 30s, 2m, 1h30m, or a number of seconds")]
pub struct ParseDurationError(pub String);

const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Reads `text` as a duration. Parts add up (`1h30m`), fractions are allowed (`1.5s`), a bare number is seconds.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(squall_model::parse_duration("1m30s").unwrap(), Duration::from_secs(90));
/// assert_eq!(squall_model::parse_duration("2.5").unwrap(), Duration::from_millis(2500));
/// assert!(squall_model::parse_duration("-1s").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let refuse = || ParseDurationError(text.to_owned());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refuse());
    }
    if let Ok(seconds) = plain_number(rest).ok_or(()) {
        return Duration::try_from_secs_f64(seconds).map_err(|_| refuse());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(refuse)?;
        let number = plain_number(&rest[..digits]).ok_or_else(refuse)?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let scale = UNITS.iter().find(|(name, _)| *name == &rest[..end]).ok_or_else(refuse)?.1;
        rest = &rest[end..];
        let part = Duration::try_from_secs_f64(number * scale).map_err(|_| refuse())?;
        total = total.checked_add(part).ok_or_else(refuse)?;
    }
    Ok(total)
}

/// Digits with at most one point. Refuses other forms that `f64::from_str` accepts (`inf`, `1e9`,
/// signs).
fn plain_number(text: &str) -> Option<f64> {
    let ok = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    ok.then(|| text.parse().ok()).flatten()
}

/// A form that `parse_duration` reads back to the same value: `90s` is `1m30s`, `3900us` is
/// `3.9ms`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut out = String::new();
    if hours > 0 {
        out += &format!("{hours}h");
    }
    if minutes > 0 {
        out += &format!("{minutes}m");
    }
    let rest = seconds % 60 * 1_000_000_000 + u64::from(duration.subsec_nanos());
    if rest == 0 {
        return if out.is_empty() { "0s".to_owned() } else { out };
    }
    let (unit, size, digits) = match rest {
        1_000_000_000.. => ("s", 1_000_000_000, 9),
        1_000_000.. => ("ms", 1_000_000, 6),
        1_000.. => ("us", 1_000, 3),
        _ => ("ns", 1, 0),
    };
    let part = format!("{:0digits$}", rest % size);
    match part.trim_end_matches('0') {
        "" => out += &format!("{}{unit}", rest / size),
        part => out += &format!("{}.{part}{unit}", rest / size),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, millis: u64) {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }

    #[test]
    fn durations_in_all_units_are_parsed() {
        check("500ms", 500);
        check("30s", 30_000);
        check("2m", 120_000);
        check("1h30m", 5_400_000);
        check("1.5s", 1_500);
        check("0", 0);
        check("10", 10_000);
    }

    #[test]
    fn ambiguous_durations_are_refused() {
        for text in ["", " ", "-1s", "1 s 2", "5x", "s", "1e9", "inf", "1..5s", "1m30", "999999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text:?} should be refused");
        }
    }

    #[test]
    fn formatted_durations_parse_back() {
        for millis in [0, 1, 500, 1_500, 30_000, 90_000, 5_400_000, 61_250] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }

    /// Formatting must not drop the fraction of a unit.
    #[test]
    fn formatting_keeps_fractions_of_a_unit() {
        for (nanos, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_001, "1.001us"),
            (3_900_000, "3.9ms"),
            (1_000_000_001, "1.000000001s"),
            (60_000_000_000, "1m"),
            (3_600_000_000_010, "1h10ns"),
            (5_400_000_000_000, "1h30m"),
            (61_250_000_000, "1m1.25s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), text);
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_formatted_duration_parses_back(nanos in 0..=MAX_DURATION.as_nanos() as u64) {
            let duration = Duration::from_nanos(nanos);
            proptest::prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }
}

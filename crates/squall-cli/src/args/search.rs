//! The flags of `--find-max`.

use clap::Args;
use squall_model::{ComparisonOperator, ParseThresholdError, Statistic, Threshold};
use std::time::Duration;

/// The search for the highest rate that holds a promise.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Find the highest rate that holds this promise, e.g. 'p99<50ms'; starts at --rate, or 50/s
    #[arg(long, value_name = "PROMISE", value_parser = parse_find_max_threshold, conflicts_with_all = FIND_MAX_CONFLICTS)]
    pub(crate) find_max: Option<Threshold>,
    /// Search until the answer is known this well [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = parse_precision)]
    pub(crate) find_max_precision: Option<f64>,
    /// Length of one probe [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = squall_model::parse_duration)]
    pub(crate) find_max_probe: Option<Duration>,
}

impl SearchArgs {
    pub(crate) fn precision(&self) -> f64 {
        self.find_max_precision.unwrap_or(0.05)
    }

    pub(crate) fn probe_duration(&self) -> Duration {
        self.find_max_probe.unwrap_or(Duration::from_secs(10))
    }
}

/// Flags that shape or record one run; a search makes many.
const FIND_MAX_CONFLICTS: [&str; 17] = [
    "users",
    "pause",
    "stages",
    "profile",
    "ramp_up",
    "steps",
    "duration",
    "warm_up",
    "requests",
    "check",
    "html",
    "junit",
    "csv",
    "hdr",
    "json_lines",
    "save_baseline",
    "prometheus",
];

/// A promise that more load can break: anything else has no highest rate.
fn parse_find_max_threshold(text: &str) -> Result<Threshold, String> {
    let promise: Threshold = text.parse().map_err(|error: ParseThresholdError| error.to_string())?;
    let upper = matches!(promise.comparison, ComparisonOperator::Less | ComparisonOperator::AtMost);
    let suffers = !matches!(promise.statistic, Statistic::Rate | Statistic::Requests);
    match upper && suffers {
        true => Ok(promise),
        false => Err(format!(
            "more load cannot break `{promise}`: promise a time or errors, as in p99<50ms or error_rate<1%"
        )),
    }
}

/// Narrower than the runs themselves can tell would be searched for ever.
const MIN_PRECISION: f64 = 0.001;

fn parse_precision(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a precision: write 5% or 0.05, at least 0.1%");
    parse_fraction(text).filter(|share| (MIN_PRECISION..1.0).contains(share)).ok_or_else(wrong)
}

/// Reads `5%` or `0.05`, or `200%`.
pub(crate) fn parse_tolerance(text: &str) -> Result<f64, String> {
    parse_fraction(text).ok_or_else(|| format!("`{text}` is not a share: write 5% or 0.05"))
}

fn parse_fraction(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    number.trim().parse::<f64>().ok().map(|number| number / unit).filter(|share| *share >= 0.0 && share.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{parse_find_max_threshold, parse_precision, parse_tolerance};

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!([parse_precision("5%"), parse_tolerance("5%")], [Ok(0.05), Ok(0.05)]);
        assert_eq!([parse_precision("0.1"), parse_tolerance("0.1")], [Ok(0.1), Ok(0.1)]);
        assert_eq!([parse_tolerance("200%"), parse_tolerance("0%")], [Ok(2.0), Ok(0.0)]);
        for bad in ["", "%", "-1%", "inf", "x", "nan"] {
            assert!(parse_precision(bad).is_err() && parse_tolerance(bad).is_err(), "{bad}");
        }
        assert!(["0%", "0.01%", "100%"].into_iter().all(|bad| parse_precision(bad).is_err()));
    }

    #[test]
    fn only_what_load_can_break_is_searched_for() {
        for good in ["p99<50ms", "error_rate<=1%", "browse:mean<1s", "late<5"] {
            assert!(parse_find_max_threshold(good).is_ok(), "{good}");
        }
        for bad in ["p99>5ms", "rate>5", "rate<5", "requests<5", "p99"] {
            assert!(parse_find_max_threshold(bad).is_err(), "{bad}");
        }
    }
}

//! The flags of `--find-max`. `find_max` runs the search.

use clap::Args;
use squall_model::{ComparisonOperator, ParseThresholdError, Statistic, Threshold};
use std::time::Duration;

/// The search for the highest rate that holds a threshold.
#[derive(Debug, Default, Args)]
pub(crate) struct SearchArgs {
    /// Find the highest rate that holds this threshold, e.g. 'p99<50ms'; starts at --rate, or 50/s
    #[arg(
        long,
        value_name = "THRESHOLD",
        value_parser = parse_find_max_threshold,
        conflicts_with_all = FIND_MAX_CONFLICTS
    )]
    pub(crate) find_max: Option<Threshold>,
    /// How close the search gets to the highest rate [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_precision)]
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

/// Flags that shape or record one run. A search makes many runs.
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

/// Accepts thresholds that more load can breach: the others have no highest rate.
pub(super) fn parse_find_max_threshold(text: &str) -> Result<Threshold, String> {
    let threshold: Threshold = text.parse().map_err(|error: ParseThresholdError| error.to_string())?;
    let is_upper_limit = matches!(threshold.comparison, ComparisonOperator::Less | ComparisonOperator::AtMost);
    let grows_with_load = !matches!(threshold.statistic, Statistic::Rate | Statistic::Requests);
    match is_upper_limit && grows_with_load {
        true => Ok(threshold),
        false => Err(format!(
            "more load cannot breach `{threshold}`: give a limit on times or errors, as in p99<50ms or error_rate<1%"
        )),
    }
}

/// Probes vary more than this, so a finer search would not end.
const MIN_PRECISION: f64 = 0.001;

pub(super) fn parse_precision(text: &str) -> Result<f64, String> {
    let invalid = || format!("`{text}` is not a precision: write 5% or 0.05, at least 0.1%");
    parse_fraction(text).filter(|fraction| (MIN_PRECISION..1.0).contains(fraction)).ok_or_else(invalid)
}

/// Parses `5%`, `0.05` or `200%`.
pub(crate) fn parse_tolerance(text: &str) -> Result<f64, String> {
    parse_fraction(text).ok_or_else(|| format!("`{text}` is not a percentage: write 5% or 0.05"))
}

fn parse_fraction(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number / unit)
        .filter(|fraction| *fraction >= 0.0 && fraction.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{parse_find_max_threshold, parse_precision, parse_tolerance};

    #[test]
    fn precision_and_tolerance_accept_percentages_and_fractions() {
        assert_eq!([parse_precision("5%"), parse_tolerance("5%")], [Ok(0.05), Ok(0.05)]);
        assert_eq!([parse_precision("0.1"), parse_tolerance("0.1")], [Ok(0.1), Ok(0.1)]);
        assert_eq!([parse_tolerance("200%"), parse_tolerance("0%")], [Ok(2.0), Ok(0.0)]);
        for bad in ["", "%", "-1%", "inf", "x", "nan"] {
            assert!(parse_precision(bad).is_err() && parse_tolerance(bad).is_err(), "{bad}");
        }
        assert!(["0%", "0.01%", "100%"].into_iter().all(|bad| parse_precision(bad).is_err()));
    }

    #[test]
    fn find_max_accepts_only_thresholds_that_load_can_breach() {
        for good in ["p99<50ms", "error_rate<=1%", "browse:mean<1s", "late<5"] {
            assert!(parse_find_max_threshold(good).is_ok(), "{good}");
        }
        for bad in ["p99>5ms", "rate>5", "rate<5", "requests<5", "p99"] {
            assert!(parse_find_max_threshold(bad).is_err(), "{bad}");
        }
    }
}

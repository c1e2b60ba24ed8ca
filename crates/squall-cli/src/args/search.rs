//! The flags of `--find-max`.

use clap::Args;
use squall_model::{ComparisonOperator, ParseThresholdError, Statistic, Threshold};
use std::time::Duration;

/// The search for the highest rate that holds a promise.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Find the highest rate that holds this promise, e.g. 'p99<50ms'; starts at --rate, or 50/s
    #[arg(long, value_name = "PROMISE", value_parser = promise, conflicts_with_all = NOT_WITH_A_SEARCH)]
    pub(crate) find_max: Option<Threshold>,
    /// Search until the answer is known this well [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = precision)]
    pub(crate) find_max_precision: Option<f64>,
    /// Length of one probe [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = squall_model::parse_duration)]
    pub(crate) find_max_probe: Option<Duration>,
}

impl SearchArgs {
    pub(crate) fn precision(&self) -> f64 {
        self.find_max_precision.unwrap_or(0.05)
    }

    pub(crate) fn probe(&self) -> Duration {
        self.find_max_probe.unwrap_or(Duration::from_secs(10))
    }
}

/// Flags that shape or record one run; a search makes many.
const NOT_WITH_A_SEARCH: [&str; 17] = [
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
fn promise(text: &str) -> Result<Threshold, String> {
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
const FINEST: f64 = 0.001;

fn precision(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a precision: write 5% or 0.05, at least 0.1%");
    share(text).filter(|share| (FINEST..1.0).contains(share)).ok_or_else(wrong)
}

/// Reads `5%` or `0.05`, or `200%`.
pub(crate) fn tolerance(text: &str) -> Result<f64, String> {
    share(text).ok_or_else(|| format!("`{text}` is not a share: write 5% or 0.05"))
}

fn share(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    number.trim().parse::<f64>().ok().map(|number| number / unit).filter(|share| *share >= 0.0 && share.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{precision, promise, tolerance};

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!([precision("5%"), tolerance("5%")], [Ok(0.05), Ok(0.05)]);
        assert_eq!([precision("0.1"), tolerance("0.1")], [Ok(0.1), Ok(0.1)]);
        assert_eq!([tolerance("200%"), tolerance("0%")], [Ok(2.0), Ok(0.0)]);
        for bad in ["", "%", "-1%", "inf", "x", "nan"] {
            assert!(precision(bad).is_err() && tolerance(bad).is_err(), "{bad}");
        }
        assert!(["0%", "0.01%", "100%"].into_iter().all(|bad| precision(bad).is_err()));
    }

    #[test]
    fn only_what_load_can_break_is_searched_for() {
        for good in ["p99<50ms", "error_rate<=1%", "browse:mean<1s", "late<5"] {
            assert!(promise(good).is_ok(), "{good}");
        }
        for bad in ["p99>5ms", "rate>5", "rate<5", "requests<5", "p99"] {
            assert!(promise(bad).is_err(), "{bad}");
        }
    }
}

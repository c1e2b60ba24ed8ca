//! The flags of `--find-max`.

use clap::Args;
use squall_model::Threshold;
use std::time::Duration;

/// The search for the highest rate that holds a promise.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Find the highest rate that holds this promise, e.g. 'p99<50ms'; starts at --rate, or 50/s
    #[arg(long, value_name = "PROMISE", conflicts_with_all = NOT_WITH_A_SEARCH)]
    pub(crate) find_max: Option<Threshold>,
    /// Search until the answer is known this well
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, requires = "find_max")]
    pub(crate) find_max_precision: f64,
    /// Length of one probe
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = squall_model::parse_duration)]
    #[arg(requires = "find_max")]
    pub(crate) find_max_probe: Duration,
}

/// Flags that shape or record one run; a search makes many.
const NOT_WITH_A_SEARCH: [&str; 14] = [
    "users",
    "pause",
    "stages",
    "profile",
    "ramp_up",
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

/// Reads `5%` or `0.05`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    share.filter(|share| (0.0..1.0).contains(share)).ok_or_else(|| format!("`{text}` is not a share: write 5% or 0.05"))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.1"), Ok(0.1));
        for bad in ["", "%", "-1%", "100%", "x", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}

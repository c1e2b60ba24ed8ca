//! Formats numbers for people: grouped thousands, three significant digits, fitting units. The
//! renderers for people use it; files for machines contain plain numbers, rounded here.

use squall_metrics::{MetricKey, MetricKind};
use squall_model::is_layout_shift;

/// Nanoseconds as milliseconds, exact to the nanosecond.
pub(crate) fn ms(nanos: f64) -> f64 {
    round(nanos / 1e6)
}

/// Rounds to six decimals: enough for every unit in the files, and free of noise digits.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// A whole number with grouped thousands, or a fraction with three significant digits.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 { count(value.round() as u64) } else { three_digits(value) }
}

/// `1234567` as `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let plain = value.to_string();
    let mut out = String::with_capacity(plain.len() + plain.len() / 3);
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits, never an exponent: `0.0123`, `1.23`, `12.3`, `123`.
pub(crate) fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    // Rounding may carry into the next power of ten, so take the magnitude of the rounded value.
    let magnitude = value.abs().log10().floor() as i32;
    let scale = 10f64.powi(2 - magnitude);
    let rounded = (value * scale).round() / scale;
    let magnitude = rounded.abs().log10().floor() as i32;
    format!("{rounded:.*}", (2 - magnitude).clamp(0, 9) as usize)
}

/// A time with the unit that fits: `812 µs`, `12.3 ms`, `1.23 s`, `4m10s`.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        n if n <= 0.0 => "0".to_owned(),
        n if n < 999.5 => format!("{} ns", three_digits(n)),
        n if n < 999.5e3 => format!("{} µs", three_digits(n / 1e3)),
        n if n < 999.5e6 => format!("{} ms", three_digits(n / 1e6)),
        n if n < 119.5e9 => format!("{} s", three_digits(n / 1e9)),
        n => format!("{}m{:02}s", (n / 60e9) as u64, ((n / 1e9) as u64) % 60),
    }
}

/// A value of a metric: a time, or a number if the metric counts something or is a layout shift, which has no unit.
pub(crate) fn metric_value(metric: &MetricKey, nanos: f64) -> String {
    match metric.kind {
        MetricKind::Custom if is_layout_shift(&metric.name) => number(nanos / 1e9),
        MetricKind::Custom if is_count(&metric.name) => {
            let (value, whole) = (nanos / 1e6, (nanos / 1e6).round());
            // Histograms are exact to less than one percent.
            number(if (value - whole).abs() < value / 100.0 { whole } else { value })
        }
        MetricKind::Custom | MetricKind::Request | MetricKind::Group => time(nanos),
    }
}

/// Whether a custom metric with this name counts the rows, partitions or token ranges of CQL statements. They are
/// recorded as times: 1 is 1 ms.
pub fn is_count(name: &str) -> bool {
    [":rows", ":partitions", ":ranges"].iter().any(|counted| name.ends_with(counted))
}

/// A share as a percentage: `0.25 %`, `12.3 %`, `0 %`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{} %", three_digits(fraction * 100.0))
}

/// Bytes with the unit that fits: `12.3 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = (0..UNITS.len() - 1).find(|&i| value < 999.5 * 1024f64.powi(i as i32)).unwrap_or(UNITS.len() - 1);
    let scaled = value / 1024f64.powi(step as i32);
    format!("{} {}", if step == 0 { count(scaled as u64) } else { three_digits(scaled) }, UNITS[step])
}

/// Milliseconds since 1970 in the form of RFC 3339: `2026-11-15T21:56:03.250Z`.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (year, month, day) = year_month_day(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", unix_ms % 1000)
}

/// Year, month and day of a day number since 1970-01-01. Years are counted from March, so that the
/// leap day is the last of its year.
fn year_month_day(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cql_statements_are_shown_as_numbers() {
        let shown = |name: &str, kind, nanos| metric_value(&MetricKey { kind, ..MetricKey::request(name) }, nanos);
        assert_eq!(shown("insert:rows", MetricKind::Custom, 12.003e6), "12");
        assert_eq!(shown("scan:partitions", MetricKind::Custom, 2.5e6), "2.50");
        assert_eq!(shown("scan:ranges", MetricKind::Custom, 0.0), "0");
        assert_eq!(shown("measured", MetricKind::Custom, 12e6), "12.0 ms");
        assert_eq!(shown("fetch:rows", MetricKind::Request, 12e6), "12.0 ms");
    }

    #[test]
    fn time_has_three_digits_and_a_fitting_unit() {
        let cases = [
            (0.0, "0"),
            (812.0, "812 ns"),
            (999.6, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (999_400.0, "999 µs"),
            (999_600.0, "1.00 ms"),
            (12_345_678.0, "12.3 ms"),
            (1_234_567_890.0, "1.23 s"),
            (61.0e9, "61.0 s"),
            (250.0e9, "4m10s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(time(nanos), text);
        }
    }

    #[test]
    fn numbers_have_grouped_thousands_or_three_digits() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([number(200.0), number(0.5), number(199.95), number(12_345.6)], ["200", "0.500", "200", "12,346"]);
        assert_eq!([percent(0.0), percent(0.0025), percent(1.0)], ["0 %", "0.250 %", "100 %"]);
        assert_eq!([bytes(0.0), bytes(1023.0), bytes(12_897_484.8)], ["0 B", "0.999 KiB", "12.3 MiB"]);
        assert_eq!(
            [three_digits(0.000_012_34), three_digits(9.999), three_digits(99.96)],
            ["0.0000123", "10.0", "100"]
        );
    }

    #[test]
    fn unix_time_becomes_an_rfc3339_date() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_794_779_763_250), "2026-11-15T21:56:03.250Z");
        assert_eq!(rfc3339(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
    }
}

//! Formats numbers for the dashboard and the tables: few digits and a unit.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate: whole numbers from 100 on, else up to two decimals.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 99.5 => count(r.round() as u64),
        r if r >= 9.95 || r.fract() == 0.0 => format!("{r:.1}").trim_end_matches(".0").to_owned(),
        r => format!("{r:.2}"),
    }
}

/// Nanoseconds in three digits: `870 µs`, `12.3 ms`, `1.05 s`.
pub(crate) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n >= 999.5e6 => (n / 1e9, "s"),
        n if n >= 999.5e3 => (n / 1e6, "ms"),
        n => (n / 1e3, "µs"),
    };
    match value {
        v if v >= 99.95 => format!("{v:.0} {unit}"),
        v if v >= 9.995 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

/// A fraction as a percentage with two decimals: `0.25 %`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{} %", (fraction * 10_000.0).round() / 100.0)
}

/// `4.2 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1:05`, `1:00:05`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([rate(0.5), rate(12.0), rate(45.25), rate(12_345.6)], ["0.50", "12", "45.2", "12,346"]);
        assert_eq!([time(870e3), time(12.34e6), time(1.05e9), time(0.0)], ["870 µs", "12.3 ms", "1.05 s", "0.00 µs"]);
        assert_eq!([time(999.6e3), time(99.97e6)], ["1.00 ms", "100 ms"]);
        assert_eq!([bytes(12.0), bytes(4.2 * 1024.0)], ["12 B", "4.2 KiB"]);
        assert_eq!(clock(Duration::from_secs(3605)), "1:00:05");
    }
}

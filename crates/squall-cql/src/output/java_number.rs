//! Numbers as Java's formatter writes them in English: rounded half up from the shortest decimal
//! form, thousands grouped with commas.

/// `%.{decimals}f`.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}Infinity");
    }
    // Rust prints the shortest decimal that reads back as the same number, without an exponent.
    let shortest = value.abs().to_string();
    let (whole, fraction) = shortest.split_once('.').unwrap_or((&shortest, ""));
    let mut digits: Vec<u8> =
        whole.bytes().chain(fraction.bytes().chain(std::iter::repeat(b'0')).take(decimals)).collect();
    if fraction.as_bytes().get(decimals).is_some_and(|digit| *digit >= b'5') {
        increment(&mut digits);
    }
    let point = digits.len() - decimals;
    let digits: String = digits.into_iter().map(char::from).collect();
    let (whole, fraction) = digits.split_at(point);
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// `%,.{decimals}f`.
pub(super) fn grouped(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let (number, fraction) =
        text.split_once('.').map_or((text.as_str(), ""), |(whole, _)| (whole, &text[whole.len()..]));
    let (sign, whole) = number.strip_prefix('-').map_or(("", number), |whole| ("-", whole));
    if !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return text;
    }
    format!("{sign}{}{fraction}", group(whole))
}

/// `%,d`.
pub(super) fn grouped_count(value: u64) -> String {
    group(&value.to_string())
}

fn group(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Adds one in the last place of a decimal number.
fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_are_rounded_up() {
        let cases = [
            (0.25, 1, "0.3"),
            (0.35, 1, "0.4"),
            (0.5, 0, "1"),
            (2.5, 0, "3"),
            (9.96, 1, "10.0"),
            (99.95, 1, "100.0"),
            (0.0, 5, "0.00000"),
            (-1.25, 1, "-1.3"),
            (1e21, 0, "1000000000000000000000"),
            (f64::NAN, 1, "NaN"),
            (f64::INFINITY, 1, "Infinity"),
        ];
        for (value, decimals, expected) in cases {
            assert_eq!(fixed(value, decimals), expected, "{value}");
        }
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([grouped(0.0, 0), grouped(999.4, 0), grouped(1_234_567.89, 1)], ["0", "999", "1,234,567.9"]);
        assert_eq!(grouped(-1234.0, 0), "-1,234");
        assert_eq!(grouped(f64::NAN, 0), "NaN");
        assert_eq!([grouped_count(0), grouped_count(1000), grouped_count(10_000_000)], ["0", "1,000", "10,000,000"]);
    }

    proptest! {
        #[test]
        fn a_number_is_within_half_a_unit(value in -1e12_f64..1e12, decimals in 0_usize..6) {
            let read: f64 = fixed(value, decimals).parse().unwrap();
            let unit = 10_f64.powi(-(decimals as i32));
            prop_assert!((read - value).abs() <= unit * 0.5 + value.abs() * 1e-15, "{read} {value}");
        }
    }
}

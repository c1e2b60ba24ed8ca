//! Reads the date of a cookie by the tolerant algorithm of RFC 6265, section 5.1.1. It ignores the
//! time zone, as the RFC asks: every date is in UTC.

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Seconds since 1970, negative for an earlier date; `None` if the text is no date after 1600.
pub(crate) fn parse_cookie_date(text: &str) -> Option<i64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter) {
        // Of each part the first token counts that has its form, tried in this order.
        if let (None, Some(found)) = (time, time_of_day(token)) {
            time = Some(found);
        } else if let (None, Some((found, _))) = (day, leading_number(token, 1, 2)) {
            day = Some(found);
        } else if let (None, Some(found)) = (month, month_number(token)) {
            month = Some(found);
        } else if let (None, Some((found, _))) = (year, leading_number(token, 2, 4)) {
            year = Some(found);
        }
    }
    let year = match year? {
        short @ 0..=69 => short + 2000,
        short @ 70..=99 => short + 1900,
        year => year,
    };
    let (month, day, (hour, minute, second)) = (month?, day?, time?);
    let day_exists = year >= 1601 && (1..=days_in_month(year, month)).contains(&day);
    let time_exists = hour < 24 && minute < 60 && second < 60;
    let days = (day_exists && time_exists).then(|| days_since_1970(year, month, day))?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn is_delimiter(c: char) -> bool {
    matches!(c, '\t' | ' '..='/' | ';'..='@' | '['..='`' | '{'..='~')
}

/// The number at the start of the token, if it has at least `min` and at most `max` digits, and what follows it.
fn leading_number(token: &str, min: usize, max: usize) -> Option<(i64, &str)> {
    let digits = token.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = token.split_at(digits);
    if (min..=max).contains(&digits) { Some((number.parse().ok()?, rest)) } else { None }
}

/// Hour, minute and second of a token like `09:05:59`.
fn time_of_day(token: &str) -> Option<(i64, i64, i64)> {
    let (hour, rest) = leading_number(token, 1, 2)?;
    let (minute, rest) = leading_number(rest.strip_prefix(':')?, 1, 2)?;
    let (second, _) = leading_number(rest.strip_prefix(':')?, 1, 2)?;
    Some((hour, minute, second))
}

/// 1 to 12, by the first three letters of the token.
fn month_number(token: &str) -> Option<i64> {
    let name = token.get(..3)?;
    (1..).zip(MONTHS).find(|(_, month)| name.eq_ignore_ascii_case(month)).map(|(number, _)| number)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counts from March, so that the day that leap years add is the last of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // The months from March on have 31, 30, 31, 30, 31 days, again and again: 153 in five months.
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    // 719,468 days lie between March 1 of the year 0 and 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1994-11-06 08:49:37, the date in the examples of the HTTP standard.
    const EXAMPLE: i64 = 784_111_777;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(parse_cookie_date(text), expected, "{text:?}");
    }

    #[test]
    fn the_three_formats_of_http_are_read() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(EXAMPLE));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(EXAMPLE));
        check("Sun Nov  6 08:49:37 1994", Some(EXAMPLE));
    }

    #[test]
    fn parts_stand_in_any_order_between_any_delimiters() {
        check("08:49:37 6 november 1994", Some(EXAMPLE));
        check("1994 NOVember;08:49:37/6", Some(EXAMPLE));
        check("[Nov]{6}@8:49:37!1994", Some(EXAMPLE));
        check("06-Nov-1994\t08:49:37 +0500 (PST)", Some(EXAMPLE));
        // The end of a token does not count, nor does a later token of the same form.
        check("6th Nov 1994AD 08:49:37.125 09:00:00 Dec 2001", Some(EXAMPLE));
        // A time after the first one has the form of a day.
        check("08:49:37 6:00:00 Nov 1994", Some(EXAMPLE));
    }

    #[test]
    fn years_of_two_digits_lie_between_1970_and_2069() {
        check("1 Jan 70 00:00:00", Some(0));
        check("1 Jan 99 00:00:00", Some(915_148_800));
        check("1 Jan 00 00:00:00", Some(946_684_800));
        check("1 Jan 69 00:00:00", Some(3_124_224_000));
    }

    #[test]
    fn dates_before_1970_are_negative_and_before_1601_no_dates() {
        check("31 Dec 1969 23:59:59", Some(-1));
        check("1 Jan 1601 00:00:00", Some(-11_644_473_600));
        check("31 Dec 1600 23:59:59", None);
        check("1 Jan 100 00:00:00", None);
    }

    #[test]
    fn days_that_do_not_exist_are_no_dates() {
        check("29 Feb 2000 00:00:00", Some(951_782_400));
        check("29 Feb 2024 00:00:00", Some(1_709_164_800));
        for day in ["29 Feb 2023", "29 Feb 2100", "30 Feb 2024", "31 Apr 2024", "32 Jan 2024", "0 Jan 2024"] {
            check(&format!("{day} 00:00:00"), None);
        }
    }

    #[test]
    fn dates_without_a_part_are_no_dates() {
        check("", None);
        check("Nov 1994 08:49:37", None);
        check("6 1994 08:49:37", None);
        check("6 Nov 08:49:37", None);
        check("6 Nov 1994", None);
        check("6 Nov 19945 08:49:37", None);
        check("6 No 1994 08:49:37", None);
        check("6 Nov 1994 08:49", None);
        for time in ["24:00:00", "00:60:00", "00:00:60", "008:49:37", "08:49:371", "08.49.37"] {
            check(&format!("6 Nov 1994 {time}"), None);
        }
        // The first token with the form of a time is the time, although there is a better one.
        check("24:00:00 Nov 1994 08:49:37", None);
        check("ééé 6 Nov é 1994 ", None);
    }

    proptest! {
        #[test]
        fn every_date_is_read_in_every_format(seconds in -11_644_473_600_i64..253_402_300_800) {
            let date = jiff::Timestamp::from_second(seconds).expect("a time").to_zoned(jiff::tz::TimeZone::UTC);
            for format in ["%a, %d %b %Y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y", "%H:%M:%S %Y-%B-%d"] {
                let text = date.strftime(format).to_string();
                prop_assert_eq!(parse_cookie_date(&text), Some(seconds), "{}", text);
            }
            if (1970..2070).contains(&date.year()) {
                let text = date.strftime("%A, %d-%b-%y %H:%M:%S GMT").to_string();
                prop_assert_eq!(parse_cookie_date(&text), Some(seconds), "{}", text);
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9A-Za-zé:;, -]{0,40}") {
            parse_cookie_date(&text);
        }
    }
}

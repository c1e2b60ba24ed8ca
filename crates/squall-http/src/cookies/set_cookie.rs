//! Reads the value of a `Set-Cookie` header (RFC 6265, section 5.2). It does not decide whether the
//! cookie may be stored: the jar does.

use std::time::Duration;

use super::cookie_date::parse_cookie_date;

/// What one `Set-Cookie` header asks for. Of an attribute that is given twice, the last one counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SetCookie<'h> {
    pub(crate) name: &'h str,
    pub(crate) value: &'h str,
    /// Without the dot in front that older servers send.
    pub(crate) domain: Option<&'h str>,
    pub(crate) path: Option<&'h str>,
    pub(crate) secure: bool,
    /// Zero if the header gives a negative age.
    pub(crate) max_age: Option<Duration>,
    /// Seconds since 1970.
    pub(crate) expires: Option<i64>,
}

impl<'h> SetCookie<'h> {
    /// `None` if the header names no cookie. Attributes that are unknown or malformed are ignored.
    pub(crate) fn parse(header: &'h str) -> Option<Self> {
        let mut parts = header.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let mut cookie = Self { name: trim(name), value: trim(value), ..Self::default() };
        if cookie.name.is_empty() {
            return None;
        }
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            cookie.set_attribute(trim(name), trim(value));
        }
        Some(cookie)
    }

    fn set_attribute(&mut self, name: &str, value: &'h str) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("expires") {
            self.expires = parse_cookie_date(value).or(self.expires);
        } else if is("max-age") {
            self.max_age = parse_max_age(value).or(self.max_age);
        } else if is("domain") && !value.is_empty() {
            self.domain = Some(value.strip_prefix('.').unwrap_or(value));
        } else if is("path") {
            self.path = Some(value);
        } else if is("secure") {
            self.secure = true;
        }
    }
}

/// Digits, with or without a minus in front.
fn parse_max_age(value: &str) -> Option<Duration> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let negative = digits.len() < value.len();
    // Digits fail to parse only if the number is too large.
    Some(Duration::from_secs(if negative { 0 } else { digits.parse().unwrap_or(u64::MAX) }))
}

/// Without the spaces and tabs around it.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie<'h>(name: &'h str, value: &'h str) -> SetCookie<'h> {
        SetCookie { name, value, ..SetCookie::default() }
    }

    #[track_caller]
    fn check(header: &str, expected: Option<SetCookie<'_>>) {
        assert_eq!(SetCookie::parse(header), expected, "{header:?}");
    }

    #[test]
    fn name_and_value_stand_around_the_first_equals_sign() {
        check("SID=31d4d96e407aad42", Some(cookie("SID", "31d4d96e407aad42")));
        check(" a \t= b=c\t; HttpOnly", Some(cookie("a", "b=c")));
        check("a=", Some(cookie("a", "")));
        check("a=\"quoted; Secure", Some(SetCookie { secure: true, ..cookie("a", "\"quoted") }));
        check("a=\"b c\"", Some(cookie("a", "\"b c\"")));
        check("naïve=café", Some(cookie("naïve", "café")));
    }

    #[test]
    fn header_without_a_name_is_no_cookie() {
        for header in ["", ";", "a", "a; b=c", "=v", " =v; Path=/", "; a=b", "\t=; Secure"] {
            check(header, None);
        }
    }

    #[test]
    fn attributes_are_read_in_any_case_and_order() {
        let expected = || SetCookie {
            domain: Some("example.com"),
            path: Some("/"),
            secure: true,
            max_age: Some(Duration::from_secs(60)),
            expires: Some(1_623_233_894),
            ..cookie("lang", "en-US")
        };
        check(
            "lang=en-US; Path=/; Domain=.example.com; Secure; HttpOnly; Max-Age=60; Expires=Wed, 09 Jun 2021 10:18:14 GMT",
            Some(expected()),
        );
        check(
            "lang=en-US;EXPIRES=Wed, 09 Jun 2021 10:18:14 GMT;max-age=60;secure=yes;domain=example.com;path=/;Same-Site",
            Some(expected()),
        );
    }

    #[test]
    fn last_of_equal_attributes_counts() {
        check("a=b; Path=/x; Path=/y", Some(SetCookie { path: Some("/y"), ..cookie("a", "b") }));
        check("a=b; Domain=x.test; Domain=", Some(SetCookie { domain: Some("x.test"), ..cookie("a", "b") }));
        check(
            "a=b; Max-Age=1; Max-Age=x",
            Some(SetCookie { max_age: Some(Duration::from_secs(1)), ..cookie("a", "b") }),
        );
    }

    #[test]
    fn max_age_has_only_digits_and_a_minus() {
        let age = |text: &str| SetCookie::parse(&format!("a=b; Max-Age={text}")).expect("a cookie").max_age;
        assert_eq!(age("0"), Some(Duration::ZERO));
        assert_eq!(age("3600"), Some(Duration::from_secs(3600)));
        assert_eq!(age("-1"), Some(Duration::ZERO));
        assert_eq!(age("-99999999999999999999999"), Some(Duration::ZERO));
        assert_eq!(age("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        for malformed in ["", "-", "+1", "1.5", "1s", "--1", "0x1"] {
            assert_eq!(age(malformed), None, "{malformed:?}");
        }
    }
}

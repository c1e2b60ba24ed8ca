//! The reader of `Set-Cookie` headers on any text: it must not panic, and must read a cookie that is written from what
//! it read as the same cookie.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run set_cookie -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use set_cookie::SetCookie;

// Includes the sources instead of the crate, as fuzz_targets/http_response.rs does.
#[path = "../../crates/squall-http/src/cookies/cookie_date.rs"]
mod cookie_date;
#[path = "../../crates/squall-http/src/cookies/set_cookie.rs"]
mod set_cookie;

fuzz_target!(|header: &str| {
    let Some(cookie) = SetCookie::parse(header) else { return };
    assert!(!cookie.name.is_empty() && !cookie.name.contains(['=', ';']) && !cookie.value.contains(';'));
    let mut written = format!("{}={}", cookie.name, cookie.value);
    if let Some(domain) = cookie.domain {
        // With the dot that the reader takes away.
        written += &format!("; Domain=.{domain}");
    }
    if let Some(path) = cookie.path {
        written += &format!("; Path={path}");
    }
    if let Some(age) = cookie.max_age {
        written += &format!("; Max-Age={}", age.as_secs());
    }
    if let Some(seconds) = cookie.expires {
        // From the year 1601 to 9999.
        assert!((-11_644_473_600..253_402_300_800).contains(&seconds));
    }
    written += if cookie.secure { "; Secure" } else { "" };
    assert_eq!(SetCookie::parse(&written), Some(SetCookie { expires: None, ..cookie }));
});

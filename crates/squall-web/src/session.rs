//! Sessions of the web UI: a cookie that stands for the token. The cookie holds its expiry and an
//! HMAC of it under the token, so that every orchestrator with the same token accepts it and none
//! keeps a list. The access guard checks it; `routes/sign_in.rs` issues it. Both check tokens with
//! the [`WrongTokenLimit`].

use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::hmac;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

use crate::{config::ApiToken, error::ApiError};

const COOKIE_NAME: &str = "squall_session";
/// How long a session lasts: a working day.
const SESSION_LENGTH: Duration = Duration::from_secs(12 * 3600);
/// Wrong tokens that are answered with 401 at once; afterwards one per second.
const WRONG_TOKEN_BURST: f64 = 10.0;

/// The value of a new session's `Set-Cookie` header.
pub(crate) fn session_cookie(token: &ApiToken, tls: bool) -> HeaderValue {
    let expiry = unix_now() + SESSION_LENGTH.as_secs();
    let value = format!("{expiry}.{}", hex(hmac::sign(&key(token), &signed_text(expiry)).as_ref()));
    cookie_header(&value, SESSION_LENGTH.as_secs(), tls)
}

/// The header that removes the cookie.
pub(crate) fn removed_cookie(tls: bool) -> HeaderValue {
    cookie_header("", 0, tls)
}

/// Whether the request has the cookie of a session under `token` that has not expired.
pub(crate) fn has_session(headers: &HeaderMap, token: &ApiToken) -> bool {
    session_rest(headers, token).is_some()
}

/// How long the request's session under `token` still lasts; `None` without a session.
pub(crate) fn session_rest(headers: &HeaderMap, token: &ApiToken) -> Option<Duration> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE_NAME).filter_map(|(_, value)| rest_of(value, token)).max()
}

/// How long the session of a cookie still lasts; `None` if the cookie is not valid.
fn rest_of(value: &str, token: &ApiToken) -> Option<Duration> {
    let (expiry, tag) = value.split_once('.')?;
    let (expiry, tag) = (expiry.parse::<u64>().ok()?, unhex(tag)?);
    let rest = expiry.checked_sub(unix_now()).filter(|rest| *rest > 0)?;
    hmac::verify(&key(token), &signed_text(expiry), &tag).ok()?;
    Some(Duration::from_secs(rest))
}

fn cookie_header(value: &str, max_age_s: u64, tls: bool) -> HeaderValue {
    let secure = if tls { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).expect("digits and letters")
}

fn key(token: &ApiToken) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.secret())
}

/// The prefix keeps the tag from being valid for anything else that the token may sign.
fn signed_text(expiry: u64) -> Vec<u8> {
    format!("squall session until {expiry}").into_bytes()
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Tells clients that send many wrong tokens to slow down. It counts wrong tokens only: the right one
/// is always accepted, so that a client with a wrong one locks out nobody.
pub(crate) struct WrongTokenLimit(Mutex<(f64, Instant)>);

impl Default for WrongTokenLimit {
    fn default() -> WrongTokenLimit {
        WrongTokenLimit(Mutex::new((WRONG_TOKEN_BURST, Instant::now())))
    }
}

impl WrongTokenLimit {
    /// Compares the token of a client with `token`. A wrong one is denied with 401, or with 429 above
    /// the limit.
    pub(crate) fn check(&self, token: &ApiToken, given: &[u8]) -> Result<(), ApiError> {
        if token.matches(given) {
            return Ok(());
        }
        Err(match self.count_wrong_token() {
            true => ApiError::unauthorized("the token is wrong"),
            false => {
                let message = "too many wrong tokens: try again in a few seconds";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
            }
        })
    }

    /// Whether the limit allows one more.
    fn count_wrong_token(&self) -> bool {
        let mut limit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = &mut *limit;
        *left = (*left + at.elapsed().as_secs_f64()).min(WRONG_TOKEN_BURST);
        *at = Instant::now();
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> ApiToken {
        ApiToken::new(text).unwrap()
    }

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookie).unwrap())])
    }

    #[test]
    fn cookie_is_valid_only_under_its_token_and_until_its_expiry() {
        let own = token("0123456789abcdef");
        let header = session_cookie(&own, true);
        let text = header.to_str().unwrap();
        assert!(text.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{text}");
        let cookie = text.split(';').next().unwrap();
        assert!(has_session(&headers(&format!("other=1; {cookie}")), &own));
        assert!(!has_session(&headers(cookie), &token("0123456789abcdeX")));
        let rest = session_rest(&headers(cookie), &own).unwrap();
        assert!(rest <= SESSION_LENGTH && rest > SESSION_LENGTH / 2, "{rest:?}");
        let (expiry, tag) = cookie.split_once('=').unwrap().1.split_once('.').unwrap();
        let later = expiry.parse::<u64>().unwrap() + 1;
        assert!(!has_session(&headers(&format!("squall_session={later}.{tag}")), &own), "the expiry is signed");
        let past = unix_now() - 1;
        let signed = hex(hmac::sign(&key(&own), &signed_text(past)).as_ref());
        assert!(!has_session(&headers(&format!("squall_session={past}.{signed}")), &own));
        for wrong in ["", "squall_session=", "squall_session=1", "squall_session=9999999999.zz", "squall_session=.."] {
            assert!(!has_session(&headers(wrong), &own), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_limited_to_one_per_second_after_a_burst() {
        let limit = WrongTokenLimit::default();
        for _ in 0..10 {
            assert!(limit.count_wrong_token());
        }
        assert!(!limit.count_wrong_token());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(limit.count_wrong_token());
        assert!(!limit.count_wrong_token());
        assert!(limit.check(&token("0123456789abcdef"), b"0123456789abcdef").is_ok(), "the right token");
    }
}

//! What a client asks for: browser, version, isolation, protocol and key. Each setter checks its value.
//! It claims nothing. [`super::connect`] reads it from a URL, and [`super::sessions`] from a body.

use std::time::Duration;

use super::{
    access::{ClientKey, KeyLimits},
    refusal::Refusal,
};
use crate::{playwright_version::major_minor, worker::Isolation};

const BROWSERS: [&str; 3] = ["chromium", "firefox", "webkit"];
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(3600);

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Playwright's own, between `connect()` and a Playwright server.
    Playwright,
    /// The Chrome DevTools Protocol, of Puppeteer, `connectOverCDP` and k6.
    Cdp,
}

impl Protocol {
    /// How a client connects.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Playwright => "playwright.chromium.connect('ws://HOST/?browser=chromium')",
            Self::Cdp => "puppeteer.connect({ browserWSEndpoint: 'ws://HOST/devtools/browser' })",
        }
    }
}

/// What a client asks for.
pub(crate) struct RequestedSession {
    pub(crate) browser: String,
    pub(crate) version: Option<String>,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) protocol: Protocol,
    /// How long the browser stays after its client left.
    pub(crate) keep_alive: Option<Duration>,
    /// The id of the API key; empty without one.
    pub(crate) key: String,
    pub(crate) key_limits: KeyLimits,
}

impl RequestedSession {
    pub(crate) fn new(key: &ClientKey, protocol: Protocol) -> Self {
        Self {
            browser: "chromium".to_owned(),
            version: None,
            isolation: None,
            protocol,
            keep_alive: None,
            key: key.id.clone(),
            key_limits: key.limits,
        }
    }

    pub(crate) fn set_browser(&mut self, browser: Option<String>) -> Result<(), Refusal> {
        let Some(browser) = browser else { return Ok(()) };
        if !BROWSERS.contains(&browser.as_str()) {
            return Err(Refusal::UnknownBrowser(browser.chars().take(64).collect()));
        }
        if self.protocol == Protocol::Cdp && browser != "chromium" {
            return Err(Refusal::CdpBrowser);
        }
        self.browser = browser;
        Ok(())
    }

    pub(crate) fn set_isolation(&mut self, isolation: Option<String>) -> Result<(), Refusal> {
        if let Some(text) = isolation {
            self.isolation = Some(Isolation::parse(&text).ok_or(Refusal::UnknownIsolation(text))?);
        }
        Ok(())
    }

    pub(crate) fn set_version(&mut self, version: Option<String>) -> Result<(), Refusal> {
        let Some(text) = version else { return Ok(()) };
        let numbers = text.split('.').take(2).filter(|part| part.parse::<u32>().is_ok()).count();
        if numbers < 2 {
            return Err(Refusal::PlaywrightVersion(text.chars().take(64).collect()));
        }
        self.version = Some(major_minor(&text));
        Ok(())
    }

    /// Only a CDP session can be kept: a Playwright server closes a client's pages when the client
    /// leaves.
    pub(crate) fn set_keep_alive(&mut self, keep_alive: Option<String>) -> Result<(), Refusal> {
        let Some(text) = keep_alive else { return Ok(()) };
        if self.protocol != Protocol::Cdp {
            return Err(Refusal::KeepAliveProtocol);
        }
        let time = parse_time(&text).filter(|time| *time <= MAX_KEEP_ALIVE);
        self.keep_alive = Some(time.ok_or_else(|| Refusal::KeepAlive(text.chars().take(64).collect()))?);
        Ok(())
    }
}

/// Reads `500ms`, `60s`, `5m` or `1h`.
fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse_time("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_time("5m"), Some(Duration::from_secs(300)));
        for wrong in ["", "5", "s", "-5s", "5 s", "5d", "99999999999999999999s", "9999999999999999999h"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }
}

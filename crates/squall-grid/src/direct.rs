//! The one-time path by which a client connects to a worker itself: a server signs it with the
//! worker's secret, and the worker's gateway checks it.
//! It opens no connection, and does not remember which paths were used; the gateway does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;
use squall_coord::{MemberId, SlotSessionId};

use crate::worker::Isolation;

const PATH: &str = "/direct?";
const SIGNATURE: &str = "&signature=";

/// What a server allows a client to open on a worker. Names have only characters that a URL may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectPass {
    pub(crate) session: SlotSessionId,
    pub(crate) server: MemberId,
    /// The id of the API key; empty without one.
    pub(crate) key: String,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) compression: bool,
    /// In seconds since 1970.
    pub(crate) expires: u64,
}

/// Why a path opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassError {
    /// No server of the grid has made it.
    NotSigned,
    Expired,
}

/// The time by this machine's clock, in seconds since 1970, after `wait`.
pub(crate) fn seconds_in(wait: Duration) -> u64 {
    (SystemTime::now() + wait).duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// Whether a request is for such a path.
pub(crate) fn is_direct(path: &str) -> bool {
    path.starts_with(PATH)
}

impl DirectPass {
    /// The path with its signature.
    pub(crate) fn path(&self, secret: &str) -> String {
        let isolation = self.isolation.map_or("", Isolation::name);
        let content = format!(
            "session={}&server={}&key={}&isolation={isolation}&compression={}&expires={}",
            self.session,
            self.server.as_str(),
            self.key,
            self.compression,
            self.expires
        );
        let signature = hmac::sign(&key_of(secret), content.as_bytes());
        let signature: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PATH}{content}{SIGNATURE}{signature}")
    }

    /// Reads a path that a server signed with `secret`.
    pub(crate) fn read(path: &str, secret: &str) -> Result<Self, PassError> {
        let signed = path.strip_prefix(PATH).and_then(|rest| rest.split_once(SIGNATURE));
        let (content, signature) = signed.ok_or(PassError::NotSigned)?;
        let signature = from_hex(signature).ok_or(PassError::NotSigned)?;
        hmac::verify(&key_of(secret), content.as_bytes(), &signature).map_err(|_| PassError::NotSigned)?;
        let pass = Self::parse(content).ok_or(PassError::NotSigned)?;
        if pass.expires < seconds_in(Duration::ZERO) { Err(PassError::Expired) } else { Ok(pass) }
    }

    fn parse(content: &str) -> Option<Self> {
        let mut values = content.split('&').map(|pair| pair.split_once('=').map_or("", |(_, value)| value));
        let mut next = || values.next();
        Some(Self {
            session: SlotSessionId::parse(next()?)?,
            server: MemberId::new(next()?),
            key: next()?.to_owned(),
            isolation: Isolation::parse(next()?),
            compression: next()? == "true",
            expires: next()?.parse().ok()?,
        })
    }
}

fn key_of(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(expires: u64) -> DirectPass {
        DirectPass {
            session: SlotSessionId::parse("abc").unwrap(),
            server: MemberId::new("s1"),
            key: "blue".to_owned(),
            isolation: Some(Isolation::Session),
            compression: true,
            expires,
        }
    }

    #[test]
    fn path_is_read_with_the_same_secret_only() {
        let signed = pass(seconds_in(Duration::from_secs(60)));
        let path = signed.path("secret");
        assert!(is_direct(&path));
        assert_eq!(DirectPass::read(&path, "secret"), Ok(signed));
        assert_eq!(DirectPass::read(&path, "other"), Err(PassError::NotSigned));
        for forged in
            [path.replace("blue", "red"), path.replace("session=abc", "session=abd"), path.replace("&sig", "")]
        {
            assert_eq!(DirectPass::read(&forged, "secret"), Err(PassError::NotSigned), "{forged}");
        }
        for junk in ["/direct?", "/direct?&signature=", "/direct?session=abc&signature=zz", "/json"] {
            assert_eq!(DirectPass::read(junk, "secret"), Err(PassError::NotSigned), "{junk}");
        }
    }

    #[test]
    fn path_expires() {
        assert_eq!(DirectPass::read(&pass(1).path("secret"), "secret"), Err(PassError::Expired));
    }
}

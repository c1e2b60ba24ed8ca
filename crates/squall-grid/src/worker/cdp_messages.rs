//! Messages of the Chrome DevTools Protocol on a browser's pipe: ended by NUL, with the session of a
//! client put in and taken out. It reads no message except for its session.
//! [`super::cdp_session`] uses it.
//!
//! A browser has one pipe, and all that a client sets up on it would stay when the client leaves. So
//! each client gets a session of the browser target: its messages get that session's id, and the
//! browser's messages of that session lose it.

use serde::Deserialize;

/// Messages up to this size are looked at as a whole; larger ones are passed on in parts.
const WHOLE: usize = 64 << 10;
/// The end of a message that is held back, because it may have the session's id.
const HELD_BACK: usize = 256;

/// A part of a message of the browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes for the client, and how they stand in their message.
    ForClient { bytes: Vec<u8>, first: bool, last: bool },
    /// A message without a session, which answers the worker.
    ForWorker(Vec<u8>),
}

/// Splits what comes from the browser.
#[derive(Debug, Default)]
pub(crate) struct MessageSplitter {
    pending: Vec<u8>,
    /// The beginning of the message was passed on.
    begun: bool,
    /// The rest of the message belongs to a client that left.
    skipped: bool,
    suffix: Vec<u8>,
}

impl MessageSplitter {
    /// From here on messages are for the client with this session.
    pub(crate) fn begin_client(&mut self, session: &str) {
        self.suffix = format!(",\"sessionId\":\"{session}\"}}").into_bytes();
        self.skipped |= self.begun;
        self.begun = false;
    }

    /// The parts in `bytes`.
    pub(crate) fn split(&mut self, bytes: &[u8]) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == 0) {
            self.pending.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            parts.extend(self.end_message());
        }
        self.pending.extend_from_slice(rest);
        if self.skipped {
            self.pending.clear();
        } else if self.pending.len() > WHOLE {
            let held = self.pending.split_off(self.pending.len() - HELD_BACK);
            let bytes = std::mem::replace(&mut self.pending, held);
            parts.push(Part::ForClient { bytes, first: !self.begun, last: false });
            self.begun = true;
        }
        parts
    }

    fn end_message(&mut self) -> Option<Part> {
        let mut bytes = std::mem::take(&mut self.pending);
        let first = !std::mem::take(&mut self.begun);
        if std::mem::take(&mut self.skipped) {
            return None;
        }
        if !self.suffix.is_empty() && bytes.ends_with(&self.suffix) {
            bytes.truncate(bytes.len() - self.suffix.len());
            bytes.push(b'}');
        } else if first && !has_session(&bytes) {
            return Some(Part::ForWorker(bytes));
        }
        Some(Part::ForClient { bytes, first, last: true })
    }
}

/// Whether a message ends with a session's id. Chromium writes it last.
fn has_session(message: &[u8]) -> bool {
    let Some(text) = message.strip_suffix(b"\"}") else { return false };
    let Some(quote) = text.iter().rposition(|byte| *byte == b'"') else { return false };
    text[..=quote].ends_with(b",\"sessionId\":\"")
}

#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(rename = "sessionId", borrow, default)]
    session: Option<&'a str>,
}

/// A client's message for the pipe, with the client's session if it names none; `None` if it is not a
/// JSON object.
pub(crate) fn for_browser(message: &str, session: &str) -> Option<Vec<u8>> {
    let head: MessageHead<'_> = serde_json::from_str(message).ok()?;
    let mut bytes = Vec::with_capacity(message.len() + session.len() + 16);
    if head.session.is_some() {
        bytes.extend_from_slice(message.as_bytes());
    } else {
        let fields = message.trim_start().strip_prefix('{')?;
        let comma = if fields.trim_start().starts_with('}') { "" } else { "," };
        bytes.extend_from_slice(format!("{{\"sessionId\":\"{session}\"{comma}{fields}").as_bytes());
    }
    bytes.push(0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Part {
        Part::ForClient { bytes: text.as_bytes().to_vec(), first: true, last: true }
    }

    #[test]
    fn messages_of_the_client_lose_its_session_and_others_keep_theirs() {
        let mut splitter = MessageSplitter::default();
        splitter.begin_client("S");
        let stream = "{\"id\":1,\"result\":{},\"sessionId\":\"S\"}\0{\"method\":\"x\",\"sessionId\":\"T\"}\0\
                      {\"id\":7,\"result\":{\"sessionId\":\"S\"}}\0{\"method\":\"y\",\"params\":{}}\0";
        let expected = [
            client("{\"id\":1,\"result\":{}}"),
            client("{\"method\":\"x\",\"sessionId\":\"T\"}"),
            Part::ForWorker(b"{\"id\":7,\"result\":{\"sessionId\":\"S\"}}".to_vec()),
            Part::ForWorker(b"{\"method\":\"y\",\"params\":{}}".to_vec()),
        ];
        assert_eq!(splitter.split(stream.as_bytes()), expected);
        let mut by_byte = MessageSplitter::default();
        by_byte.begin_client("S");
        let parts: Vec<Part> = stream.as_bytes().iter().flat_map(|byte| by_byte.split(&[*byte])).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn answers_come_to_the_worker_while_there_is_no_client() {
        let answer = b"{\"id\":1,\"result\":{\"sessionId\":\"S\"}}";
        let parts = MessageSplitter::default().split(&[answer.as_slice(), &[0]].concat());
        assert_eq!(parts, [Part::ForWorker(answer.to_vec())]);
    }

    #[test]
    fn large_message_is_passed_on_in_parts_and_little_of_it_is_held() {
        let mut splitter = MessageSplitter::default();
        splitter.begin_client("S");
        let body = "x".repeat(1 << 20);
        let message = format!("{{\"id\":1,\"result\":\"{body}\",\"sessionId\":\"S\"}}\0");
        let mut joined = Vec::new();
        let (mut firsts, mut lasts, mut parts) = (0, 0, 0);
        for chunk in message.as_bytes().chunks(10_000) {
            for part in splitter.split(chunk) {
                let Part::ForClient { bytes, first, last } = part else { panic!("{part:?}") };
                joined.extend(bytes);
                (firsts, lasts, parts) = (firsts + u32::from(first), lasts + u32::from(last), parts + 1);
            }
            assert!(splitter.pending.len() <= WHOLE);
        }
        assert_eq!(String::from_utf8(joined).unwrap(), format!("{{\"id\":1,\"result\":\"{body}\"}}"));
        assert!((firsts, lasts) == (1, 1) && parts > 10, "{firsts} {lasts} {parts}");
    }

    #[test]
    fn next_client_gets_no_part_of_a_message_of_the_one_before() {
        let mut splitter = MessageSplitter::default();
        splitter.begin_client("S");
        assert_eq!(splitter.split(&[b'x'; WHOLE + 1]).len(), 1);
        splitter.begin_client("T");
        let parts = splitter.split(b"xxx,\"sessionId\":\"S\"}\0{\"id\":1,\"sessionId\":\"T\"}\0");
        assert_eq!(parts, [client("{\"id\":1}")]);
    }

    #[test]
    fn session_is_put_into_messages_that_name_none() {
        let of = |message| for_browser(message, "S").map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(of("{\"id\":1}").unwrap(), "{\"sessionId\":\"S\",\"id\":1}\0");
        assert_eq!(of(" {} ").unwrap(), "{\"sessionId\":\"S\"} \0");
        assert_eq!(of("{\"id\":1,\"sessionId\":\"T\"}").unwrap(), "{\"id\":1,\"sessionId\":\"T\"}\0");
        assert_eq!(
            of("{\"params\":{\"sessionId\":\"T\"}}").unwrap(),
            "{\"sessionId\":\"S\",\"params\":{\"sessionId\":\"T\"}}\0"
        );
        for wrong in ["", "[]", "1", "{\"id\":1}\0{\"id\":2}", "{\"id\":\"\0\"}", "{"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}

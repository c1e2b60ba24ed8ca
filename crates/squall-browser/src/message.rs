//! Decodes one message of the DevTools protocol: a reply to a command, or an event. It does not know the
//! commands. [`Connection`](crate::connection) calls it for everything that a browser sends.

use serde::Deserialize;
use serde_json::Value;

/// A message from the browser.
#[derive(Debug, PartialEq)]
pub enum CdpMessage {
    /// The reply to the command with this number; an error is the browser's own text.
    Reply { id: u64, result: Result<Value, String> },
    /// An event of a session, or of the browser itself.
    Event { session: Option<String>, method: String, params: Value },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMessage {
    id: Option<u64>,
    #[serde(default)]
    result: Value,
    error: Option<RawError>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    session_id: Option<String>,
}

#[derive(Deserialize)]
struct RawError {
    #[serde(default)]
    message: String,
}

impl CdpMessage {
    /// `None` if the bytes are no message of the protocol.
    pub fn decode(bytes: &[u8]) -> Option<CdpMessage> {
        let raw: RawMessage = serde_json::from_slice(bytes).ok()?;
        if let Some(id) = raw.id {
            let result = match raw.error {
                Some(error) => Err(error.message),
                None => Ok(raw.result),
            };
            return Some(CdpMessage::Reply { id, result });
        }
        Some(CdpMessage::Event { session: raw.session_id, method: raw.method?, params: raw.params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replies_errors_and_events_are_told_apart() {
        let reply = CdpMessage::decode(br#"{"id":3,"result":{"a":1},"sessionId":"S"}"#);
        assert_eq!(reply, Some(CdpMessage::Reply { id: 3, result: Ok(json!({"a": 1})) }));
        let error = CdpMessage::decode(br#"{"id":4,"error":{"code":-32000,"message":"no such node"}}"#);
        assert_eq!(error, Some(CdpMessage::Reply { id: 4, result: Err("no such node".to_owned()) }));
        let event = CdpMessage::decode(br#"{"method":"Page.loadEventFired","params":{},"sessionId":"S"}"#);
        let (session, method) = (Some("S".to_owned()), "Page.loadEventFired".to_owned());
        assert_eq!(event, Some(CdpMessage::Event { session, method, params: json!({}) }));
        for junk in [&b""[..], b"null", b"{}", b"[1]", b"{\"id\":-1}", b"{\"id\":1", b"\xff"] {
            assert_eq!(CdpMessage::decode(junk), None);
        }
    }
}

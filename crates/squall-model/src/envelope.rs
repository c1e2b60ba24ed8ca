//! The command message that wakes a worker, in vikhry's format. It says what has happened to the
//! run, for tools that watch; workers read what to do from the [`RunSpec`](crate::RunSpec).

use serde::{Deserialize, Serialize};

/// What has happened to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandType {
    StartTest,
    StopTest,
    AddUser,
    RemoveUser,
    /// The worker should finish what it does and leave. Only Squall's workers know it.
    Drain,
}

/// A message on `worker:<id>:commands`. Any other form is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandEnvelope {
    #[serde(rename = "type")]
    pub kind: CommandType,
    pub command_id: String,
    pub epoch: u64,
    /// Unix time in whole seconds; vikhry's decoder refuses fractions.
    pub sent_at: u64,
    pub payload: serde_json::Map<String, serde_json::Value>,
}

/// Why a message is not a command.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    #[error("a command of {0} bytes is longer than any that is sent")]
    TooLong(usize),
    #[error("not a command: {0}")]
    NotACommand(#[from] serde_json::Error),
    #[error("a command for users names them in `user_id` or `user_ids`: whole numbers or texts, and nothing else")]
    InvalidUsers,
    #[error("a start names `target_users`, a whole number, or `rate`, and `init_params`, an object, and nothing else")]
    InvalidStart,
    #[error("a stop and a drain have an empty payload")]
    InvalidStop,
}

/// The id of a user in vikhry's commands, keys and API, which count users from 1. The engine numbers
/// them from 0.
pub const fn user_id(number: u64) -> u64 {
    number + 1
}

/// Larger than a command for 100,000 users.
const MAX_ENVELOPE_BYTES: usize = 2 << 20;

impl CommandEnvelope {
    /// Decodes a message strictly.
    pub fn decode(bytes: &[u8]) -> Result<CommandEnvelope, EnvelopeError> {
        if bytes.len() > MAX_ENVELOPE_BYTES {
            return Err(EnvelopeError::TooLong(bytes.len()));
        }
        let envelope: CommandEnvelope = serde_json::from_slice(bytes)?;
        let payload = &envelope.payload;
        match envelope.kind {
            CommandType::AddUser | CommandType::RemoveUser if !is_valid_users(payload) => {
                Err(EnvelopeError::InvalidUsers)
            }
            CommandType::StartTest if !is_valid_start(payload) => Err(EnvelopeError::InvalidStart),
            CommandType::StopTest | CommandType::Drain if !payload.is_empty() => Err(EnvelopeError::InvalidStop),
            _ => Ok(envelope),
        }
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("text and numbers only")
    }
}

fn is_valid_users(payload: &serde_json::Map<String, serde_json::Value>) -> bool {
    let is_user = |value: &serde_json::Value| value.is_u64() || value.is_string();
    let mut fields = payload.iter();
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) if name == "user_id" => is_user(value),
        (Some((name, value)), None) if name == "user_ids" => {
            value.as_array().is_some_and(|users| users.iter().all(is_user))
        }
        _ => false,
    }
}

fn is_valid_start(payload: &serde_json::Map<String, serde_json::Value>) -> bool {
    let rate = |value: &serde_json::Value| value.as_f64().is_some_and(|rate| rate >= 0.0);
    let load = match (payload.get("target_users"), payload.get("rate")) {
        (Some(users), None) => users.is_u64(),
        (None, Some(value)) => rate(value),
        _ => false,
    };
    load && payload.len() == 2 && payload.get("init_params").is_some_and(serde_json::Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vikhry_messages_are_decoded_and_others_are_refused() {
        let good = [
            r#"{"type":"start_test","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"target_users":5,"init_params":{}}}"#,
            r#"{"type":"start_test","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"rate":20.5,"init_params":{"a":[1]}}}"#,
            r#"{"type":"stop_test","command_id":"c","epoch":0,"sent_at":1,"payload":{}}"#,
            r#"{"type":"drain","command_id":"c","epoch":0,"sent_at":1,"payload":{}}"#,
            r#"{"type":"add_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_id":7}}"#,
            r#"{"type":"remove_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_ids":[1,"2"]}}"#,
        ];
        for text in good {
            let envelope = CommandEnvelope::decode(text.as_bytes()).expect(text);
            assert_eq!(CommandEnvelope::decode(envelope.encode().as_bytes()).unwrap(), envelope);
        }
        let bad = [
            "",
            "[]",
            r#"{"type":"start_test"}"#,
            r#"{"type":"explode","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{}}"#,
            r#"{"type":"stop_test","command_id":"c","epoch":-1,"sent_at":1773180000,"payload":{}}"#,
            r#"{"type":"stop_test","command_id":"c","epoch":1,"sent_at":1773180000,"payload":{},"more":1}"#,
            r#"{"type":"add_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{}}"#,
            r#"{"type":"add_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_id":[1]}}"#,
            r#"{"type":"add_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_ids":7}}"#,
            r#"{"type":"remove_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_ids":[1,null]}}"#,
            r#"{"type":"remove_user","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{"user_id":1,"user_ids":[1]}}"#,
            r#"{"type":"stop_test","command_id":"c","epoch":"1","sent_at":1773180000,"payload":[]}"#,
            r#"{"type":"stop_test","command_id":"c","epoch":1,"sent_at":1773180000.5,"payload":{}}"#,
        ];
        bad.iter().for_each(|text| assert!(CommandEnvelope::decode(text.as_bytes()).is_err(), "{text}"));
    }

    #[test]
    fn invalid_payloads_of_starts_and_stops_are_refused() {
        let message = |kind: &str, payload: &str| {
            format!(r#"{{"type":"{kind}","command_id":"c","epoch":3,"sent_at":1773180000,"payload":{payload}}}"#)
        };
        let bad = [
            ("stop_test", r#"{"a":1}"#),
            ("start_test", "{}"),
            ("start_test", r#"{"target_users":5}"#),
            ("start_test", r#"{"init_params":{}}"#),
            ("start_test", r#"{"target_users":"many","junk":[1]}"#),
            ("start_test", r#"{"target_users":"5","init_params":{}}"#),
            ("start_test", r#"{"target_users":7.5,"init_params":{}}"#),
            ("start_test", r#"{"target_users":-1,"init_params":{}}"#),
            ("start_test", r#"{"target_users":5,"init_params":[]}"#),
            ("start_test", r#"{"target_users":5,"init_params":null}"#),
            ("start_test", r#"{"target_users":5,"init_params":{},"more":1}"#),
            ("start_test", r#"{"target_users":5,"rate":5,"init_params":{}}"#),
            ("start_test", r#"{"rate":-1,"init_params":{}}"#),
        ];
        for (kind, payload) in bad {
            assert!(CommandEnvelope::decode(message(kind, payload).as_bytes()).is_err(), "{kind} {payload}");
        }
    }
}

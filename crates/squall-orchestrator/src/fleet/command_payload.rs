//! The messages that wake workers, in the format of vikhry: an envelope and a payload. It sends
//! nothing; `FleetClient` publishes the messages.

use squall_coord::unique_id;
use squall_model::{Bundle, CommandEnvelope, CommandType, LoadModel, RunSpec};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) type CommandPayload = serde_json::Map<String, serde_json::Value>;

pub(super) fn command_envelope(kind: CommandType, epoch: u64, payload: CommandPayload) -> CommandEnvelope {
    let sent_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    CommandEnvelope { kind, command_id: unique_id(), epoch, sent_at, payload }
}

/// The payload of a command that says only that the users change; further commands name them. Only
/// workers that take `user_ids` can decode it.
pub(super) fn unnamed_users_payload() -> CommandPayload {
    users_payload(&[])
}

fn users_payload(ids: &[u64]) -> CommandPayload {
    let (name, value) = match ids {
        [id] => ("user_id", (*id).into()),
        _ => ("user_ids", ids.into()),
    };
    [(name.to_owned(), value)].into_iter().collect()
}

/// The messages that add or remove the users `ids`: one message, or one per user for a worker that
/// does not take `user_ids`.
pub(super) fn user_commands(kind: CommandType, epoch: u64, ids: &[u64], takes_user_ids: bool) -> Vec<String> {
    let users_per_message = if takes_user_ids { ids.len().max(1) } else { 1 };
    ids.chunks(users_per_message).map(|part| command_envelope(kind, epoch, users_payload(part)).encode()).collect()
}

/// The payload of a start command, as vikhry sends it. An open load gives its rate instead of its
/// users.
pub(super) fn start_payload(spec: &RunSpec, bundle: &Bundle) -> CommandPayload {
    // A step of no duration has no load: a test without users at its start begins with one.
    let stages = spec.profile.pieces().iter().filter(|stage| stage.duration > Duration::from_nanos(1));
    let most = stages.map(|stage| stage.from.max(stage.to)).fold(0.0, f64::max);
    let (name, load) = match bundle.plan.load.model {
        LoadModel::Closed { .. } => ("target_users", (most.ceil() as u64).into()),
        LoadModel::Open { .. } => ("rate", most.into()),
    };
    let params: CommandPayload = spec.params.clone().into_iter().collect();
    [(name.to_owned(), load), ("init_params".to_owned(), params.into())].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_payload_has_the_format_of_vikhry() {
        let text = |users: &[u64]| serde_json::Value::from(users_payload(users)).to_string();
        assert_eq!(text(&[3]), r#"{"user_id":3}"#);
        assert_eq!(text(&[3, 4]), r#"{"user_ids":[3,4]}"#);
        assert_eq!(text(&[]), r#"{"user_ids":[]}"#);
    }

    #[test]
    fn worker_that_does_not_take_user_ids_gets_one_user_per_message() {
        let payloads = |takes_user_ids| -> Vec<String> {
            let messages = user_commands(CommandType::AddUser, 3, &[7, 8], takes_user_ids);
            let decode = |text: &String| CommandEnvelope::decode(text.as_bytes()).expect("a command");
            messages.iter().map(|text| serde_json::Value::from(decode(text).payload).to_string()).collect()
        };
        assert_eq!(payloads(false), [r#"{"user_id":7}"#, r#"{"user_id":8}"#]);
        assert_eq!(payloads(true), [r#"{"user_ids":[7,8]}"#]);
    }
}

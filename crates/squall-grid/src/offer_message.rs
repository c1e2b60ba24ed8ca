//! The messages between a worker and a server that has its store in memory: an offer and its answer
//! as JSON. It sends nothing. [`crate::server`] answers them, and [`crate::worker`] sends them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use squall_coord::{EndReason, HeldSession, MemberId, OfferOutcome, SlotOffer, SlotSessionId, SlotWorkerId};

/// The body of `POST /v1/workers/offer`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferMessage {
    worker: String,
    versions: Vec<String>,
    endpoint: String,
    secret: String,
    slots: u32,
    lifetime: u64,
    max_lifetime: Option<u64>,
    draining: bool,
    started_ms: u64,
    sessions: Vec<HeldMessage>,
    #[serde(default)]
    ended: Vec<String>,
    ttl_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct HeldMessage {
    id: String,
    key: String,
    version: String,
    server: String,
    direct: bool,
    detached: bool,
}

/// The body of `POST /v1/workers/leave`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeaveMessage {
    worker: String,
}

/// The answer to an offer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferAnswer {
    drain: bool,
    #[serde(default)]
    pending: u64,
    #[serde(default)]
    name_taken: bool,
    deleted: Vec<String>,
    server_lost: Vec<String>,
    #[serde(default)]
    server_unknown: Vec<String>,
}

impl OfferMessage {
    pub(crate) fn new(offer: &SlotOffer, ttl: Duration) -> Self {
        let held = |held: &HeldSession| HeldMessage {
            id: held.id.to_string(),
            key: held.key.clone(),
            version: held.version.clone(),
            server: held.server.as_str().to_owned(),
            direct: held.direct,
            detached: held.detached,
        };
        Self {
            worker: offer.worker.to_string(),
            versions: offer.versions.clone(),
            endpoint: offer.endpoint.clone(),
            secret: offer.secret.clone(),
            slots: offer.slots,
            lifetime: offer.lifetime,
            max_lifetime: offer.max_lifetime,
            draining: offer.draining,
            started_ms: offer.started_ms,
            sessions: offer.sessions.iter().map(held).collect(),
            ended: offer.ended.iter().map(ToString::to_string).collect(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The offer and how long it is valid; `None` if a name is not valid or the version is missing.
    pub(crate) fn into_offer(self) -> Option<(SlotOffer, Duration)> {
        let held = |held: HeldMessage| {
            Some(HeldSession {
                id: SlotSessionId::parse(&held.id)?,
                key: held.key,
                version: held.version,
                server: MemberId::new(held.server),
                direct: held.direct,
                detached: held.detached,
            })
        };
        // A store keeps no offer without a version.
        if self.versions.is_empty() {
            return None;
        }
        let offer = SlotOffer {
            worker: SlotWorkerId::parse(&self.worker)?,
            versions: self.versions,
            endpoint: self.endpoint,
            secret: self.secret,
            slots: self.slots,
            lifetime: self.lifetime,
            max_lifetime: self.max_lifetime,
            draining: self.draining,
            started_ms: self.started_ms,
            sessions: self.sessions.into_iter().map(held).collect::<Option<_>>()?,
            ended: self.ended.iter().map(|id| SlotSessionId::parse(id)).collect::<Option<_>>()?,
        };
        Some((offer, Duration::from_millis(self.ttl_ms.min(60_000))))
    }
}

impl LeaveMessage {
    pub(crate) fn new(worker: &SlotWorkerId) -> Self {
        Self { worker: worker.to_string() }
    }

    pub(crate) fn worker(&self) -> Option<SlotWorkerId> {
        SlotWorkerId::parse(&self.worker)
    }
}

impl OfferAnswer {
    pub(crate) fn new(outcome: &OfferOutcome) -> Self {
        let of = |reason: EndReason| {
            let ended = outcome.end.iter().filter(move |(_, of)| *of == reason);
            ended.map(|(id, _)| id.to_string()).collect()
        };
        Self {
            drain: outcome.drain,
            pending: outcome.pending,
            name_taken: outcome.name_taken,
            deleted: of(EndReason::Deleted),
            server_lost: of(EndReason::ServerLost),
            server_unknown: of(EndReason::ServerUnknown),
        }
    }

    pub(crate) fn outcome(&self) -> OfferOutcome {
        let ids = |ids: &[String], reason: EndReason| -> Vec<(SlotSessionId, EndReason)> {
            ids.iter().filter_map(|id| Some((SlotSessionId::parse(id)?, reason))).collect()
        };
        let mut end = ids(&self.deleted, EndReason::Deleted);
        end.extend(ids(&self.server_lost, EndReason::ServerLost));
        end.extend(ids(&self.server_unknown, EndReason::ServerUnknown));
        OfferOutcome { drain: self.drain, pending: self.pending, name_taken: self.name_taken, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_and_answer_have_these_bytes() {
        let offer = SlotOffer {
            worker: SlotWorkerId::new("chromium", "w1").unwrap(),
            versions: vec!["1.65".to_owned()],
            endpoint: "ws://w1/".to_owned(),
            secret: "s".to_owned(),
            slots: 2,
            lifetime: 7,
            max_lifetime: None,
            draining: false,
            started_ms: 9,
            sessions: vec![HeldSession {
                id: SlotSessionId::parse("a").unwrap(),
                key: "blue".to_owned(),
                version: "1.65".to_owned(),
                server: MemberId::new("s1"),
                direct: false,
                detached: false,
            }],
            ended: vec![SlotSessionId::parse("b").unwrap()],
        };
        let text = serde_json::to_string(&OfferMessage::new(&offer, Duration::from_secs(3))).unwrap();
        let golden = r#"{"worker":"chromium:w1","versions":["1.65"],"endpoint":"ws://w1/","secret":"s","slots":2,"lifetime":7,"max_lifetime":null,"draining":false,"started_ms":9,"sessions":[{"id":"a","key":"blue","version":"1.65","server":"s1","direct":false,"detached":false}],"ended":["b"],"ttl_ms":3000}"#;
        assert_eq!(text, golden);
        let message: OfferMessage = serde_json::from_str(golden).unwrap();
        assert_eq!(message.into_offer(), Some((offer, Duration::from_secs(3))));
        let ended = |id: &str, reason| (SlotSessionId::parse(id).unwrap(), reason);
        let end = vec![ended("a", EndReason::ServerLost), ended("b", EndReason::ServerUnknown)];
        let outcome = OfferOutcome { drain: true, pending: 1, name_taken: false, end };
        let answer = serde_json::to_string(&OfferAnswer::new(&outcome)).unwrap();
        assert_eq!(
            answer,
            r#"{"drain":true,"pending":1,"name_taken":false,"deleted":[],"server_lost":["a"],"server_unknown":["b"]}"#
        );
        assert_eq!(serde_json::from_str::<OfferAnswer>(&answer).unwrap().outcome(), outcome);
    }
}

//! What a slot store keeps of a worker, a session and a waiting claim. Redis has them as JSON.
//! They decide nothing. Both slot stores use them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::{HeldSession, SlotOffer, SlotSessionId, SlotSessionView, SlotWorkerId, SlotWorkerView};
use crate::MemberId;

/// The version of claims that take any version.
pub(super) const ANY_VERSION: &str = "*";

/// An offer. Redis adds the fields with defaults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OfferRecord {
    pub(super) versions: Vec<String>,
    pub(super) endpoint: String,
    pub(super) secret: String,
    pub(super) slots: u32,
    /// 0 for none.
    pub(super) max_lifetime: u64,
    pub(super) lifetime: u64,
    pub(super) draining: bool,
    pub(super) started: u64,
    #[serde(default)]
    pub(super) drain_wish: bool,
    #[serde(default)]
    pub(super) unreachable: bool,
}

impl OfferRecord {
    /// Whether it serves a claim of this version.
    pub(super) fn fits(&self, version: &str) -> bool {
        version == ANY_VERSION || self.versions.iter().any(|own| own == version)
    }

    /// The version of a session whose claim asked for `version`.
    pub(super) fn version_for(&self, version: &str) -> String {
        let any = self.versions.first().map_or("", String::as_str);
        if version == ANY_VERSION { any } else { version }.to_owned()
    }

    pub(super) fn new(offer: &SlotOffer) -> Self {
        Self {
            versions: offer.versions.clone(),
            endpoint: offer.endpoint.clone(),
            secret: offer.secret.clone(),
            slots: offer.slots,
            max_lifetime: offer.max_lifetime.unwrap_or(0),
            lifetime: offer.lifetime,
            draining: offer.draining,
            started: offer.started_ms,
            drain_wish: false,
            unreachable: false,
        }
    }

    pub(super) fn view(self, worker: SlotWorkerId, active: u32) -> SlotWorkerView {
        SlotWorkerView {
            worker,
            versions: self.versions,
            endpoint: self.endpoint,
            slots: self.slots,
            active,
            lifetime: self.lifetime,
            max_lifetime: (self.max_lifetime > 0).then_some(self.max_lifetime),
            draining: self.draining || self.drain_wish,
            unreachable: self.unreachable,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SessionState {
    /// The worker has not listed it yet.
    Granted,
    /// The worker has listed it.
    Held,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    /// `kind:name`.
    pub(super) worker: String,
    pub(super) version: String,
    pub(super) server: String,
    pub(super) key: String,
    /// When it got its slot, in milliseconds of the store's clock.
    pub(super) since: u64,
    pub(super) state: SessionState,
    pub(super) ending: bool,
    /// It waits for a server to attach, and its worker does not know it yet.
    #[serde(default)]
    pub(super) reserved: bool,
    /// Its worker keeps it without a client.
    #[serde(default)]
    pub(super) detached: bool,
}

impl SessionRecord {
    /// Its worker has listed it, with the server that it is connected to.
    pub(super) fn list(&mut self, held: &HeldSession) {
        self.state = SessionState::Held;
        self.reserved = false;
        self.version.clone_from(&held.version);
        if !held.detached {
            self.server = held.server.as_str().to_owned();
        }
        self.detached |= held.detached;
    }

    /// `None` if the record is not one of Squall's.
    pub(super) fn view(self, id: SlotSessionId, now: u64) -> Option<SlotSessionView> {
        Some(SlotSessionView {
            id,
            worker: SlotWorkerId::parse(&self.worker)?,
            version: self.version,
            server: MemberId::new(self.server),
            key: self.key,
            age: Duration::from_millis(now.saturating_sub(self.since)),
            held: self.state == SessionState::Held,
            ending: self.ending,
            attachable: self.reserved || self.detached,
        })
    }
}

/// A claim that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TicketRecord {
    pub(super) kind: String,
    /// [`ANY_VERSION`] for any.
    pub(super) version: String,
    pub(super) key: String,
    pub(super) server: String,
    /// How long the worker may take to list the session, in milliseconds.
    pub(super) dial: u64,
    pub(super) reserved: bool,
    /// When it began to wait, in milliseconds of the store's clock.
    pub(super) since: u64,
}

/// A session in an offer.
#[derive(Debug, Serialize)]
pub(super) struct HeldRecord<'a> {
    pub(super) id: &'a str,
    pub(super) key: &'a str,
    pub(super) version: &'a str,
    pub(super) server: &'a str,
    pub(super) direct: bool,
    pub(super) detached: bool,
}

//! When an orchestrator last heard the store, and how long an outage was. It reads no clock and asks no
//! store: [`Orchestrator`](super::Orchestrator) tells it what happened and when.

use std::time::Duration;
use tokio::time::Instant;

/// | state | heard at `t` | unreachable at `t` | outage taken |
/// |---|---|---|---|
/// | `Never` | `Heard(t)` | `Silent(t)` | – |
/// | `Heard(at)` | `Heard(t)` | `Silent(at)` | – |
/// | `Silent(since)` | `Back` | – | – |
/// | `Back` | – | `Silent(t)` | `Heard` |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StoreContact {
    #[default]
    Never,
    Heard(Instant),
    Silent {
        since: Instant,
    },
    /// The store answers again, and the outage is not reported yet.
    Back {
        at: Instant,
        outage: Duration,
    },
}

impl StoreContact {
    /// The store answered at `at`, which may be before the last call.
    #[must_use]
    pub(super) fn heard(self, at: Instant) -> StoreContact {
        match self {
            StoreContact::Never => StoreContact::Heard(at),
            StoreContact::Heard(last) => StoreContact::Heard(last.max(at)),
            StoreContact::Silent { since } if at > since => StoreContact::Back { at, outage: at - since },
            other @ (StoreContact::Silent { .. } | StoreContact::Back { .. }) => other,
        }
    }

    #[must_use]
    pub(super) fn unreachable(self, at: Instant) -> StoreContact {
        match self {
            StoreContact::Never | StoreContact::Back { .. } => StoreContact::Silent { since: at },
            StoreContact::Heard(last) => StoreContact::Silent { since: last },
            silent @ StoreContact::Silent { .. } => silent,
        }
    }

    /// The next state, and the outage that has just ended. An outage that ended longer than `recent`
    /// before `now` is forgotten: another leader was there and has reported it.
    #[must_use]
    pub(super) fn take_outage(self, now: Instant, recent: Duration) -> (StoreContact, Option<Duration>) {
        match self {
            StoreContact::Back { at, outage } => (StoreContact::Heard(now), (now - at <= recent).then_some(outage)),
            other => (other, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn outage_counts_from_the_last_answer_of_any_kind() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // It led until 1 s, heard the store through heartbeats until 63 s, and led again.
        let contact = StoreContact::default().heard(at(1)).heard(at(63)).heard(at(62)).unreachable(at(65));
        assert_eq!(contact, StoreContact::Silent { since: at(63) });
        let back = contact.unreachable(at(66)).heard(at(60)).heard(at(67)).heard(at(68));
        assert_eq!(back, StoreContact::Back { at: at(67), outage: Duration::from_secs(4) });
        assert_eq!(back.take_outage(at(68), TTL), (StoreContact::Heard(at(68)), Some(Duration::from_secs(4))));
        assert_eq!(back.take_outage(at(130), TTL), (StoreContact::Heard(at(130)), None), "another leader saw it");
        assert_eq!(back.unreachable(at(69)), StoreContact::Silent { since: at(69) });
        assert_eq!(StoreContact::default().unreachable(at(2)), StoreContact::Silent { since: at(2) });
        assert_eq!(contact.take_outage(at(70), TTL), (contact, None), "it is not over");
    }
}

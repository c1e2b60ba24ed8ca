//! One worker of an app leads: it holds a key that expires. Refuses to believe longer than the key lives.

use std::{sync::LazyLock, time::Duration};

use redis::Script;
use squall_coord::RedisClient;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

static LEAD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/lead.lua")));
static RESIGN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/resign.lua")));

/// The longest time between attempts to become or stay the leader.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a silent leader leads, unless told otherwise.
pub(crate) const DEFAULT_LEADER_TTL: Duration = Duration::from_millis(3500);

/// Who strives for what.
pub(crate) struct LeaderCandidate {
    pub(crate) client: RedisClient,
    pub(crate) key: String,
    pub(crate) worker: String,
    /// How long it leads without being heard of.
    pub(crate) ttl: Duration,
}

/// Strives for leadership until `stop`; `leading` says whether it has it.
pub(crate) async fn campaign(candidate: LeaderCandidate, leading: watch::Sender<bool>, stop: CancellationToken) {
    let LeaderCandidate { client: link, key, worker, ttl: term } = candidate;
    let poll = POLL_INTERVAL.min(term.mul_f64(1.0 / 3.5));
    let mut until = Instant::now();
    let mut commands = link.connection();
    while !stop.is_cancelled() {
        let sent = Instant::now();
        let asked: Result<i64, _> = tokio::time::timeout(
            poll,
            LEAD.key(&key).arg(&worker).arg(term.as_millis() as u64).invoke_async(&mut commands),
        )
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        match asked {
            Ok(0) => until = sent,
            // After a lapse tasks start anew, even if nobody else has led meanwhile.
            Ok(2) => {
                leading.send_replace(false);
                until = sent + term;
            }
            Ok(_) => until = sent + term,
            Err(error) => warn!(%error, "could not ask for leadership"),
        }
        let leads = Instant::now() < until;
        leading.send_if_modified(|before| {
            let changed = *before != leads;
            if changed {
                info!(worker, leads, "leadership");
            }
            *before = leads;
            changed
        });
        let wake = if leads { until.min(sent + poll) } else { sent + poll };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(wake.max(Instant::now() + Duration::from_millis(50))) => {}
        }
    }
    leading.send_replace(false);
    let _: Result<i64, _> = RESIGN.key(&key).arg(&worker).invoke_async(&mut commands).await;
}

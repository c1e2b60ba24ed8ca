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
pub(crate) async fn compete_for_leadership(
    candidate: LeaderCandidate,
    leading: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let LeaderCandidate { client, key, worker, ttl } = candidate;
    let poll_interval = POLL_INTERVAL.min(ttl.mul_f64(1.0 / 3.5));
    let mut leads_until = Instant::now();
    let mut commands = client.connection();
    while !stop.is_cancelled() {
        let asked_at = Instant::now();
        let response: Result<i64, _> = tokio::time::timeout(
            poll_interval,
            LEAD.key(&key).arg(&worker).arg(ttl.as_millis() as u64).invoke_async(&mut commands),
        )
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        match response {
            Ok(0) => leads_until = asked_at,
            // After a lapse tasks start anew, even if nobody else has led meanwhile.
            Ok(2) => {
                leading.send_replace(false);
                leads_until = asked_at + ttl;
            }
            Ok(_) => leads_until = asked_at + ttl,
            Err(error) => warn!(%error, "could not ask for leadership"),
        }
        let is_leading = Instant::now() < leads_until;
        leading.send_if_modified(|before| {
            let changed = *before != is_leading;
            if changed {
                info!(worker, leads = is_leading, "leadership");
            }
            *before = is_leading;
            changed
        });
        let wake = if is_leading { leads_until.min(asked_at + poll_interval) } else { asked_at + poll_interval };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(wake.max(Instant::now() + Duration::from_millis(50))) => {}
        }
    }
    leading.send_replace(false);
    let _: Result<i64, _> = RESIGN.key(&key).arg(&worker).invoke_async(&mut commands).await;
}

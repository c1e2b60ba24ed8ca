//! Leader election among the workers of an app: the leader holds a key that expires. A worker never
//! counts itself as the leader longer than its key lives. [`crate::AppWorker`] runs the election if
//! it has tasks for the leader only.

use std::{sync::LazyLock, time::Duration};

use redis::{RedisError, Script};
use squall_coord::{RedisClient, SharedConnection, find_wrong_type};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

static LEAD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/lead.lua")));
static RESIGN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/resign.lua")));

/// The longest time between attempts to become or stay the leader.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a silent leader stays the leader, by default.
pub(crate) const DEFAULT_LEADER_TTL: Duration = Duration::from_millis(3500);

/// A worker that wants to become the leader of its app.
pub(crate) struct LeaderCandidate {
    pub(crate) client: RedisClient,
    pub(crate) key: String,
    pub(crate) worker: String,
    /// How long the worker stays the leader without a renewal.
    pub(crate) ttl: Duration,
}

/// Acquires and renews leadership until `stop` is cancelled. Publishes in `leading` whether this
/// worker is the leader.
pub(crate) async fn compete_for_leadership(
    candidate: LeaderCandidate,
    leading: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let LeaderCandidate { client, key, worker, ttl } = candidate;
    let poll_interval = POLL_INTERVAL.min(ttl.mul_f64(1.0 / 3.5));
    let mut leads_until = Instant::now();
    let mut last_failure = None;
    let mut commands = client.connection();
    while !stop.is_cancelled() {
        let asked_at = Instant::now();
        let response: Result<i64, _> = tokio::time::timeout(
            poll_interval,
            LEAD.key(&key).arg(&worker).arg(ttl.as_millis() as u64).invoke_async(&mut commands),
        )
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        let failure = match &response {
            Ok(_) => None,
            Err(error) => Some(describe_failure(error, &key, &mut commands).await),
        };
        // A failure that lasts is logged once, not at each attempt.
        if let Some(error) = failure.as_ref().filter(|_| failure != last_failure) {
            warn!(worker, error, "the worker cannot become or stay the leader; retrying");
        }
        last_failure = failure;
        match response {
            Ok(0) => leads_until = asked_at,
            // The key had expired. Tasks restart, even if no other worker was the leader in
            // between.
            Ok(2) => {
                leading.send_replace(false);
                leads_until = asked_at + ttl;
            }
            Ok(_) => leads_until = asked_at + ttl,
            Err(_) => {}
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

/// The failure of an attempt, with key and remedy if the key holds another type, which Redis does not
/// name.
async fn describe_failure(error: &RedisError, key: &str, commands: &mut SharedConnection) -> String {
    let wrong_type = match error.to_string().contains("WRONGTYPE") {
        true => find_wrong_type(commands, &[(key, "string")]).await,
        false => None,
    };
    wrong_type.map_or_else(|| format!("key `{key}`: {error}"), |wrong_type| wrong_type.to_string())
}

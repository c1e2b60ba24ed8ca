//! One worker of an app leads: it holds a key that expires. Refuses to believe longer than the key lives.

use std::{sync::LazyLock, time::Duration};

use redis::Script;
use squall_coord::Link;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

static LEAD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/lead.lua")));
static RESIGN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/resign.lua")));

/// Between attempts to become or stay the leader.
const POLL: Duration = Duration::from_secs(1);
/// How long a silent leader leads.
const TERM: Duration = Duration::from_millis(3500);

/// Strives for leadership until `stop`; `leading` says whether it has it.
pub(crate) async fn campaign(
    link: Link,
    key: String,
    worker: String,
    leading: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let mut until = Instant::now();
    let mut commands = link.commands();
    while !stop.is_cancelled() {
        let sent = Instant::now();
        let asked: Result<i64, _> = tokio::time::timeout(
            POLL,
            LEAD.key(&key).arg(&worker).arg(TERM.as_millis() as u64).invoke_async(&mut commands),
        )
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        match asked {
            Ok(0) => until = sent,
            // After a lapse tasks start anew, even if nobody else has led meanwhile.
            Ok(2) => {
                leading.send_replace(false);
                until = sent + TERM;
            }
            Ok(_) => until = sent + TERM,
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
        let wake = if leads { until.min(sent + POLL) } else { sent + POLL };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(wake.max(Instant::now() + Duration::from_millis(50))) => {}
        }
    }
    leading.send_replace(false);
    let _: Result<i64, _> = RESIGN.key(&key).arg(&worker).invoke_async(&mut commands).await;
}

//! Background tasks of a worker: once, at intervals, or by a crontab line; on every worker, or on
//! the leader only. A failing task does not end the worker: the worker logs the failure, and the
//! task keeps its schedule.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use jiff::{Zoned, tz::TimeZone};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{crontab::Crontab, middleware::BoxError};

type TaskAction = Arc<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The schedule of a task is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TaskScheduleError {
    /// The crontab line is invalid.
    #[error("`{line}` is not a crontab line (minute hour day month weekday): {reason}")]
    InvalidCrontab {
        /// The given line.
        line: String,
        /// What is wrong with the line.
        reason: String,
    },
    /// The time zone does not exist.
    #[error("`{0}` is not a time zone; write it as Europe/Berlin or UTC")]
    UnknownTimeZone(String),
    /// The interval is zero.
    #[error("a timer needs an interval above zero")]
    ZeroInterval,
}

enum TaskTrigger {
    Once,
    Interval(Duration),
    Crontab(Crontab, TimeZone),
}

/// A function that a worker runs beside its processors.
pub struct BackgroundTask {
    name: String,
    trigger: TaskTrigger,
    on_leader: bool,
    action: TaskAction,
}

impl BackgroundTask {
    /// Runs once, when the worker starts.
    pub fn once<F, Fut, E>(name: &str, action: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let action: TaskAction = Arc::new(move || action().map(|outcome| outcome.map_err(Into::into)).boxed());
        Self { name: name.to_owned(), trigger: TaskTrigger::Once, on_leader: false, action }
    }

    /// Runs every `interval`, for the first time after one interval. A run that takes longer delays
    /// the next one.
    pub fn timer<F, Fut, E>(name: &str, interval: Duration, action: F) -> Result<Self, TaskScheduleError>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        if interval.is_zero() {
            return Err(TaskScheduleError::ZeroInterval);
        }
        Ok(Self { trigger: TaskTrigger::Interval(interval), ..Self::once(name, action) })
    }

    /// Runs at the times of a crontab line in a time zone. The task skips times at which no worker
    /// runs.
    pub fn crontab<F, Fut, E>(name: &str, line: &str, zone: &str, action: F) -> Result<Self, TaskScheduleError>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let crontab = Crontab::parse(line)
            .map_err(|reason| TaskScheduleError::InvalidCrontab { line: line.to_owned(), reason })?;
        let zone = TimeZone::get(zone).map_err(|_| TaskScheduleError::UnknownTimeZone(zone.to_owned()))?;
        Ok(Self { trigger: TaskTrigger::Crontab(crontab, zone), ..Self::once(name, action) })
    }

    /// Runs the task on the leader only. A worker stops the task when it loses leadership, and
    /// restarts the task when it becomes the leader again.
    #[must_use]
    pub fn on_leader(mut self) -> Self {
        self.on_leader = true;
        self
    }

    pub(crate) fn is_leader_only(&self) -> bool {
        self.on_leader
    }

    /// Runs the task until `stop` is cancelled; a task for the leader only while `leading` is true.
    pub(crate) async fn run(self, mut leading: watch::Receiver<bool>, stop: CancellationToken) {
        loop {
            if self.on_leader && leading.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            let leadership_lost = async {
                if self.on_leader {
                    let _ = leading.wait_for(|leads| !leads).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.run_by_trigger() => return,
                () = leadership_lost => {}
            }
        }
    }

    /// Returns when the trigger has no further time.
    async fn run_by_trigger(&self) {
        match &self.trigger {
            TaskTrigger::Once => self.run_once().await,
            TaskTrigger::Interval(interval) => loop {
                tokio::time::sleep(*interval).await;
                self.run_once().await;
            },
            TaskTrigger::Crontab(crontab, zone) => {
                while let Some(wait) = delay_until_next(crontab, &Zoned::now().with_time_zone(zone.clone())) {
                    tokio::time::sleep(wait).await;
                    self.run_once().await;
                }
            }
        }
    }

    async fn run_once(&self) {
        match AssertUnwindSafe((self.action)()).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(task = self.name, %error, "task failed"),
            Err(_) => error!(task = self.name, "task panicked"),
        }
    }
}

/// The time from `now` to the next time of the crontab line.
fn delay_until_next(crontab: &Crontab, now: &Zoned) -> Option<Duration> {
    let next = crontab.next_after(now)?;
    Duration::try_from(now.duration_until(&next)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, now: &str, expected: Duration) {
        let crontab = Crontab::parse(line).unwrap();
        assert_eq!(delay_until_next(&crontab, &now.parse().unwrap()), Some(expected), "{line} after {now}");
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn crontab_line_is_evaluated_in_its_time_zone() {
        check("0 3 * * *", "2026-11-15T01:00:00+01:00[Europe/Berlin]", HOUR * 2);
        check("*/15 * * * *", "2026-11-15T01:01:00+00:00[UTC]", Duration::from_secs(14 * 60));
        check("0 0 * * MON", "2026-11-15T00:00:00+00:00[UTC]", HOUR * 24);
    }

    #[test]
    fn crontab_on_the_day_of_a_skipped_hour_still_runs() {
        // On 2026-03-29 clocks in Berlin jump from 02:00 to 03:00, so 03:30 is 2.5 hours after
        // 00:00.
        check("30 3 * * *", "2026-03-29T00:00:00+01:00[Europe/Berlin]", HOUR * 5 / 2);
    }

    #[test]
    fn invalid_crontab_zone_and_interval_are_rejected() {
        let action = || async { Ok::<(), BoxError>(()) };
        assert!(matches!(
            BackgroundTask::crontab("x", "61 * * * *", "UTC", action),
            Err(TaskScheduleError::InvalidCrontab { .. })
        ));
        assert!(matches!(
            BackgroundTask::crontab("x", "* * * * *", "Berlin", action),
            Err(TaskScheduleError::UnknownTimeZone(_))
        ));
        assert!(matches!(BackgroundTask::timer("x", Duration::ZERO, action), Err(TaskScheduleError::ZeroInterval)));
    }

    #[tokio::test(start_paused = true)]
    async fn failing_timer_keeps_its_schedule() {
        let (count, seen) = watch::channel(0);
        let count = Arc::new(count);
        let action = move || {
            count.send_modify(|count| *count += 1);
            async { Err::<(), BoxError>("no".into()) }
        };
        let task = BackgroundTask::timer("t", Duration::from_secs(10), action).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(task.run(watch::channel(false).1, stop.clone()));
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!(*seen.borrow(), 3);
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn leader_task_runs_only_while_its_worker_leads() {
        let (count, seen) = watch::channel(0);
        let count = Arc::new(count);
        let action = move || {
            count.send_modify(|count| *count += 1);
            async { Ok::<(), BoxError>(()) }
        };
        let (leading, leads) = watch::channel(false);
        let stop = CancellationToken::new();
        let task = BackgroundTask::timer("t", Duration::from_secs(1), action).unwrap().on_leader();
        let running = tokio::spawn(task.run(leads, stop.clone()));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(*seen.borrow(), 0);
        leading.send_replace(true);
        tokio::time::sleep(Duration::from_millis(5500)).await;
        leading.send_replace(false);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(*seen.borrow(), 5);
        stop.cancel();
        drop(leading);
        running.await.unwrap();
    }
}

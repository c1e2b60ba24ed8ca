//! One lazily armed timer per virtual user. A request only stores its deadline. The timer wheel is
//! touched when the armed instant has passed, which is about once per `timeout`, not once per
//! request.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::time::Sleep;

/// Watches the deadline of the request in progress.
#[derive(Debug, Default)]
pub(crate) struct RequestTimer {
    armed: Option<ArmedSleep>,
    deadline: Option<Instant>,
    /// The armed timer is known to be pending and to wake the right task, so the first wait need not poll it.
    skip_next_poll: bool,
}

#[derive(Debug)]
struct ArmedSleep {
    sleep: Pin<Box<Sleep>>,
    fires_at: Instant,
    waker: Waker,
}

impl RequestTimer {
    /// Starts to watch a request. `now` is the caller's clock reading.
    pub(crate) fn start(&mut self, now: Instant, deadline: Instant) {
        self.deadline = Some(deadline);
        // Tokio never fires early, so a timer armed for later than now has not fired and still holds its waker.
        self.skip_next_poll =
            self.armed.as_ref().is_some_and(|armed| now < armed.fires_at && armed.fires_at <= deadline);
    }

    /// Ready once the deadline has passed; otherwise the task will be woken in time to ask again.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.skip_next_poll)
            && let Some(armed) = &self.armed
            && armed.waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        self.poll_armed(cx)
    }

    #[cold]
    fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        let armed = self.armed.get_or_insert_with(|| ArmedSleep {
            sleep: Box::pin(tokio::time::sleep_until(deadline.into())),
            fires_at: deadline,
            waker: cx.waker().clone(),
        });
        if deadline < armed.fires_at {
            armed.reset(deadline);
        }
        while armed.sleep.as_mut().poll(cx).is_ready() {
            if armed.fires_at >= deadline {
                return Poll::Ready(());
            }
            armed.reset(deadline);
        }
        armed.waker.clone_from(cx.waker());
        Poll::Pending
    }
}

impl ArmedSleep {
    fn reset(&mut self, until: Instant) {
        self.sleep.as_mut().reset(until.into());
        self.fires_at = until;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    const STEP: Duration = Duration::from_millis(5);

    /// Polls once, as an exchange does when it begins to wait.
    async fn waits(timer: &mut RequestTimer) -> bool {
        poll_fn(|cx| Poll::Ready(timer.poll(cx).is_pending())).await
    }

    async fn fires(timer: &mut RequestTimer) {
        poll_fn(|cx| timer.poll(cx)).await;
    }

    #[tokio::test]
    async fn the_timer_fires_at_the_deadline_and_not_earlier() {
        let (mut timer, now) = (RequestTimer::default(), Instant::now());
        timer.start(now, now + STEP);
        fires(&mut timer).await;
        assert!(now.elapsed() >= STEP);
    }

    #[tokio::test]
    async fn a_later_deadline_is_stored_without_rearming_and_fires() {
        let (mut timer, begin) = (RequestTimer::default(), Instant::now());
        timer.start(begin, begin + STEP);
        waits(&mut timer).await;
        let armed = timer.armed.as_ref().map(|armed| armed.fires_at);
        let now = Instant::now();
        timer.start(now, now + 4 * STEP);
        // The timer is not touched unless this machine was suspended past the first deadline.
        assert!(timer.skip_next_poll || begin.elapsed() >= STEP);
        assert_eq!(timer.armed.as_ref().map(|armed| armed.fires_at), armed);
        fires(&mut timer).await;
        assert!(now.elapsed() >= 4 * STEP);
    }

    #[tokio::test]
    async fn an_earlier_deadline_rearms_the_timer() {
        let (mut timer, now) = (RequestTimer::default(), Instant::now());
        timer.start(now, now + Duration::from_secs(3600));
        assert!(waits(&mut timer).await);
        timer.start(now, now + STEP);
        fires(&mut timer).await;
        assert!(now.elapsed() >= STEP);
    }

    #[tokio::test]
    async fn a_timer_that_fired_unpolled_is_rearmed() {
        let (mut timer, now) = (RequestTimer::default(), Instant::now());
        timer.start(now, now + STEP);
        fires(&mut timer).await;
        for _ in 0..2 {
            let now = Instant::now();
            timer.start(now, now + STEP);
            assert!(!timer.skip_next_poll);
            fires(&mut timer).await;
            assert!(now.elapsed() >= STEP);
        }
    }

    #[tokio::test]
    async fn the_timer_wakes_the_task_that_polled_last() {
        let (mut timer, now) = (RequestTimer::default(), Instant::now());
        timer.start(now, now + STEP);
        let mut noop = Context::from_waker(Waker::noop());
        let _ = timer.poll(&mut noop);
        timer.start(now, now + 2 * STEP);
        let moved = tokio::spawn(async move { fires(&mut timer).await });
        moved.await.expect("no panic");
        assert!(now.elapsed() >= 2 * STEP);
    }
}

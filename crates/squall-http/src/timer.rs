//! One lazily armed timer per virtual user. A request only stores its deadline; the timer wheel is touched when the
//! armed instant has passed, which is about once per `timeout`, not once per request.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::time::Sleep;

/// Watches the deadline of the request in flight.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    armed: Option<Armed>,
    deadline: Option<Instant>,
    /// The armed timer is known to be pending and to wake the right task, so the first wait need not poll it.
    trusted: bool,
}

#[derive(Debug)]
struct Armed {
    sleep: Pin<Box<Sleep>>,
    until: Instant,
    waker: Waker,
}

impl Timer {
    /// Starts to watch a request. `now` is the caller's clock reading.
    pub(crate) fn start(&mut self, now: Instant, deadline: Instant) {
        self.deadline = Some(deadline);
        // Tokio never fires early, so a timer armed for later than now has not fired and still holds its waker.
        self.trusted = self.armed.as_ref().is_some_and(|armed| now < armed.until && armed.until <= deadline);
    }

    /// Ready once the deadline has passed; otherwise the task will be woken in time to ask again.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.trusted)
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
        let armed = self.armed.get_or_insert_with(|| Armed {
            sleep: Box::pin(tokio::time::sleep_until(deadline.into())),
            until: deadline,
            waker: cx.waker().clone(),
        });
        if deadline < armed.until {
            armed.reset(deadline);
        }
        while armed.sleep.as_mut().poll(cx).is_ready() {
            if armed.until >= deadline {
                return Poll::Ready(());
            }
            armed.reset(deadline);
        }
        armed.waker.clone_from(cx.waker());
        Poll::Pending
    }
}

impl Armed {
    fn reset(&mut self, until: Instant) {
        self.sleep.as_mut().reset(until.into());
        self.until = until;
    }
}

//! Ends operations that the database does not answer after the load of a run is over, so that a database that
//! hangs does not prolong the run. It records nothing; the user does.

use super::DriverRun;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// How long every operation in flight may take after the end of the load. With the intervals of the checks and the
/// engine's own end it stays below 100 ms.
const LEAST_DRAIN: Duration = Duration::from_millis(50);

/// How often a thread looks whether the load is over, and then whether operations take too long.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The operations of one thread. An operation that has taken twice as long as the slowest one that succeeded does not
/// wait for an answer any longer when the load is over.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    begun: Cell<bool>,
    slowest: Cell<Duration>,
    /// Of the tasks of all users that have waited for an answer. A user stays in its task.
    users: RefCell<Vec<Waker>>,
}

/// One user's part of a [`CutOff`].
#[derive(Debug, Default)]
pub(super) struct CutOffUser {
    /// Whether the thread knows the waker of its task.
    known: Cell<bool>,
}

impl CutOff {
    /// Whether the load is over and `LEAST_DRAIN`, too.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Notes how long an operation took that succeeded.
    pub(super) fn succeeded(&self, after: Duration) {
        self.slowest.set(self.slowest.get().max(after));
    }

    /// Waits for a part of the operation that began at `began`; `None` if it is cut off.
    pub(super) async fn limit<T>(
        &self,
        user: &CutOffUser,
        began: Instant,
        mut part: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let limited = poll_fn(|context| {
            if let Poll::Ready(output) = part.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            if self.begun.get() && began.elapsed() > 2 * self.slowest.get() {
                return Poll::Ready(None);
            }
            if !user.known.replace(true) {
                self.users.borrow_mut().push(context.waker().clone());
            }
            Poll::Pending
        });
        limited.await
    }

    /// Waits for the end of the load, and then looks at all operations again and again.
    pub(super) async fn follow(self: Rc<CutOff>, run: Arc<DriverRun>) {
        while !run.load_is_over() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        tokio::time::sleep(LEAST_DRAIN).await;
        loop {
            self.begin();
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn begin(&self) {
        self.begun.set(true);
        self.users.borrow().iter().for_each(Waker::wake_by_ref);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, pin::pin};

    #[tokio::test]
    async fn an_operation_without_an_answer_ends_when_the_load_is_over() {
        let (cut_off, user) = (CutOff::default(), CutOffUser::default());
        let hung = async { cut_off.limit(&user, Instant::now(), pin!(pending::<()>())).await };
        let over = async {
            tokio::task::yield_now().await;
            assert_eq!(cut_off.users.borrow().len(), 1);
            cut_off.begin();
        };
        assert_eq!(tokio::join!(hung, over).0, None);
        assert!(cut_off.has_begun());
        let answered = cut_off.limit(&user, Instant::now(), pin!(async { 1 })).await;
        assert_eq!(answered, Some(1), "an answer is never thrown away");
        assert_eq!(cut_off.users.borrow().len(), 1, "a user is noted once");
    }

    #[tokio::test]
    async fn an_operation_that_is_not_slower_than_others_is_waited_for() {
        let (cut_off, user) = (CutOff::default(), CutOffUser::default());
        cut_off.succeeded(Duration::from_secs(3600));
        cut_off.succeeded(Duration::from_millis(1));
        cut_off.begin();
        let slow = pin!(async {
            tokio::task::yield_now().await;
            1
        });
        assert_eq!(cut_off.limit(&user, Instant::now(), slow).await, Some(1));
    }
}

//! How users come by things of which every one may be in use only once: a line to whoever keeps the pools, in this process or for a
//! whole fleet. Keeps nothing itself; what a user has borrowed goes back when its [`Loan`] is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// What is asked of the keeper of the pools.
#[derive(Debug)]
pub enum LendAsk {
    /// Something out of a pool, after everybody who came earlier; given up when nobody waits for the answer any more.
    Take { pool: String, wait: Duration, answer: TakeAnswer },
    /// A number below `limit` that nobody else is given, for a thing that is about to be made.
    Number { pool: String, limit: Option<u64>, answer: oneshot::Sender<Result<Option<u64>, LendError>> },
    /// A thing that was made.
    Add { pool: String, id: String, payload: String, answer: oneshot::Sender<Result<(), LendError>> },
    /// What was lent under this number is not needed any more.
    Return(u64),
}

/// Something lent.
#[derive(Debug)]
pub struct Lent {
    /// Under which number; the keeper's own.
    pub number: u64,
    /// Its name in the pool.
    pub id: String,
    pub payload: String,
}

/// Where something that was asked for goes. What is sent is the user's [`Loan`] already: whether the user is gone before the answer, or
/// before it has looked at it, its number is returned.
#[derive(Debug)]
pub struct TakeAnswer {
    user: oneshot::Sender<Result<Loan, LendError>>,
    lapse: u64,
    lender: Lender,
}

impl TakeAnswer {
    /// Waits until nobody waits for the answer any more.
    pub async fn closed(&mut self) {
        self.user.closed().await;
    }

    /// Answers, whether or not anybody waits.
    pub fn send(self, outcome: Result<Lent, LendError>) {
        let TakeAnswer { user, lapse, lender } = self;
        // Not wanted: then it is dropped here, which returns it.
        let _ = user.send(outcome.map(|lent| Loan { lent, lapse, lender }));
    }
}

/// Why nothing was lent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// All are held, and none came back in time.
    #[error("{0}")]
    Exhausted(String),
    /// It cannot be had, however long one waits.
    #[error("{0}")]
    Refused(String),
}

impl LendError {
    /// A word for the report.
    pub fn code(&self) -> &'static str {
        match self {
            LendError::Exhausted(_) => "RESOURCE_EXHAUSTED",
            LendError::Refused(_) => "RESOURCE_REFUSED",
        }
    }
}

/// A line to the keeper of the pools. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Lender {
    // Unbounded: a user asks and waits, so there are never more than users; returns must not wait.
    asks: mpsc::UnboundedSender<LendAsk>,
    lapses: Arc<AtomicU64>,
}

impl Lender {
    /// A line, and its other end.
    pub fn new() -> (Lender, mpsc::UnboundedReceiver<LendAsk>) {
        let (asks, received) = mpsc::unbounded_channel();
        (Lender { asks, lapses: Arc::default() }, received)
    }

    /// Borrows something out of `pool`, within `wait`; zero does not wait. May be dropped.
    pub async fn take(&self, pool: &str, wait: Duration) -> Result<Loan, LendError> {
        // Before the question: what was lent before a lapse is not held after it.
        let lapse = self.lapses();
        let answer = |user| TakeAnswer { user, lapse, lender: self.clone() };
        self.ask(|user| LendAsk::Take { pool: pool.to_owned(), wait, answer: answer(user) }).await
    }

    /// A number that nobody else is given, for a thing that is about to be made.
    pub async fn number(&self, pool: &str, limit: Option<u64>) -> Result<Option<u64>, LendError> {
        self.ask(|answer| LendAsk::Number { pool: pool.to_owned(), limit, answer }).await
    }

    /// Puts a thing that was made into `pool`.
    pub async fn add(&self, pool: &str, id: String, payload: String) -> Result<(), LendError> {
        self.ask(|answer| LendAsk::Add { pool: pool.to_owned(), id, payload, answer }).await
    }

    /// How often this process may have lost everything it had borrowed.
    pub(crate) fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::Acquire)
    }

    /// Says that this process may have lost everything it had borrowed: it was away for too long. Users begin anew when their
    /// iteration is over.
    pub fn lapse(&self) {
        self.lapses.fetch_add(1, Ordering::AcqRel);
    }

    async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, LendError>>) -> LendAsk,
    ) -> Result<T, LendError> {
        let closed = || LendError::Refused("nobody keeps the pools any more: the run is over".to_owned());
        let (answer, told) = oneshot::channel();
        self.asks.send(make(answer)).map_err(|_| closed())?;
        told.await.map_err(|_| closed())?
    }
}

/// Something that a user holds; dropping it gives it back.
#[derive(Debug)]
pub struct Loan {
    lent: Lent,
    lapse: u64,
    lender: Lender,
}

impl Loan {
    /// Its name in the pool.
    pub fn id(&self) -> &str {
        &self.lent.id
    }

    pub fn payload(&self) -> &str {
        &self.lent.payload
    }

    /// Whether it is certainly nobody else's.
    pub fn is_held(&self) -> bool {
        self.lapse == self.lender.lapses()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Nobody there: then nobody else has it for long either.
        let _ = self.lender.asks.send(LendAsk::Return(self.lent.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    /// A user that is cancelled, before the answer or after it, has never seen what it was lent.
    #[test]
    fn what_nobody_looked_at_is_returned() {
        let (lender, mut asks) = Lender::new();
        for (number, early) in [(7, false), (8, true)] {
            let mut taking = Box::pin(lender.take("users", Duration::ZERO));
            assert!(taking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let Ok(LendAsk::Take { answer, .. }) = asks.try_recv() else { panic!("nobody asks") };
            let taking = Some(taking).filter(|_| !early);
            answer.send(Ok(Lent { number, id: "0".into(), payload: "{}".into() }));
            drop(taking);
            assert!(matches!(asks.try_recv(), Ok(LendAsk::Return(returned)) if returned == number));
        }
        drop(lender);
        assert!(
            matches!(asks.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)),
            "the line has no other holder"
        );
    }
}

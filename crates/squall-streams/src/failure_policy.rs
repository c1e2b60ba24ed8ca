//! What a worker does when processing fails. Every policy handles a failed event once, so that no
//! event makes one worker after the other crash.

use std::time::Duration;

/// What the worker does after the last retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Stores a quarantine, so that no other worker repeats the failure, and ends this worker with
    /// the error.
    #[default]
    Halt,
    /// Stores a quarantine and continues with the other partitions. Redis keeps the quarantine
    /// until an operator clears it.
    Quarantine,
    /// Acknowledges the failed events and continues.
    Ignore,
}

/// How often a worker retries, how long it waits between retries, and what it does afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePolicy {
    /// The number of retries after the first failure. The worker does not retry events that cannot
    /// be decoded.
    pub retries: u32,
    /// The wait before the first retry. It doubles with each retry, up to a minute.
    pub backoff: Duration,
    /// What the worker does after the last retry.
    pub on_exhausted: OnFailure,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self { retries: 0, backoff: Duration::from_millis(100), on_exhausted: OnFailure::default() }
    }
}

impl FailurePolicy {
    /// Puts the partition in quarantine and ends the worker.
    pub fn halt() -> Self {
        Self::default()
    }

    /// Puts the partition in quarantine and continues with the others.
    pub fn quarantine() -> Self {
        Self { on_exhausted: OnFailure::Quarantine, ..Self::default() }
    }

    /// Acknowledges the failed events and continues.
    pub fn ignore() -> Self {
        Self { on_exhausted: OnFailure::Ignore, ..Self::default() }
    }

    /// Retries before the policy acts.
    #[must_use]
    pub fn retry(self, retries: u32, backoff: Duration) -> Self {
        Self { retries, backoff, ..self }
    }

    /// The wait before retry number `attempt` (from 0), or `None` after the last retry.
    pub(crate) fn retry_delay(&self, attempt: u32) -> Option<Duration> {
        (attempt < self.retries)
            .then(|| self.backoff.saturating_mul(2u32.saturating_pow(attempt.min(20))).min(Duration::from_secs(60)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_a_minute_then_ends() {
        let policy = FailurePolicy::ignore().retry(12, Duration::from_millis(100));
        assert_eq!(policy.retry_delay(0), Some(Duration::from_millis(100)));
        assert_eq!(policy.retry_delay(3), Some(Duration::from_millis(800)));
        assert_eq!(policy.retry_delay(11), Some(Duration::from_secs(60)));
        assert_eq!(policy.retry_delay(12), None);
        assert_eq!(FailurePolicy::halt().retry_delay(0), None);
    }
}

//! What happens when processing fails. Refuses to crash-loop: whatever is chosen, a bad event is met once per policy, not for ever.

use std::time::Duration;

/// The last resort, after retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Marks the partition, so that no other worker repeats the failure, and ends this worker with the error.
    #[default]
    Halt,
    /// Marks the partition and goes on with the others. The mark is kept in Redis until somebody clears it.
    Quarantine,
    /// Acknowledges the failed events and goes on.
    Ignore,
}

/// How often to try, how long to wait between, and what to do then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePolicy {
    /// Retries after the first failure. Events that cannot be decoded are not retried.
    pub retries: u32,
    /// Wait before the first retry; doubled each time, up to a minute.
    pub backoff: Duration,
    /// What to do when retries are used up.
    pub on_exhausted: OnFailure,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self { retries: 0, backoff: Duration::from_millis(100), on_exhausted: OnFailure::default() }
    }
}

impl FailurePolicy {
    /// Stop the worker.
    pub fn halt() -> Self {
        Self::default()
    }

    /// Stop the partition.
    pub fn quarantine() -> Self {
        Self { on_exhausted: OnFailure::Quarantine, ..Self::default() }
    }

    /// Drop the failed events.
    pub fn ignore() -> Self {
        Self { on_exhausted: OnFailure::Ignore, ..Self::default() }
    }

    /// Try again first.
    #[must_use]
    pub fn retry(self, retries: u32, backoff: Duration) -> Self {
        Self { retries, backoff, ..self }
    }

    /// The wait before retry number `attempt` (from 0), or `None` when there is none.
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

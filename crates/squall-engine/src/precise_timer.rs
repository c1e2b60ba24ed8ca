//! One precise timer per thread: a timerfd in the thread's own epoll. tokio's timer wakes on whole
//! milliseconds, which is coarser than the schedule lag that the engine aims at. It does not know
//! which starts are due.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{io, time::Duration};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

/// Completes each [`PreciseTimer::sleep`].
pub(crate) struct PreciseTimer {
    /// A timerfd is read like a pipe, and tokio's pipe is its only safe way to wait for a
    /// descriptor that we own (`AsyncFd` has an `unsafe` constructor since 1.54).
    timer: Receiver,
}

impl PreciseTimer {
    /// Must be called inside the runtime that will wait for the timer.
    pub(crate) fn new() -> io::Result<PreciseTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(PreciseTimer { timer: Receiver::from_owned_fd_unchecked(timer)? })
    }

    /// Waits for `delay`. Dropping the future leaves the timer set; the next call sets it again.
    pub(crate) async fn sleep(&mut self, delay: Duration) -> io::Result<()> {
        // A zero value would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: none, it_value: value })?;
        // Setting the timer cleared its count, so readiness left from an earlier expiry reads as
        // would-block and tokio waits again. The buffer is longer than the count, because tokio
        // takes a short read as "nothing left" and does not read a second time.
        self.timer.read(&mut [0; 16]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn sleep_after_a_dropped_sleep_never_ends_early() {
        let mut timer = PreciseTimer::new().unwrap();
        for _ in 0..20 {
            tokio::select! { biased; _ = timer.sleep(Duration::from_micros(200)) => {} _ = tokio::task::yield_now() => {} }
            let before = Instant::now();
            timer.sleep(Duration::from_micros(700)).await.unwrap();
            assert!(before.elapsed() >= Duration::from_micros(700));
        }
    }
}

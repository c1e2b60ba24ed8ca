//! One precise alarm per thread: a timerfd in the thread's own epoll. tokio's timer wakes on whole milliseconds, which is
//! coarser than the schedule lag that is promised. It knows nothing of what is due; it only rings.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{io, time::Duration};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

/// Rings once for each [`PreciseTimer::sleep`].
pub(crate) struct PreciseTimer {
    /// A timerfd is read like a pipe, and tokio's pipe is its one safe way to wait for a descriptor that we own (`AsyncFd` is
    /// `unsafe` to make since 1.54).
    timer: Receiver,
}

impl PreciseTimer {
    /// Must be made inside the runtime that will wait for it.
    pub(crate) fn new() -> io::Result<PreciseTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(PreciseTimer { timer: Receiver::from_owned_fd_unchecked(timer)? })
    }

    /// Waits for `delay`. Dropping the future leaves the alarm set; the next call sets it anew.
    pub(crate) async fn sleep(&mut self, delay: Duration) -> io::Result<()> {
        // A zero value would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: none, it_value: value })?;
        // Setting the timer cleared its count, so what was ready from an earlier ring reads as would-block and is waited for
        // anew. The buffer is longer than the count: tokio takes the short read as "nothing left" and asks no second time.
        self.timer.read(&mut [0; 16]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn it_never_rings_early_even_after_an_abandoned_wait() {
        let mut alarm = PreciseTimer::new().unwrap();
        for _ in 0..20 {
            tokio::select! { biased; _ = alarm.sleep(Duration::from_micros(200)) => {} _ = tokio::task::yield_now() => {} }
            let before = Instant::now();
            alarm.sleep(Duration::from_micros(700)).await.unwrap();
            assert!(before.elapsed() >= Duration::from_micros(700));
        }
    }
}

//! The sleeping users of one thread, ordered by the time at which they wake. It has no clock; the
//! scheduler calls it with the time.

use std::{
    cell::{Cell, RefCell},
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    rc::Rc,
    time::Instant,
};

use crate::user_mailbox::{UserMailbox, UserSignal};

#[derive(Default)]
pub(crate) struct SleepQueue {
    sleepers: RefCell<BinaryHeap<Reverse<SleepingUser>>>,
    last_sleep_id: Cell<u64>,
}

struct SleepingUser {
    due: Instant,
    sleep_id: u64,
    mailbox: Rc<UserMailbox>,
}

impl SleepQueue {
    /// Adds a user that sleeps until `due`. The entry is ignored once the mailbox has another sleep id.
    pub(crate) fn push(&self, mailbox: &Rc<UserMailbox>, due: Instant) {
        let sleep_id = self.last_sleep_id.get() + 1;
        self.last_sleep_id.set(sleep_id);
        mailbox.sleep_id.set(sleep_id);
        self.sleepers.borrow_mut().push(Reverse(SleepingUser { due, sleep_id, mailbox: mailbox.clone() }));
    }

    /// Wakes every user whose sleep is over; returns when the next sleep ends.
    pub(crate) fn wake_due(&self, now: Instant) -> Option<Instant> {
        let mut sleepers = self.sleepers.borrow_mut();
        while let Some(Reverse(first)) = sleepers.peek() {
            if first.due > now {
                return Some(first.due);
            }
            let Reverse(sleeper) = sleepers.pop().expect("the heap has a first element");
            sleeper.signal(UserSignal::Wake);
        }
        None
    }

    /// Sends every sleeping user [`UserSignal::Leave`].
    pub(crate) fn dismiss_all(&self) {
        self.sleepers.borrow_mut().drain().for_each(|Reverse(sleeper)| sleeper.signal(UserSignal::Leave));
    }
}

impl SleepingUser {
    /// Signals the user, unless this sleep has already ended.
    fn signal(&self, signal: UserSignal) {
        if self.mailbox.sleep_id.get() == self.sleep_id {
            self.mailbox.send(signal);
        }
    }
}

impl PartialEq for SleepingUser {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.sleep_id) == (other.due, other.sleep_id)
    }
}

impl Eq for SleepingUser {}

impl PartialOrd for SleepingUser {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SleepingUser {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sleep_id).cmp(&(other.due, other.sleep_id))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entry_of_an_ended_sleep_does_not_wake_the_next_sleep() {
        let (queue, mailbox, now) = (SleepQueue::default(), Rc::new(UserMailbox::default()), Instant::now());
        queue.push(&mailbox, now);
        queue.push(&mailbox, now + Duration::from_secs(1));
        assert_eq!(queue.wake_due(now), Some(now + Duration::from_secs(1)));
        queue.dismiss_all();
        assert!(mailbox.must_leave());
    }
}

//! The users of one thread that wait: idle ones for a start, others for the iteration quota. It also
//! counts the users that must leave. It does not run users; [`user_task`](crate::user_task) does.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::Notify;

use crate::user_mailbox::{DueStart, UserMailbox, UserSignal};

#[derive(Default)]
pub(crate) struct UserPool {
    /// Open-model users that wait for a start, the most recently used last.
    idle: RefCell<Vec<Rc<UserMailbox>>>,
    /// Closed-model users that found the iteration quota empty.
    quota_waiters: RefCell<Vec<Rc<UserMailbox>>>,
    /// Open-model users that leave when they are free, because this thread's limit was lowered.
    surplus: Cell<u64>,
    draining: Cell<bool>,
    /// Wakes users that wait for a thread when the drain begins.
    drain_begins: Notify,
}

impl UserPool {
    /// Whether the run is over and users leave after their iteration.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Waits until the run is over.
    pub(crate) async fn drain_began(&self) {
        // Created before the check, so that it misses no drain.
        let begins = self.drain_begins.notified();
        if !self.is_draining() {
            begins.await;
        }
    }

    pub(crate) fn add_idle(&self, mailbox: &Rc<UserMailbox>) {
        self.idle.borrow_mut().push(mailbox.clone());
    }

    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.borrow().is_empty()
    }

    /// Hands `start` to the idle user that was used most recently, so that as few connections as
    /// possible are in use. `false` if no user is idle.
    #[must_use]
    pub(crate) fn assign(&self, start: DueStart) -> bool {
        let Some(mailbox) = self.idle.borrow_mut().pop() else { return false };
        mailbox.send(UserSignal::Start(start));
        true
    }

    /// Makes the users beyond `limit` leave: idle ones now, others after their iteration.
    pub(crate) fn limit(&self, users: u64, limit: u64) {
        self.surplus.set(users.saturating_sub(limit));
        let mut idle = self.idle.borrow_mut();
        let first = idle.len().saturating_sub(self.surplus.get() as usize);
        idle.drain(first..).for_each(|mailbox| mailbox.send(UserSignal::Wake));
    }

    /// Whether the calling user is one too many. It must then leave.
    pub(crate) fn retire_if_surplus(&self) -> bool {
        let surplus = self.surplus.get();
        self.surplus.set(surplus.saturating_sub(1));
        surplus > 0
    }

    pub(crate) fn add_quota_waiter(&self, mailbox: &Rc<UserMailbox>) {
        self.quota_waiters.borrow_mut().push(mailbox.clone());
    }

    /// Lets the waiting users try the iteration quota again.
    pub(crate) fn wake_quota_waiters(&self) {
        self.quota_waiters.borrow_mut().drain(..).for_each(|mailbox| mailbox.send(UserSignal::Wake));
    }

    /// Makes all waiting users leave. Users in an iteration check [`UserPool::is_draining`] after it.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.drain_begins.notify_waiters();
        for mailbox in self.idle.borrow_mut().drain(..).chain(self.quota_waiters.borrow_mut().drain(..)) {
            mailbox.send(UserSignal::Leave);
        }
    }
}

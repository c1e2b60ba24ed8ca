//! The messages that one worker receives through [`super::RunStore::subscribe`].
//! It owns the task that forwards them, so dropping the subscription ends the task.

use tokio::{sync::mpsc, task::JoinSet};

/// Wake-up messages for one worker. Dropping it unsubscribes.
#[derive(Debug)]
pub struct WorkerSubscription {
    messages: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Aborts the forwarding task on drop. Empty where the store sends without a task.
    _forwarder: JoinSet<()>,
}

impl WorkerSubscription {
    /// A subscription to which the store sends directly.
    pub(super) fn direct(messages: mpsc::UnboundedReceiver<Vec<u8>>) -> Self {
        Self { messages, _forwarder: JoinSet::new() }
    }

    /// A subscription fed by `forward`, which runs as a task until the subscription is dropped.
    pub(super) fn forwarded<F>(forward: impl FnOnce(mpsc::UnboundedSender<Vec<u8>>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, messages) = mpsc::unbounded_channel();
        let mut forwarder = JoinSet::new();
        forwarder.spawn(forward(sender));
        Self { messages, _forwarder: forwarder }
    }

    /// Waits for the next message. An empty message means that earlier ones may be missing. `None`
    /// means that no more messages follow.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.messages.recv().await
    }
}

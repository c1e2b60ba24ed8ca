//! The acknowledgement side of a [`PartitionBuffer`]: the processed events, and whether their
//! acknowledgements are written. Keeps an id until Redis has acknowledged it. [`crate::executor`]'s
//! acker calls it.

use super::PartitionBuffer;
use crate::{entry::EntryId, metrics::add};

impl PartitionBuffer {
    /// Waits until all processed events are acknowledged.
    pub(crate) async fn wait_acked(&self) {
        loop {
            let notified = self.acks_written.notified();
            {
                let state = self.state();
                if state.to_ack.is_empty() && state.acks_in_flight == 0 {
                    return;
                }
            }
            notified.await;
        }
    }

    pub(crate) fn take_to_ack(&self) -> Vec<EntryId> {
        let mut state = self.state();
        state.ack_scheduled = false;
        let ids = std::mem::take(&mut state.to_ack);
        state.acks_in_flight += ids.len();
        ids
    }

    pub(crate) fn record_acked(&self, count: usize) {
        add(&self.context.metrics.acked, count);
        self.state().acks_in_flight -= count;
        self.acks_written.notify_one();
    }

    /// Queues acknowledgements again that could not be written.
    pub(crate) fn retry_acks(&self, ids: Vec<EntryId>) {
        let mut state = self.state();
        state.acks_in_flight -= ids.len();
        state.to_ack.splice(0..0, ids);
        if !std::mem::replace(&mut state.ack_scheduled, true) {
            self.context.schedule_ack(self.lease.clone());
        }
    }
}

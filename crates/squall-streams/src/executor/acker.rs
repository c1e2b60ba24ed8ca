//! Writes acknowledgements: whatever has gathered while the last ones were on their way goes out together.
//! Refuses to lose one: what could not be written is written again, until the fence says no.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    entry::EntryId,
    hub::Hub,
    lane::Lane,
    partition::{Fenced, MOST_ACKS},
};

const RETRY: Duration = Duration::from_millis(100);

/// Acknowledges for ever.
pub(super) async fn acknowledge(hub: Arc<Hub>) {
    loop {
        hub.ackable.notified().await;
        let fine = join_all(hub.take_dirty().into_iter().map(|lane| flush(&hub, lane))).await;
        if fine.contains(&false) {
            tokio::time::sleep(RETRY).await;
        }
    }
}

async fn flush(hub: &Hub, lane: Arc<Lane>) -> bool {
    let ids = lane.claim_done();
    let mut fine = true;
    for chunk in ids.chunks(MOST_ACKS) {
        fine &= write(hub, &lane, chunk).await;
    }
    fine
}

async fn write(hub: &Hub, lane: &Lane, ids: &[EntryId]) -> bool {
    match lane.partition.ack(ids).await {
        Ok(Fenced::Done(())) => lane.acked(ids.len()),
        Ok(Fenced::Refused) => lane.lost(),
        Err(error) if error.no_group() => lane.lost(),
        Err(error) => {
            hub.complain("acknowledging", lane.partition.number, &error);
            lane.not_acked(ids.to_vec());
            return false;
        }
    }
    true
}

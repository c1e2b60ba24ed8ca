//! Workers of another protocol version: the leader names them in an event and counts on none of
//! them.

use squall_model::{RunPhase, ShareSet, StopReason, WorkerState, protocol::ProtocolVersion};
use squall_orchestrator::FleetError;
use std::collections::BTreeMap;

use crate::fleet_fixture::{FleetFixture, bundle};

fn other_version() -> ProtocolVersion {
    "2".parse().expect("a version")
}

#[tokio::test(start_paused = true)]
async fn worker_of_another_protocol_version_takes_no_part_and_is_named_in_an_event() {
    let mut fixture = FleetFixture::in_memory();
    fixture.join("w0", ShareSet::ALL);
    fixture.join_with_protocol("w1", ShareSet::NONE, other_version());
    fixture.until_workers(2).await;
    fixture.lead();
    let epoch = fixture.fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    assert_eq!(fixture.run_spec().await.expected, ["w0"]);
    fixture.until_phase(RunPhase::Running).await;
    fixture.fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let fleet = fixture.fleet.stored_result(epoch).await.unwrap().expect("a result").facts.fleet.expect("a fleet");
    let events: Vec<&str> = fleet.events.iter().map(|event| event.text.as_str()).collect();
    let named = "worker w1 takes no part: it has fleet protocol 2, and the run has 1; use the same release of squall \
                 for the orchestrator and the workers";
    assert_eq!(events.iter().filter(|text| **text == named).count(), 1, "{events:?}");
    let unable: Vec<_> = fleet.workers.iter().filter(|worker| worker.state == WorkerState::Unable).collect();
    assert_eq!(unable.iter().map(|worker| worker.id.as_str()).collect::<Vec<_>>(), ["w1"]);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn run_is_refused_if_every_worker_has_another_protocol_version() {
    let mut fixture = FleetFixture::in_memory();
    fixture.join_with_protocol("w1", ShareSet::ALL, other_version());
    fixture.until_workers(1).await;
    let error = fixture.fleet.start(&bundle(1.0), BTreeMap::new()).await.unwrap_err();
    assert!(matches!(&error, FleetError::WorkersOfOtherProtocol { workers } if workers == "w1 (2)"), "{error}");
    fixture.end().await;
}

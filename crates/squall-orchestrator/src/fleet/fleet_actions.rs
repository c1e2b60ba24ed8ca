//! Actions of people that change no load: a note on the current run, and the drain of a worker. The API
//! calls them.

use squall_coord::{FleetStores, RunStore, unique_id};
use squall_model::{
    CommandType, FleetEvent, FleetEventKind, RunPhase,
    protocol::{RunNote, RunNotes},
};

use super::{
    FleetClient, FleetError, WorkerInfo, WorkerKind,
    command_payload::{CommandPayload, command_envelope},
    fleet_client::{recorded_phase, status},
};

/// The most notes of people on one run, because every reader gets all of them.
const MAX_NOTES: usize = 1000;

impl<C: FleetStores> FleetClient<C> {
    /// Adds a person's note to the current run, at `at_s` seconds from its start, or now. Returns the
    /// epoch and the note.
    pub async fn add_note(&self, text: &str, at_s: Option<f64>) -> Result<(u64, FleetEvent), FleetError> {
        let record = self.stores().run().read_record().await?;
        let phase = recorded_phase(&record)?;
        let expected = "PREPARING, RUNNING or STOPPING";
        let refused = FleetError::InvalidState { action: "add a note", current: phase, expected };
        if phase == RunPhase::Idle {
            return Err(refused);
        }
        let run_store = self.stores().run();
        if RunNotes::from(run_store.notes(record.epoch).await?).person_notes().len() >= MAX_NOTES {
            return Err(FleetError::TooManyNotes { limit: MAX_NOTES });
        }
        let elapsed = status(&record, Vec::new())?.elapsed_s.unwrap_or(0.0).max(0.0);
        let at_s = at_s.map_or(elapsed, |at_s| at_s.clamp(0.0, elapsed));
        let event = FleetEvent::new((at_s * 10.0).round() / 10.0, FleetEventKind::Note, text);
        let note = RunNote::Person { id: unique_id(), event: event.clone() };
        run_store.set_notes(record.epoch, &[note.encode()]).await?;
        Ok((record.epoch, event))
    }

    /// Asks a worker to finish what it does and to leave. Its shares go to the other workers.
    pub async fn drain_worker(&self, id: &str) -> Result<WorkerInfo, FleetError> {
        let worker = self.workers().await?.into_iter().find(|worker| worker.id == id);
        let worker = worker.ok_or_else(|| FleetError::UnknownWorker { worker: id.to_owned() })?;
        if worker.kind == WorkerKind::Vikhry {
            return Err(FleetError::CannotDrain { worker: id.to_owned(), reason: "it runs vikhry" });
        }
        let epoch = self.stores().run().read_record().await?.epoch;
        let message = command_envelope(CommandType::Drain, epoch, CommandPayload::new()).encode();
        match self.publish_commands(id, &[message]).await? {
            true => Ok(worker),
            false => Err(FleetError::CannotDrain { worker: id.to_owned(), reason: "it does not listen" }),
        }
    }
}

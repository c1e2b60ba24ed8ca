//! The worker's copy of the run record: which run the fleet wants, and whether the copy is current.
//! It reads no store.

use squall_coord::RunRecord;
use squall_model::{RunPhase, RunSpec, RunSpecError};

use crate::worker_run_state::WorkerInstruction;

/// The run that the record asks for.
#[derive(Debug, Clone)]
pub(crate) struct DesiredRun {
    pub(crate) epoch: u64,
    pub(crate) phase: RunPhase,
    pub(crate) spec: RunSpec,
}

/// Whether the worker's copy of the record is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFreshness {
    /// The worker does not know yet whether a run is on.
    Unread,
    Current,
    /// The worker must read the record again even if its revision is unchanged: a store that lost
    /// its data counts revisions anew.
    Stale,
}

/// Why a record cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("`{0}` in test:state is not a phase of a run")]
    UnknownPhase(String),
    #[error("the run specification in the record is malformed")]
    MalformedSpec(#[source] serde_json::Error),
    /// The run is on, and this worker cannot take part.
    #[error(transparent)]
    OtherProtocol(RunSpecError),
}

impl DesiredRun {
    /// `None` if the record holds no run of Squall's orchestrator.
    pub(crate) fn parse(record: &RunRecord) -> Result<Option<DesiredRun>, RecordError> {
        let phase = match RunPhase::from_name(&record.state) {
            Some(phase) => phase,
            None if record.state.is_empty() => RunPhase::default(),
            None => return Err(RecordError::UnknownPhase(record.state.clone())),
        };
        if record.spec.is_empty() {
            return Ok(None);
        }
        match RunSpec::decode(&record.spec) {
            // A stop and the phase STOPPING are one change of the record. vikhry's orchestrator starts a
            // test without replacing the specification, so this one belongs to an earlier run.
            Ok(spec) if spec.stop.is_some() && matches!(phase, RunPhase::Preparing | RunPhase::Running) => Ok(None),
            Ok(spec) => Ok(Some(DesiredRun { epoch: record.epoch, phase, spec })),
            Err(RunSpecError::Malformed(error)) => Err(RecordError::MalformedSpec(error)),
            // A run that has ended wants nothing from this worker.
            Err(RunSpecError::OtherProtocol { .. }) if phase == RunPhase::Idle => Ok(None),
            Err(error @ RunSpecError::OtherProtocol { .. }) => Err(RecordError::OtherProtocol(error)),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.phase != RunPhase::Idle
    }

    /// What a worker that serves has to do. `ends_by_schedule`: the worker's load ends at
    /// a time that the worker knows.
    pub(crate) fn instruction(&self, ends_by_schedule: bool) -> WorkerInstruction {
        match self.phase {
            RunPhase::Preparing => WorkerInstruction::Prepare,
            RunPhase::Running => WorkerInstruction::Run,
            // The planned end comes by the worker's own clock, so that no start that is due is cut
            // off.
            RunPhase::Stopping if self.spec.is_complete() && !self.spec.is_ended_early() && ends_by_schedule => {
                WorkerInstruction::AwaitEnd
            }
            RunPhase::Stopping | RunPhase::Idle => WorkerInstruction::Stop,
        }
    }
}

impl WorkerInstruction {
    /// The same instruction for a leaving worker, which builds no users.
    pub(crate) fn while_leaving(self) -> WorkerInstruction {
        match self {
            WorkerInstruction::Prepare => WorkerInstruction::Nothing,
            WorkerInstruction::Run => WorkerInstruction::RunIfBuilt,
            instruction @ (WorkerInstruction::RunIfBuilt
            | WorkerInstruction::AwaitEnd
            | WorkerInstruction::Stop
            | WorkerInstruction::Nothing) => instruction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_model::{Profile, RunStopRequest, StopReason};
    use std::time::Duration;

    fn desired(phase: RunPhase, stop: Option<StopReason>) -> DesiredRun {
        let profile = Profile::constant(1.0, Duration::from_secs(1)).expect("a valid load");
        let mut spec = RunSpec::new("r", "b".to_owned(), profile);
        spec.stop = stop.map(|reason| RunStopRequest { reason, abort: false, asked_at_ms: 0, message: None });
        DesiredRun { epoch: 1, phase, spec }
    }

    #[test]
    fn instruction_follows_the_phase_of_the_record() {
        for ends_by_schedule in [false, true] {
            let instruction = |phase| desired(phase, None).instruction(ends_by_schedule);
            assert_eq!(instruction(RunPhase::Preparing), WorkerInstruction::Prepare);
            assert_eq!(instruction(RunPhase::Running), WorkerInstruction::Run);
            assert_eq!(instruction(RunPhase::Idle), WorkerInstruction::Stop);
        }
    }

    #[test]
    fn only_a_complete_run_with_a_scheduled_end_is_awaited() {
        let complete = desired(RunPhase::Stopping, Some(StopReason::Completed));
        assert_eq!(
            (complete.instruction(true), complete.instruction(false)),
            (WorkerInstruction::AwaitEnd, WorkerInstruction::Stop)
        );
        let interrupted = desired(RunPhase::Stopping, Some(StopReason::Interrupted));
        assert_eq!(
            (interrupted.instruction(true), interrupted.instruction(false)),
            (WorkerInstruction::Stop, WorkerInstruction::Stop)
        );
    }

    #[test]
    fn run_that_is_complete_before_its_planned_end_is_stopped() {
        let mut complete = desired(RunPhase::Stopping, Some(StopReason::Completed));
        complete.spec.start_at_ms = Some(5_000);
        let mut instruction_of_stop_at = |asked_at_ms| {
            complete.spec.stop.as_mut().expect("a stop").asked_at_ms = asked_at_ms;
            complete.instruction(true)
        };
        assert_eq!(instruction_of_stop_at(5_999), WorkerInstruction::Stop);
        assert_eq!(instruction_of_stop_at(6_000), WorkerInstruction::AwaitEnd);
    }

    #[test]
    fn leaving_worker_builds_no_users() {
        assert_eq!(WorkerInstruction::Prepare.while_leaving(), WorkerInstruction::Nothing);
        assert_eq!(WorkerInstruction::Run.while_leaving(), WorkerInstruction::RunIfBuilt);
        for instruction in [
            WorkerInstruction::RunIfBuilt,
            WorkerInstruction::AwaitEnd,
            WorkerInstruction::Stop,
            WorkerInstruction::Nothing,
        ] {
            assert_eq!(instruction.while_leaving(), instruction);
        }
    }

    #[test]
    fn spec_of_a_stopped_run_is_left_over_when_vikhrys_orchestrator_starts_a_test() {
        let spec = desired(RunPhase::Stopping, Some(StopReason::Interrupted)).spec.encode();
        let holds_run = |phase: RunPhase| {
            let (state, spec) = (phase.name().to_owned(), spec.clone());
            DesiredRun::parse(&RunRecord { state, spec, ..RunRecord::default() }).expect("a valid record").is_some()
        };
        let phases = [RunPhase::Preparing, RunPhase::Running, RunPhase::Stopping, RunPhase::Idle];
        assert_eq!(phases.map(holds_run), [false, false, true, true]);
    }

    #[test]
    fn record_without_spec_holds_no_run_and_unknown_phase_is_refused() {
        let record = |state: &str, spec: &str| RunRecord {
            state: state.to_owned(),
            spec: spec.to_owned(),
            ..RunRecord::default()
        };
        assert!(DesiredRun::parse(&record("", "")).is_ok_and(|desired| desired.is_none()));
        assert!(matches!(DesiredRun::parse(&record("SLEEPING", "")), Err(RecordError::UnknownPhase(_))));
        assert!(matches!(DesiredRun::parse(&record("RUNNING", "{}")), Err(RecordError::MalformedSpec(_))));
        let other = r#"{"protocol":2}"#;
        assert!(matches!(DesiredRun::parse(&record("RUNNING", other)), Err(RecordError::OtherProtocol(_))));
        assert!(DesiredRun::parse(&record("IDLE", other)).is_ok_and(|desired| desired.is_none()), "it has ended");
    }
}

//! The state of a worker's part in a run, and every transition of it. It performs no effect and
//! reads no clock. The worker feeds it events and performs the effects.
//!
//! An instruction names the epoch of its run. If that is not the epoch of the state, the state
//! first becomes `Idle`, as after `Withdrawn`.
//!
//! | state       | Prepare   | Run        | RunIfBuilt | AwaitEnd | Stop   | Nothing |
//! |-------------|-----------|------------|------------|----------|--------|---------|
//! | Idle        | Preparing | Preparing  | –          | –        | –      | –       |
//! | Preparing   | –         | –          | –          | Done     | Done   | –       |
//! | Active      | –         | apply spec | apply spec | shares   | stop   | –       |
//! | EndingEarly | –         | apply spec | apply spec | shares   | stop   | –       |
//! | Done        | –         | –          | –          | –        | –      | –       |
//! | DoneEarly   | –         | –          | –          | –        | –      | –       |
//! | Unable      | –         | –          | –          | –        | –      | –       |
//!
//! | state       | Withdrawn | Built  | BuildFailed | EndedEarly  | Shipped   |
//! |-------------|-----------|--------|-------------|-------------|-----------|
//! | Idle        | –         | –      | –           | –           | –         |
//! | Preparing   | Idle      | Active | Unable      | –           | –         |
//! | Active      | Idle      | –      | –           | EndingEarly | Done      |
//! | EndingEarly | Idle      | –      | –           | –           | DoneEarly |
//! | Done        | Idle      | –      | –           | –           | –         |
//! | DoneEarly   | Idle      | –      | –           | –           | –         |
//! | Unable      | Idle      | –      | –           | –           | –         |
//!
//! `–` changes nothing. Lower-case words are effects that leave the state as it is.

use squall_model::protocol::GivenUpRun;

/// A worker's part in a run; `R` is the run as the worker carries it out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WorkerRunState<R> {
    /// The worker takes part in no run.
    Idle,
    /// The users are being built.
    Preparing { epoch: u64 },
    /// The users are built; they make load from the start of the run on.
    Active { epoch: u64, worker_run: R },
    /// The load ended, or is ending, before the record said so. Other workers take the shares.
    EndingEarly { epoch: u64, worker_run: R, reason: String },
    /// The store has everything that the worker measured.
    Done { epoch: u64 },
    /// As `Done`, after `EndingEarly`.
    DoneEarly { epoch: u64, reason: String },
    /// The users could not be built.
    Unable { epoch: u64, reason: String },
}

/// What the worker has to do, by the record of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerInstruction {
    /// Build the users.
    Prepare,
    /// Build the users if they are not built, else apply the run spec.
    Run,
    /// Apply the run spec if the users are built. A leaving worker builds no users.
    RunIfBuilt,
    /// End the load at its planned end.
    AwaitEnd,
    /// End the load now.
    Stop,
    /// Nothing.
    Nothing,
}

/// An event in a worker's part in a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunEvent<R> {
    /// The worker has read the record of the run `epoch`.
    RecordRead {
        epoch: u64,
        instruction: WorkerInstruction,
    },
    /// The record holds no run, or another one.
    Withdrawn,
    /// The users are built.
    Built(R),
    BuildFailed(String),
    /// The worker's run ended, or is ending, before the record said so.
    EndedEarly(String),
    /// The store has everything that the worker's run measured.
    Shipped,
}

/// What the worker has to do after a transition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunEffect<R> {
    Build {
        epoch: u64,
    },
    CancelBuild,
    /// Apply pause, start and profile of the run spec to the worker's run.
    ApplySpec,
    /// Pass the held shares to the engine again.
    PassSharesToEngine,
    /// Stop the worker's run in the way that the record asks for.
    StopRun,
    /// Tell the fleet at once that the worker ends its part early.
    ReportEarlyEnd,
    /// Abort a worker's run that the record no longer asks for.
    Abandon(R),
    /// Note the end of the load and wait for the threads of the worker's run.
    Finish(R),
}

impl<R> WorkerRunState<R> {
    /// The state after `event`, and the effects to perform in this order.
    #[must_use]
    pub(crate) fn step(self, event: RunEvent<R>) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        match event {
            RunEvent::RecordRead { epoch, instruction } if self.epoch().is_none_or(|mine| mine == epoch) => {
                self.step_record_read(epoch, instruction)
            }
            RunEvent::RecordRead { epoch, instruction } => {
                let (idle, mut effects) = self.step_withdrawn();
                let (next, more) = idle.step_record_read(epoch, instruction);
                effects.extend(more);
                (next, effects)
            }
            RunEvent::Withdrawn => self.step_withdrawn(),
            RunEvent::Built(worker_run) => self.step_built(worker_run),
            RunEvent::BuildFailed(reason) => (self.step_build_failed(reason), vec![]),
            RunEvent::EndedEarly(reason) => self.step_ended_early(reason),
            RunEvent::Shipped => self.step_shipped(),
        }
    }

    fn step_record_read(self, epoch: u64, instruction: WorkerInstruction) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        use WorkerRunState::{Active, Done, DoneEarly, EndingEarly, Idle, Preparing, Unable};
        match (self, instruction) {
            (Idle, WorkerInstruction::Prepare | WorkerInstruction::Run) => {
                (Preparing { epoch }, vec![RunEffect::Build { epoch }])
            }
            (Preparing { epoch }, WorkerInstruction::AwaitEnd | WorkerInstruction::Stop) => {
                (Done { epoch }, vec![RunEffect::CancelBuild])
            }
            (state @ (Active { .. } | EndingEarly { .. }), WorkerInstruction::Run | WorkerInstruction::RunIfBuilt) => {
                (state, vec![RunEffect::ApplySpec])
            }
            (state @ (Active { .. } | EndingEarly { .. }), WorkerInstruction::AwaitEnd) => {
                (state, vec![RunEffect::PassSharesToEngine])
            }
            (state @ (Active { .. } | EndingEarly { .. }), WorkerInstruction::Stop) => {
                (state, vec![RunEffect::StopRun])
            }
            (
                state @ Idle,
                WorkerInstruction::RunIfBuilt
                | WorkerInstruction::AwaitEnd
                | WorkerInstruction::Stop
                | WorkerInstruction::Nothing,
            )
            | (
                state @ Preparing { .. },
                WorkerInstruction::Prepare
                | WorkerInstruction::Run
                | WorkerInstruction::RunIfBuilt
                | WorkerInstruction::Nothing,
            )
            | (state @ (Active { .. } | EndingEarly { .. }), WorkerInstruction::Prepare | WorkerInstruction::Nothing)
            | (
                state @ (Done { .. } | DoneEarly { .. } | Unable { .. }),
                WorkerInstruction::Prepare
                | WorkerInstruction::Run
                | WorkerInstruction::RunIfBuilt
                | WorkerInstruction::AwaitEnd
                | WorkerInstruction::Stop
                | WorkerInstruction::Nothing,
            ) => (state, vec![]),
        }
    }

    fn step_withdrawn(self) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        let effects = match self {
            WorkerRunState::Preparing { .. } => vec![RunEffect::CancelBuild],
            WorkerRunState::Active { worker_run, .. } | WorkerRunState::EndingEarly { worker_run, .. } => {
                vec![RunEffect::Abandon(worker_run)]
            }
            WorkerRunState::Idle
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. } => vec![],
        };
        (WorkerRunState::Idle, effects)
    }

    fn step_built(self, worker_run: R) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        match self {
            WorkerRunState::Preparing { epoch } => {
                (WorkerRunState::Active { epoch, worker_run }, vec![RunEffect::PassSharesToEngine])
            }
            state @ (WorkerRunState::Idle
            | WorkerRunState::Active { .. }
            | WorkerRunState::EndingEarly { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. }) => (state, vec![RunEffect::Abandon(worker_run)]),
        }
    }

    fn step_build_failed(self, reason: String) -> WorkerRunState<R> {
        match self {
            WorkerRunState::Preparing { epoch } => WorkerRunState::Unable { epoch, reason },
            state @ (WorkerRunState::Idle
            | WorkerRunState::Active { .. }
            | WorkerRunState::EndingEarly { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. }) => state,
        }
    }

    fn step_ended_early(self, reason: String) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        match self {
            WorkerRunState::Active { epoch, worker_run } => {
                (WorkerRunState::EndingEarly { epoch, worker_run, reason }, vec![RunEffect::ReportEarlyEnd])
            }
            state @ (WorkerRunState::Idle
            | WorkerRunState::Preparing { .. }
            | WorkerRunState::EndingEarly { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. }) => (state, vec![]),
        }
    }

    fn step_shipped(self) -> (WorkerRunState<R>, Vec<RunEffect<R>>) {
        match self {
            WorkerRunState::Active { epoch, worker_run } => {
                (WorkerRunState::Done { epoch }, vec![RunEffect::Finish(worker_run)])
            }
            WorkerRunState::EndingEarly { epoch, worker_run, reason } => {
                (WorkerRunState::DoneEarly { epoch, reason }, vec![RunEffect::Finish(worker_run)])
            }
            state @ (WorkerRunState::Idle
            | WorkerRunState::Preparing { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. }) => (state, vec![]),
        }
    }

    /// The epoch of the run; `None` without one.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            WorkerRunState::Idle => None,
            WorkerRunState::Preparing { epoch }
            | WorkerRunState::Active { epoch, .. }
            | WorkerRunState::EndingEarly { epoch, .. }
            | WorkerRunState::Done { epoch }
            | WorkerRunState::DoneEarly { epoch, .. }
            | WorkerRunState::Unable { epoch, .. } => Some(*epoch),
        }
    }

    pub(crate) fn worker_run(&self) -> Option<&R> {
        match self {
            WorkerRunState::Active { worker_run, .. } | WorkerRunState::EndingEarly { worker_run, .. } => {
                Some(worker_run)
            }
            WorkerRunState::Idle
            | WorkerRunState::Preparing { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. } => None,
        }
    }

    pub(crate) fn worker_run_mut(&mut self) -> Option<&mut R> {
        match self {
            WorkerRunState::Active { worker_run, .. } | WorkerRunState::EndingEarly { worker_run, .. } => {
                Some(worker_run)
            }
            WorkerRunState::Idle
            | WorkerRunState::Preparing { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. }
            | WorkerRunState::Unable { .. } => None,
        }
    }

    /// Whether the users are built, or have been: the worker can hold shares of the run.
    pub(crate) fn is_prepared(&self) -> bool {
        match self {
            WorkerRunState::Active { .. }
            | WorkerRunState::EndingEarly { .. }
            | WorkerRunState::Done { .. }
            | WorkerRunState::DoneEarly { .. } => true,
            WorkerRunState::Idle | WorkerRunState::Preparing { .. } | WorkerRunState::Unable { .. } => false,
        }
    }

    /// The run that the worker has given up: it could not build the users, or ended its part early.
    pub(crate) fn given_up_run(&self) -> Option<GivenUpRun> {
        match self {
            WorkerRunState::EndingEarly { epoch, reason, .. }
            | WorkerRunState::DoneEarly { epoch, reason }
            | WorkerRunState::Unable { epoch, reason } => Some(GivenUpRun { epoch: *epoch, message: reason.clone() }),
            WorkerRunState::Idle
            | WorkerRunState::Preparing { .. }
            | WorkerRunState::Active { .. }
            | WorkerRunState::Done { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunEffect::{Abandon, ApplySpec, Build, CancelBuild, Finish, PassSharesToEngine, ReportEarlyEnd, StopRun};

    type State = WorkerRunState<char>;
    type Row = (&'static str, RunEvent<char>, State, Vec<RunEffect<char>>);

    const EPOCH: u64 = 7;

    fn reason() -> String {
        "reason".to_owned()
    }

    fn idle() -> State {
        State::Idle
    }

    fn preparing() -> State {
        State::Preparing { epoch: EPOCH }
    }

    fn active() -> State {
        State::Active { epoch: EPOCH, worker_run: 'r' }
    }

    fn ending_early() -> State {
        State::EndingEarly { epoch: EPOCH, worker_run: 'r', reason: reason() }
    }

    fn done() -> State {
        State::Done { epoch: EPOCH }
    }

    fn done_early() -> State {
        State::DoneEarly { epoch: EPOCH, reason: reason() }
    }

    fn unable() -> State {
        State::Unable { epoch: EPOCH, reason: reason() }
    }

    fn record_read(instruction: WorkerInstruction) -> RunEvent<char> {
        RunEvent::RecordRead { epoch: EPOCH, instruction }
    }

    /// One row for every event, in the order of the tables above.
    #[track_caller]
    fn check(state: fn() -> State, rows: [(State, Vec<RunEffect<char>>); 11]) {
        let events: [(&str, RunEvent<char>); 11] = [
            ("Prepare", record_read(WorkerInstruction::Prepare)),
            ("Run", record_read(WorkerInstruction::Run)),
            ("RunIfBuilt", record_read(WorkerInstruction::RunIfBuilt)),
            ("AwaitEnd", record_read(WorkerInstruction::AwaitEnd)),
            ("Stop", record_read(WorkerInstruction::Stop)),
            ("Nothing", record_read(WorkerInstruction::Nothing)),
            ("Withdrawn", RunEvent::Withdrawn),
            ("Built", RunEvent::Built('n')),
            ("BuildFailed", RunEvent::BuildFailed(reason())),
            ("EndedEarly", RunEvent::EndedEarly(reason())),
            ("Shipped", RunEvent::Shipped),
        ];
        for ((name, event), expected) in events.into_iter().zip(rows) {
            assert_eq!(state().step(event), expected, "{:?} after {name}", state());
        }
    }

    #[test]
    fn idle_after_every_event() {
        let build = || (preparing(), vec![Build { epoch: EPOCH }]);
        let same = || (idle(), vec![]);
        let dropped = (idle(), vec![Abandon('n')]);
        check(idle, [build(), build(), same(), same(), same(), same(), same(), dropped, same(), same(), same()]);
    }

    #[test]
    fn preparing_after_every_event() {
        let same = || (preparing(), vec![]);
        let cancelled = || (done(), vec![CancelBuild]);
        check(
            preparing,
            [
                same(),
                same(),
                same(),
                cancelled(),
                cancelled(),
                same(),
                (idle(), vec![CancelBuild]),
                (State::Active { epoch: EPOCH, worker_run: 'n' }, vec![PassSharesToEngine]),
                (unable(), vec![]),
                same(),
                same(),
            ],
        );
    }

    #[test]
    fn active_after_every_event() {
        let same = || (active(), vec![]);
        check(
            active,
            [
                same(),
                (active(), vec![ApplySpec]),
                (active(), vec![ApplySpec]),
                (active(), vec![PassSharesToEngine]),
                (active(), vec![StopRun]),
                same(),
                (idle(), vec![Abandon('r')]),
                (active(), vec![Abandon('n')]),
                same(),
                (ending_early(), vec![ReportEarlyEnd]),
                (done(), vec![Finish('r')]),
            ],
        );
    }

    #[test]
    fn ending_early_after_every_event() {
        let same = || (ending_early(), vec![]);
        check(
            ending_early,
            [
                same(),
                (ending_early(), vec![ApplySpec]),
                (ending_early(), vec![ApplySpec]),
                (ending_early(), vec![PassSharesToEngine]),
                (ending_early(), vec![StopRun]),
                same(),
                (idle(), vec![Abandon('r')]),
                (ending_early(), vec![Abandon('n')]),
                same(),
                same(),
                (done_early(), vec![Finish('r')]),
            ],
        );
    }

    #[test]
    fn finished_states_after_every_event() {
        for state in [done, done_early, unable] {
            let same = || (state(), vec![]);
            let (withdrawn, dropped) = ((idle(), vec![]), (state(), vec![Abandon('n')]));
            check(state, [same(), same(), same(), same(), same(), same(), withdrawn, dropped, same(), same(), same()]);
        }
    }

    #[test]
    fn order_of_another_epoch_withdraws_the_run_first() {
        let next = || RunEvent::RecordRead { epoch: 8, instruction: WorkerInstruction::Prepare };
        let rows: [Row; 7] = [
            ("idle", next(), idle(), vec![]),
            ("preparing", next(), preparing(), vec![CancelBuild]),
            ("active", next(), active(), vec![Abandon('r')]),
            ("ending early", next(), ending_early(), vec![Abandon('r')]),
            ("done", next(), done(), vec![]),
            ("done early", next(), done_early(), vec![]),
            ("unable", next(), unable(), vec![]),
        ];
        for (name, event, state, mut effects) in rows {
            effects.push(Build { epoch: 8 });
            assert_eq!(state.step(event), (State::Preparing { epoch: 8 }, effects), "{name}");
        }
    }

    #[test]
    fn failure_is_reported_until_the_run_is_withdrawn() {
        for state in [ending_early, done_early, unable] {
            assert_eq!(state().given_up_run(), Some(GivenUpRun { epoch: EPOCH, message: reason() }));
            assert_eq!(state().step(RunEvent::Withdrawn).0.given_up_run(), None);
        }
        for state in [idle, preparing, active, done] {
            assert_eq!(state().given_up_run(), None);
        }
    }
}

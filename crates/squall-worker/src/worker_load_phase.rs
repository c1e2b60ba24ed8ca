//! The phase of the load of a worker's run, and why the load ends. It stops nothing itself:
//! `WorkerRun` performs the effect.
//!
//! | phase           | Stop              | BacklogFull       | EngineEnded    | EngineFailed |
//! |-----------------|-------------------|-------------------|----------------|--------------|
//! | Running         | Stopping(Regular) | Stopping(Early)   | Ended(Regular) | Ended(Early) |
//! | Stopping(cause) | –, stop           | –                 | Ended(cause)   | Ended(Early) |
//! | Ended(cause)    | –, stop           | –                 | –              | –            |
//!
//! `–` keeps the phase. A second stop reaches the engine too, because it may be stronger than the
//! first.

/// How far the load of a worker's run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerLoadPhase {
    /// The engine waits for the start, or makes load.
    Running,
    /// The engine finishes iterations and makes no more starts.
    Stopping(EndCause),
    /// The engine has delivered its last delta.
    Ended(EndCause),
}

/// Why a load ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The record says so, or the planned end is reached.
    Regular,
    /// The worker cannot carry the run to its end, for this reason.
    Early(String),
}

/// An event in a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadEvent {
    Stop(StopMode),
    /// More deltas wait for the store than the worker may keep.
    BacklogFull,
    EngineEnded,
    EngineFailed(String),
}

/// How to stop a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// Finish the iterations that have started.
    Drain,
    /// End them at once.
    Abort,
}

const BACKLOG_FULL: &str = "the store was away for too long";

impl WorkerLoadPhase {
    /// The phase after `event`, and how to stop the engine if it has to be stopped.
    #[must_use]
    pub(crate) fn step(self, event: LoadEvent) -> (WorkerLoadPhase, Option<StopMode>) {
        use WorkerLoadPhase::{Ended, Running, Stopping};
        match (self, event) {
            (Running, LoadEvent::Stop(mode)) => (Stopping(EndCause::Regular), Some(mode)),
            (phase @ (Stopping(_) | Ended(_)), LoadEvent::Stop(mode)) => (phase, Some(mode)),
            (Running, LoadEvent::BacklogFull) => {
                (Stopping(EndCause::Early(BACKLOG_FULL.to_owned())), Some(StopMode::Drain))
            }
            (Running, LoadEvent::EngineEnded) => (Ended(EndCause::Regular), None),
            (Stopping(cause), LoadEvent::EngineEnded) => (Ended(cause), None),
            (Running | Stopping(_), LoadEvent::EngineFailed(reason)) => (Ended(EndCause::Early(reason)), None),
            (phase @ Stopping(_), LoadEvent::BacklogFull)
            | (phase @ Ended(_), LoadEvent::BacklogFull | LoadEvent::EngineEnded | LoadEvent::EngineFailed(_)) => {
                (phase, None)
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, WorkerLoadPhase::Ended(_))
    }

    /// Why the load ends before the record says so, if it does.
    pub(crate) fn early_end_reason(&self) -> Option<&str> {
        match self {
            WorkerLoadPhase::Stopping(EndCause::Early(reason)) | WorkerLoadPhase::Ended(EndCause::Early(reason)) => {
                Some(reason)
            }
            WorkerLoadPhase::Running
            | WorkerLoadPhase::Stopping(EndCause::Regular)
            | WorkerLoadPhase::Ended(EndCause::Regular) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StopMode::{Abort, Drain};
    use WorkerLoadPhase::{Ended, Running, Stopping};

    fn early(reason: &str) -> EndCause {
        EndCause::Early(reason.to_owned())
    }

    #[track_caller]
    fn check(phase: WorkerLoadPhase, event: LoadEvent, next: WorkerLoadPhase, stop: Option<StopMode>) {
        assert_eq!(phase.step(event), (next, stop));
    }

    /// The table above, row by row.
    #[test]
    fn every_phase_and_event() {
        let failed = || LoadEvent::EngineFailed("panicked".to_owned());
        for mode in [Drain, Abort] {
            check(Running, LoadEvent::Stop(mode), Stopping(EndCause::Regular), Some(mode));
        }
        check(Running, LoadEvent::BacklogFull, Stopping(early(BACKLOG_FULL)), Some(Drain));
        check(Running, LoadEvent::EngineEnded, Ended(EndCause::Regular), None);
        check(Running, failed(), Ended(early("panicked")), None);
        for cause in [EndCause::Regular, early("x")] {
            for mode in [Drain, Abort] {
                check(Stopping(cause.clone()), LoadEvent::Stop(mode), Stopping(cause.clone()), Some(mode));
                check(Ended(cause.clone()), LoadEvent::Stop(mode), Ended(cause.clone()), Some(mode));
            }
            check(Stopping(cause.clone()), LoadEvent::BacklogFull, Stopping(cause.clone()), None);
            check(Stopping(cause.clone()), LoadEvent::EngineEnded, Ended(cause.clone()), None);
            check(Stopping(cause.clone()), failed(), Ended(early("panicked")), None);
            for event in [LoadEvent::BacklogFull, LoadEvent::EngineEnded, failed()] {
                check(Ended(cause.clone()), event, Ended(cause.clone()), None);
            }
        }
    }

    #[test]
    fn only_an_early_end_has_a_reason() {
        assert_eq!(Stopping(early("x")).early_end_reason(), Some("x"));
        assert_eq!(Ended(early("x")).early_end_reason(), Some("x"));
        for phase in [Running, Stopping(EndCause::Regular), Ended(EndCause::Regular)] {
            assert_eq!(phase.early_end_reason(), None);
        }
    }
}

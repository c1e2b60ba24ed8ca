//! The phases of a fleet's run and their transitions. It is pure: squall-orchestrator applies a
//! step to the run record in one atomic write. Any client applies `begin` and `stop`, the leader
//! all others.
//!
//! | phase     | begin     | ready   | stop     | drained |
//! |-----------|-----------|---------|----------|---------|
//! | idle      | preparing | –       | –        | –       |
//! | preparing | –         | running | stopping | –       |
//! | running   | –         | –       | stopping | –       |
//! | stopping  | –         | –       | stopping | idle    |
//!
//! `–` is refused. A second stop is allowed: it may come from another person, or abort a run that
//! drains.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RunPhase {
    /// Nothing runs.
    #[default]
    Idle,
    /// Workers have the plan and build their users.
    Preparing,
    /// Workers make load, or will at the agreed time.
    Running,
    /// Workers finish and ship their last deltas. After a regular end they still make the starts
    /// that are due by their own clocks, after any other stop none.
    Stopping,
}

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    Begin,
    Ready,
    Stop,
    Drained,
}

/// An event that the phase does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a test that is {phase} cannot {event}")]
pub struct PhaseTransitionError {
    pub phase: RunPhase,
    pub event: PhaseEvent,
}

impl RunPhase {
    pub const ALL: [RunPhase; 4] = [RunPhase::Idle, RunPhase::Preparing, RunPhase::Running, RunPhase::Stopping];

    /// The phase after `event`.
    pub fn step(self, event: PhaseEvent) -> Result<RunPhase, PhaseTransitionError> {
        use PhaseEvent::{Begin, Drained, Ready, Stop};
        use RunPhase::{Idle, Preparing, Running, Stopping};
        match (self, event) {
            (Idle, Begin) => Ok(Preparing),
            (Preparing, Ready) => Ok(Running),
            (Preparing | Running | Stopping, Stop) => Ok(Stopping),
            (Stopping, Drained) => Ok(Idle),
            (phase, event) => Err(PhaseTransitionError { phase, event }),
        }
    }

    /// The name in `test:state`.
    pub fn name(self) -> &'static str {
        match self {
            RunPhase::Idle => "IDLE",
            RunPhase::Preparing => "PREPARING",
            RunPhase::Running => "RUNNING",
            RunPhase::Stopping => "STOPPING",
        }
    }

    /// Parses a [`RunPhase::name`].
    pub fn from_name(name: &str) -> Option<RunPhase> {
        RunPhase::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

impl fmt::Display for RunPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PhaseEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PhaseEvent::Begin => "begin",
            PhaseEvent::Ready => "be ready",
            PhaseEvent::Stop => "be stopped",
            PhaseEvent::Drained => "be over",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PhaseEvent::{Begin, Drained, Ready, Stop};
    use RunPhase::{Idle, Preparing, Running, Stopping};

    #[track_caller]
    fn check(phase: RunPhase, event: PhaseEvent, next: Option<RunPhase>) {
        assert_eq!(phase.step(event), next.ok_or(PhaseTransitionError { phase, event }));
    }

    /// The table above, row by row.
    #[test]
    fn every_phase_and_event_has_its_transition() {
        check(Idle, Begin, Some(Preparing));
        check(Idle, Ready, None);
        check(Idle, Stop, None);
        check(Idle, Drained, None);
        check(Preparing, Begin, None);
        check(Preparing, Ready, Some(Running));
        check(Preparing, Stop, Some(Stopping));
        check(Preparing, Drained, None);
        check(Running, Begin, None);
        check(Running, Ready, None);
        check(Running, Stop, Some(Stopping));
        check(Running, Drained, None);
        check(Stopping, Begin, None);
        check(Stopping, Ready, None);
        check(Stopping, Stop, Some(Stopping));
        check(Stopping, Drained, Some(Idle));
    }

    #[test]
    fn every_phase_can_return_to_idle() {
        for start in RunPhase::ALL {
            let stopped = start.step(Stop).unwrap_or(start);
            assert_eq!(stopped.step(Drained).unwrap_or(stopped), Idle);
        }
    }

    #[test]
    fn phase_names_parse_back() {
        RunPhase::ALL.iter().for_each(|phase| assert_eq!(RunPhase::from_name(phase.name()), Some(*phase)));
    }
}

//! Where a run of a fleet is, and what may happen next. Pure: whoever holds the record applies the step in one atomic write.
//!
//! | phase     | begin     | ready   | stop     | drained |
//! |-----------|-----------|---------|----------|---------|
//! | idle      | preparing | –       | –        | –       |
//! | preparing | –         | running | stopping | –       |
//! | running   | –         | –       | stopping | –       |
//! | stopping  | –         | –       | stopping | idle    |
//!
//! `–` is refused. Stopping again is no mistake: it may come from another person, or be a stronger wish.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RunPhase {
    /// Nothing runs.
    #[default]
    Idle,
    /// The plan is out, workers build their users.
    Preparing,
    /// Load is made, or will be at the agreed instant.
    Running,
    /// No further starts; workers finish and ship what they have.
    Stopping,
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    Begin,
    Ready,
    Stop,
    Drained,
}

/// A step that the phase does not allow.
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

    /// As it stands in `test:state`.
    pub fn name(self) -> &'static str {
        match self {
            RunPhase::Idle => "IDLE",
            RunPhase::Preparing => "PREPARING",
            RunPhase::Running => "RUNNING",
            RunPhase::Stopping => "STOPPING",
        }
    }

    /// Reads what [`RunPhase::name`] wrote.
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
    fn every_phase_and_event() {
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
    fn from_every_phase_there_is_a_way_back_to_idle() {
        for start in RunPhase::ALL {
            let stopped = start.step(Stop).unwrap_or(start);
            assert_eq!(stopped.step(Drained).unwrap_or(stopped), Idle);
        }
    }

    #[test]
    fn names_read_back() {
        RunPhase::ALL.iter().for_each(|phase| assert_eq!(RunPhase::from_name(phase.name()), Some(*phase)));
    }
}

//! What a person or a program has changed in the load of a run, and the events that tell of it.
//! [`RunSpec`](crate::RunSpec) makes the changes and keeps them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{FleetEvent, FleetEventKind, LevelUnit};

/// What a load command has changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadChange {
    Paused,
    /// The load continues at this level.
    Resumed {
        level: f64,
    },
    /// The level until the planned end.
    Level {
        before: f64,
        now: f64,
    },
}

/// A change that a run has accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedChange {
    /// From when on it holds, in milliseconds of the run.
    pub at_ms: u64,
    /// How long the load takes to reach the new level.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ramp_ms: u64,
    /// The first revision of the run record that has it. For a run without a record its number.
    pub revision: u64,
    pub change: LoadChange,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl AcceptedChange {
    /// The change as an event of a run whose load is counted in `unit`.
    pub fn event(&self, unit: LevelUnit) -> FleetEvent {
        let (kind, mut text) = match self.change {
            LoadChange::Paused => (FleetEventKind::Paused, "load paused".to_owned()),
            LoadChange::Resumed { level } => {
                (FleetEventKind::Resumed, format!("load resumed at {}", words(level, unit)))
            }
            LoadChange::Level { before, now } => {
                let name = unit.name();
                let levels = format!("{} → {}", number(before), number(now));
                let per = if unit == LevelUnit::Rate { "/s" } else { "" };
                (FleetEventKind::LoadChanged, format!("{name} {levels}{per}"))
            }
        };
        if self.ramp_ms > 0 {
            text += &format!(" within {} s", number(self.ramp_ms as f64 / 1e3));
        }
        let at = Duration::from_millis(self.at_ms);
        FleetEvent { revision: Some(self.revision), ..FleetEvent::new(at.as_secs_f64(), kind, text) }
    }
}

fn words(level: f64, unit: LevelUnit) -> String {
    match unit {
        LevelUnit::Rate => format!("{}/s", number(level)),
        LevelUnit::Users => format!("{} users", number(level)),
    }
}

/// At most two decimals, and thousands separated.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let mut separated = String::new();
    for (place, digit) in whole.char_indices() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            separated.push(',');
        }
        separated.push(digit);
    }
    match decimals.trim_end_matches('0') {
        "" => separated,
        decimals => format!("{separated}.{decimals}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: LoadChange, ramp_ms: u64, unit: LevelUnit, expected: (FleetEventKind, &str)) {
        let event = AcceptedChange { at_ms: 1500, ramp_ms, revision: 7, change }.event(unit);
        assert_eq!(
            (event.kind, event.text.as_str(), event.t_s, event.revision),
            (expected.0, expected.1, 1.5, Some(7))
        );
    }

    #[test]
    fn changes_become_events_with_their_levels() {
        use FleetEventKind::{LoadChanged, Paused, Resumed};
        let level = |before, now| LoadChange::Level { before, now };
        check(level(1200.0, 1500.0), 0, LevelUnit::Rate, (LoadChanged, "rate 1,200 → 1,500/s"));
        check(level(2.278_22, 0.5), 0, LevelUnit::Rate, (LoadChanged, "rate 2.28 → 0.5/s"));
        check(level(10.0, 1_000_000.0), 30_000, LevelUnit::Users, (LoadChanged, "users 10 → 1,000,000 within 30 s"));
        check(LoadChange::Paused, 0, LevelUnit::Users, (Paused, "load paused"));
        check(LoadChange::Resumed { level: 100.0 }, 0, LevelUnit::Rate, (Resumed, "load resumed at 100/s"));
        check(LoadChange::Resumed { level: 20.0 }, 0, LevelUnit::Users, (Resumed, "load resumed at 20 users"));
    }
}

//! A test that vikhry's orchestrator runs, as this worker sees it. That orchestrator stores neither a
//! scenario nor a run specification: the worker brings its scenario, and the commands say which users
//! it runs. This module turns the commands into the run that the worker follows; it starts nothing.
//! The worker's main loop calls it.

use squall_coord::RunRecord;
use squall_model::{
    Bundle, CommandEnvelope, CommandType, LoadModel, Pause, Profile, ProfileStage, RunPhase, RunSpec, RunStopRequest,
    StopReason,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{desired_run::DesiredRun, user_ids::UserIds};

/// A test lasts until it is stopped, but no longer than this.
const MAX_TEST_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

/// One test of vikhry's orchestrator.
#[derive(Debug)]
pub(crate) struct VikhryRun {
    epoch: u64,
    /// The scenario with the parameters of the test, and its name in the store once it is there.
    bundle: Bundle,
    spec: Option<RunSpec>,
    users: UserSlots,
    /// How many users the profile of `spec` has.
    applied_users: usize,
    stopped: bool,
    /// Slots whose users have started.
    active_slots: BTreeSet<u64>,
    /// Ids of the users that the store shows as active.
    shown_ids: BTreeSet<u64>,
}

/// The users that the commands name.
#[derive(Debug, Default)]
struct UserSlots {
    /// Slots beyond `used` keep their last id, because their users may not have ended yet.
    ids: UserIds,
    used: usize,
}

impl VikhryRun {
    /// The test that `command` starts, with the worker's own scenario.
    pub(crate) fn start(command: &CommandEnvelope, scenario: &Bundle) -> VikhryRun {
        let mut bundle = scenario.clone();
        let params = command.payload.get("init_params").and_then(serde_json::Value::as_object);
        for (name, value) in params.into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            bundle.params.insert(name.clone(), text);
        }
        let pause = match bundle.plan.load.model {
            LoadModel::Closed { pause, .. } => pause,
            LoadModel::Open { .. } => Pause::NONE,
        };
        bundle.plan.load.model = LoadModel::Closed { users: no_users(), pause };
        bundle.plan.load.iterations = None;
        VikhryRun {
            epoch: command.epoch,
            bundle,
            spec: None,
            users: UserSlots::default(),
            applied_users: 0,
            stopped: false,
            active_slots: BTreeSet::new(),
            shown_ids: BTreeSet::new(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn user_ids(&self) -> UserIds {
        self.users.ids.clone()
    }

    /// Whether this test is the run `epoch` and this worker takes part in it.
    pub(crate) fn has_begun_in(&self, epoch: u64) -> bool {
        self.spec.is_some() && self.epoch == epoch
    }

    /// The bundle, if the store does not have it yet.
    pub(crate) fn unstored_bundle(&self) -> Option<&Bundle> {
        Some(&self.bundle).filter(|_| self.spec.is_none())
    }

    /// The store has the bundle under `name`, and the test starts at the time of `record`.
    pub(crate) fn begin(&mut self, name: String, record: &RunRecord) {
        let profile = self.bundle.plan.load.model.profile().clone();
        let start_at_ms = Some(record.now_ms);
        self.spec = Some(RunSpec { start_at_ms, ..RunSpec::new(format!("vikhry-{}", self.epoch), name, profile) });
    }

    /// Applies a command of this test. Returns the ids that are no ids of users.
    pub(crate) fn apply(&mut self, command: &CommandEnvelope) -> Vec<String> {
        let ids = command
            .payload
            .get("user_id")
            .into_iter()
            .chain(command.payload.get("user_ids").and_then(serde_json::Value::as_array).into_iter().flatten());
        let mut unreadable = Vec::new();
        for id in ids {
            match (command.kind, id.as_u64().or_else(|| id.as_str()?.parse().ok())) {
                (_, None) => unreadable.push(id.to_string()),
                (CommandType::AddUser, Some(id)) => self.users.add(id),
                (CommandType::RemoveUser, Some(id)) => self.users.remove(id),
                (CommandType::StartTest | CommandType::StopTest | CommandType::Drain, Some(_)) => {}
            }
        }
        self.stopped |= command.kind == CommandType::StopTest;
        unreadable
    }

    /// What the worker has to do. A worker that misses the stop command sees the state IDLE.
    pub(crate) fn desired(&mut self, record: &RunRecord) -> Option<DesiredRun> {
        self.stopped |= record.state == RunPhase::Idle.name();
        let (used, stopped) = (self.users.used, self.stopped);
        let spec = self.spec.as_mut()?;
        let start = spec.start_at_ms.unwrap_or(record.now_ms);
        if used != self.applied_users {
            let at = Duration::from_millis(record.now_ms.saturating_sub(start));
            // Fails only after the end of the profile.
            let _ = spec.ramp_level(at, used as f64, Duration::ZERO);
            self.applied_users = used;
        }
        if stopped && spec.stop.is_none() {
            let (reason, asked_at_ms) = (StopReason::Interrupted, record.now_ms);
            spec.stop = Some(RunStopRequest { reason, abort: false, asked_at_ms, message: None });
        }
        let phase = if stopped { RunPhase::Stopping } else { RunPhase::Running };
        Some(DesiredRun { epoch: self.epoch, phase, spec: spec.clone() })
    }

    /// Takes the users that have started (`true`) or left, by the engine's numbers. Returns which users
    /// the store has to show or to remove, by the numbers that belong to their ids: a slot may have got
    /// another id.
    pub(crate) fn with_ids(&mut self, changes: BTreeMap<u64, bool>) -> BTreeMap<u64, bool> {
        for (number, started) in changes {
            match started {
                true => self.active_slots.insert(number),
                false => self.active_slots.remove(&number),
            };
        }
        let ids = self.active_slots.iter().filter_map(|slot| self.users.ids.get(*slot));
        let active_ids: BTreeSet<u64> = ids.collect();
        let changed = active_ids.symmetric_difference(&self.shown_ids);
        // Ids count from 1, numbers from 0.
        let changed = changed.map(|id| (id.saturating_sub(1), active_ids.contains(id))).collect();
        self.shown_ids = active_ids;
        changed
    }
}

impl UserSlots {
    fn add(&mut self, id: u64) {
        let used = self.used;
        self.used = self.ids.change(|ids| {
            if ids[..used].contains(&id) {
                return used;
            }
            match ids.get_mut(used) {
                Some(slot) => *slot = id,
                None => ids.push(id),
            }
            used + 1
        });
    }

    /// The last user takes the slot of the removed one. vikhry removes the users with the highest ids,
    /// so that the last user is the removed one.
    fn remove(&mut self, id: u64) {
        let used = self.used;
        self.used = self.ids.change(|ids| {
            let Some(slot) = ids[..used].iter().position(|one| *one == id) else { return used };
            ids.swap(slot, used - 1);
            used - 1
        });
    }
}

/// A profile without users. It must rise, so it rises at its end.
fn no_users() -> Profile {
    Profile::from_stages(vec![
        ProfileStage { duration: MAX_TEST_DURATION, from: 0.0, to: 0.0 },
        ProfileStage { duration: Duration::from_nanos(1), from: 0.0, to: 1.0 },
    ])
    .expect("two stages, of which one rises")
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_model::{EngineLimits, Load, Plan};

    #[test]
    fn users_keep_their_slots_when_the_last_ones_are_removed() {
        let mut slots = UserSlots::default();
        [2, 4, 6, 4].into_iter().for_each(|id| slots.add(id));
        slots.remove(6);
        slots.remove(7);
        let ids = |slots: &UserSlots| slots.ids.change(|ids| ids.clone());
        assert_eq!((slots.used, ids(&slots)), (2, vec![2, 4, 6]));
        slots.add(8);
        assert_eq!((slots.used, ids(&slots)), (3, vec![2, 4, 8]));
    }

    #[test]
    fn id_that_is_no_whole_number_is_returned_and_others_of_the_command_are_added() {
        let command = |kind: &str, payload: serde_json::Value| {
            let text = serde_json::json!({
                "type": kind, "command_id": "c", "epoch": 1, "sent_at": 1, "payload": payload,
            });
            CommandEnvelope::decode(text.to_string().as_bytes()).expect("a command")
        };
        let plan = Plan {
            name: "p".into(),
            target: "t".into(),
            load: Load {
                model: LoadModel::Closed { users: no_users(), pause: Pause::NONE },
                iterations: None,
                warm_up: Duration::ZERO,
            },
            tasks: Vec::new(),
            thresholds: Vec::new(),
            seed: 1,
        };
        let limits = EngineLimits {
            start_users: None,
            threads: None,
            max_users: 10,
            grace: Duration::ZERO,
            slack: Duration::ZERO,
            late_after: Duration::ZERO,
            phases: false,
        };
        let start = command("start_test", serde_json::json!({"target_users": 2, "init_params": {}}));
        let mut run = VikhryRun::start(&start, &Bundle::new(plan, limits));
        let refused = run.apply(&command("add_user", serde_json::json!({"user_ids": ["alice", "7", 8]})));
        assert_eq!((refused, run.users.used), (vec!["\"alice\"".to_owned()], 2));
    }
}

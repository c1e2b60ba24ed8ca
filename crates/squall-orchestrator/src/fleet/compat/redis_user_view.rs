//! The users of a closed run in Redis: which worker has which user, by the shares that workers
//! report and by the level of the load. It assigns nothing. Every update moves a bounded number of
//! users, until Redis shows all of them.

use squall_coord::{CompatView, FleetStores, MAX_USERS_PER_MOVE, StoreError, UserLocation, UserMove};
use squall_model::{CommandType, SHARE_COUNT, user_id};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;
use tracing::debug;

use crate::fleet::{FleetClient, WorkerInfo, command_payload::user_commands, share_holders};

/// Most users that one update moves, so that the leader's next poll is not delayed.
const MAX_MOVES_PER_UPDATE: usize = 20_000;

/// Most users that the view shows.
const MAX_SHOWN_USERS: u64 = 1_000_000;

/// Shortest time between two points of the timeline that have the same source.
const LEVEL_POINT_INTERVAL: Duration = Duration::from_secs(1);

/// The view is written again after this time, because its keys expire after a day.
const REFRESH_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// What the view has to show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserViewInput<'a> {
    /// The number of users; the engine gives them the numbers below it.
    pub(crate) level: u64,
    /// Whether workers make load.
    pub(crate) running: bool,
    /// What set the level; the name is vikhry's.
    pub(crate) source: &'static str,
    pub(crate) workers: &'a [WorkerInfo],
}

/// The users of one run, as Redis shows them.
pub(crate) struct RedisUserView<C: FleetStores> {
    fleet: FleetClient<C>,
    epoch: u64,
    load_state: ViewLoadState,
    /// Names of workers, by the number in [`UserPlacement`].
    worker_names: Vec<String>,
    /// Names of the workers that take several users per command.
    takes_user_ids: BTreeSet<String>,
    /// By user. Users beyond the end are absent.
    placements: Vec<ShownPlacement>,
    /// The target that the view shows completely.
    settled_target: Option<UserViewTarget>,
    last_level_point: Option<(u64, &'static str)>,
    last_level_point_at: Instant,
    last_full_write: Instant,
}

/// Whether the view has been read from Redis.
#[derive(Debug, Clone, Copy)]
enum ViewLoadState {
    Pending { is_new_run: bool },
    Loaded,
}

/// The worker that has a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UserPlacement {
    worker: u16,
    running: bool,
}

/// Where Redis shows a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ShownPlacement {
    Absent,
    /// The hash that names the worker has expired.
    UnknownWorker,
    OnWorker(UserPlacement),
}

/// Where the view should show users.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UserViewTarget {
    level: u64,
    /// By share.
    holders: Vec<Option<UserPlacement>>,
    /// Whether a worker is present, by its number.
    present: Vec<bool>,
}

/// Users that move between the same two workers.
#[derive(Debug, PartialEq, Eq)]
struct UserMoveBatch {
    from: ShownPlacement,
    to: Option<UserPlacement>,
    users: Vec<u64>,
}

impl<C: FleetStores> RedisUserView<C> {
    /// A new run first clears the view of the previous one.
    pub(crate) fn new(fleet: FleetClient<C>, epoch: u64, is_new_run: bool) -> RedisUserView<C> {
        RedisUserView {
            fleet,
            epoch,
            load_state: ViewLoadState::Pending { is_new_run },
            worker_names: Vec::new(),
            takes_user_ids: BTreeSet::new(),
            placements: Vec::new(),
            settled_target: None,
            last_level_point: None,
            last_level_point_at: Instant::now(),
            last_full_write: Instant::now(),
        }
    }

    /// Reads from Redis what the previous leader has shown.
    async fn load_current(&mut self) -> Result<(), StoreError> {
        let ViewLoadState::Pending { is_new_run } = self.load_state else { return Ok(()) };
        if is_new_run {
            self.run().clear_compat_view(self.epoch).await?;
        }
        let locations = self.run().user_locations(user_id(MAX_SHOWN_USERS)).await?;
        let end = locations.last_key_value().map_or(0, |(last, _)| *last);
        self.placements = vec![ShownPlacement::Absent; end as usize];
        for (id, location) in locations {
            // A foreign id 0 belongs to no user.
            let Some(number) = id.checked_sub(1) else { continue };
            self.placements[number as usize] = match location {
                Some(UserLocation { worker, running }) => {
                    ShownPlacement::OnWorker(UserPlacement { worker: self.worker_number(&worker), running })
                }
                None => ShownPlacement::UnknownWorker,
            };
        }
        self.load_state = ViewLoadState::Loaded;
        Ok(())
    }

    pub(crate) fn run(&self) -> C::Run {
        self.fleet.stores().run()
    }

    /// Whether the view shows its latest target completely.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.settled_target.is_some()
    }

    /// Moves users towards `input`, at most [`MAX_MOVES_PER_UPDATE`] of them.
    pub(crate) async fn update(&mut self, input: UserViewInput<'_>) -> Result<(), StoreError> {
        self.load_current().await?;
        self.write_level_point(&input).await?;
        let target = self.target(&input);
        if self.settled_target.as_ref() == Some(&target) {
            if self.last_full_write.elapsed() < REFRESH_INTERVAL {
                return Ok(());
            }
            self.placements.fill(ShownPlacement::UnknownWorker);
            self.last_full_write = Instant::now();
        }
        let (batches, complete) = plan_moves(&self.placements, &target, MAX_MOVES_PER_UPDATE);
        for batch in batches {
            for users in batch.users.chunks(MAX_USERS_PER_MOVE) {
                self.move_users(users, batch.from, batch.to).await?;
            }
        }
        let last = self.placements.iter().rposition(|shown| *shown != ShownPlacement::Absent).map_or(0, |at| at + 1);
        self.placements.truncate(last);
        self.settled_target = complete.then_some(target);
        Ok(())
    }

    async fn write_level_point(&mut self, input: &UserViewInput<'_>) -> Result<(), StoreError> {
        let point = (input.level, input.source);
        let not_due = match self.last_level_point {
            None => input.level == 0,
            Some((level, source)) => {
                level == input.level
                    || (source == input.source && self.last_level_point_at.elapsed() < LEVEL_POINT_INTERVAL)
            }
        };
        if not_due {
            return Ok(());
        }
        self.run().append_user_count(self.epoch, input.level, input.source).await?;
        (self.last_level_point, self.last_level_point_at) = (Some(point), Instant::now());
        Ok(())
    }

    fn target(&mut self, input: &UserViewInput<'_>) -> UserViewTarget {
        let mut present = vec![false; self.worker_names.len()];
        for worker in input.workers {
            let number = self.worker_number(&worker.id);
            present.resize(self.worker_names.len(), false);
            present[usize::from(number)] = true;
            if worker.takes_user_ids {
                self.takes_user_ids.insert(worker.id.clone());
            } else {
                self.takes_user_ids.remove(&worker.id);
            }
        }
        let mut place = |worker: &WorkerInfo| {
            let running = input.running && worker.ready == self.epoch && worker.done != self.epoch;
            UserPlacement { worker: self.worker_number(&worker.id), running }
        };
        let holders = share_holders(input.workers).into_iter().map(|holder| holder.map(&mut place)).collect();
        UserViewTarget { level: input.level.min(MAX_SHOWN_USERS), holders, present }
    }

    fn worker_number(&mut self, id: &str) -> u16 {
        let at = self.worker_names.iter().position(|name| name == id).unwrap_or_else(|| {
            self.worker_names.push(id.to_owned());
            self.worker_names.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    async fn move_users(
        &mut self,
        users: &[u64],
        from: ShownPlacement,
        to: Option<UserPlacement>,
    ) -> Result<(), StoreError> {
        let name = |place: UserPlacement| self.worker_names[usize::from(place.worker)].clone();
        // A vikhry worker starts a user when it gets the command, so it gets it at the start of the
        // load, and a stop command ends all its users.
        let commanded = |place: &UserPlacement| place.running || self.takes_user_ids.contains(&name(*place));
        let left = if let ShownPlacement::OnWorker(place) = from { Some(name(place)) } else { None };
        let joined = to.map(name);
        let running = to.is_some_and(|place| place.running);
        let from_place = if let ShownPlacement::OnWorker(place) = from { Some(place) } else { None };
        let commands = (from_place.filter(commanded).map(name), to.filter(commanded).map(name));
        let ids: Vec<u64> = users.iter().copied().map(user_id).collect();
        let moved = UserMove { users: &ids, from: left.as_deref(), to: joined.as_deref(), running };
        self.run().move_users(self.epoch, moved).await?;
        for user in users {
            let at = usize::try_from(*user).unwrap_or(usize::MAX);
            if at >= self.placements.len() {
                self.placements.resize(at + 1, ShownPlacement::Absent);
            }
            self.placements[at] = to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker);
        }
        if commands.0 != commands.1 {
            for (kind, worker) in [(CommandType::RemoveUser, commands.0), (CommandType::AddUser, commands.1)] {
                let Some(worker) = worker else { continue };
                let takes_user_ids = self.takes_user_ids.contains(&worker);
                let messages = user_commands(kind, self.epoch, &ids, takes_user_ids);
                if let Err(error) = self.fleet.publish_commands(&worker, &messages).await {
                    debug!(worker, %error, "the leader could not send a worker its users");
                }
            }
        }
        Ok(())
    }
}

/// The moves of at most `most` users towards `target`, and whether they reach it.
fn plan_moves(shown: &[ShownPlacement], target: &UserViewTarget, most: usize) -> (Vec<UserMoveBatch>, bool) {
    let mut batches: BTreeMap<(ShownPlacement, Option<UserPlacement>), Vec<u64>> = BTreeMap::new();
    let (mut count, mut complete) = (0, true);
    for user in 0..(shown.len() as u64).max(target.level) {
        let from = shown.get(user as usize).copied().unwrap_or(ShownPlacement::Absent);
        let to = target.placement(user, from);
        if from == to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker) {
            continue;
        }
        if count == most {
            complete = false;
            break;
        }
        count += 1;
        batches.entry((from, to)).or_default().push(user);
    }
    (batches.into_iter().map(|((from, to), users)| UserMoveBatch { from, to, users }).collect(), complete)
}

impl UserViewTarget {
    fn placement(&self, user: u64, from: ShownPlacement) -> Option<UserPlacement> {
        if user >= self.level {
            return None;
        }
        let holder = self.holders[(user % u64::from(SHARE_COUNT)) as usize];
        // A share without a holder is moving. Its users stay where they were shown, if that worker
        // is present.
        holder.or(match from {
            ShownPlacement::OnWorker(place) if self.present.get(usize::from(place.worker)) == Some(&true) => {
                Some(place)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(worker: u16) -> UserPlacement {
        UserPlacement { worker, running: true }
    }

    fn target(level: u64, holder: impl Fn(u32) -> Option<u16>, present: &[bool]) -> UserViewTarget {
        let holders = (0..SHARE_COUNT).map(|share| holder(share).map(at)).collect();
        UserViewTarget { level, holders, present: present.to_vec() }
    }

    /// Applies the planned moves. Returns how many users moved, and whether the target is reached.
    fn apply_moves(shown: &mut Vec<ShownPlacement>, target: &UserViewTarget, most: usize) -> (usize, bool) {
        let (batches, complete) = plan_moves(shown, target, most);
        let mut moved = 0;
        for batch in batches {
            for user in batch.users {
                shown.resize(shown.len().max(user as usize + 1), ShownPlacement::Absent);
                shown[user as usize] = batch.to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker);
                moved += 1;
            }
        }
        (moved, complete)
    }

    #[test]
    fn users_move_to_the_holders_of_their_shares_in_bounded_steps() {
        let (mut shown, two) = (Vec::new(), target(1000, |share| Some((share % 2) as u16), &[true, true]));
        assert_eq!(apply_moves(&mut shown, &two, 600), (600, false));
        assert_eq!(apply_moves(&mut shown, &two, 600), (400, true));
        assert_eq!(apply_moves(&mut shown, &two, 600), (0, true));
        assert_eq!(
            [shown[0], shown[1], shown[999]],
            [ShownPlacement::OnWorker(at(0)), ShownPlacement::OnWorker(at(1)), ShownPlacement::OnWorker(at(1))]
        );
    }

    #[test]
    fn only_users_of_moved_shares_move_and_users_above_the_level_are_removed() {
        let mut shown = vec![ShownPlacement::OnWorker(at(0)); 512];
        let moved = target(300, |share| Some(u16::from(share == 7)), &[true, true]);
        // Users 7 and 263 move, 212 users are removed.
        assert_eq!(apply_moves(&mut shown, &moved, usize::MAX), (2 + 212, true));
        assert_eq!(
            [shown[7], shown[263], shown[300]],
            [ShownPlacement::OnWorker(at(1)), ShownPlacement::OnWorker(at(1)), ShownPlacement::Absent]
        );
    }

    #[test]
    fn users_of_a_share_without_holder_stay_only_with_a_present_worker() {
        let mut shown =
            vec![ShownPlacement::OnWorker(at(0)), ShownPlacement::OnWorker(at(1)), ShownPlacement::UnknownWorker];
        assert_eq!(apply_moves(&mut shown, &target(3, |_| None, &[true, false]), 9), (2, true));
        assert_eq!(shown, [ShownPlacement::OnWorker(at(0)), ShownPlacement::Absent, ShownPlacement::Absent]);
    }
}

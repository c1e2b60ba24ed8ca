//! Shows the users of a closed run in the store, for those who look into it: which worker has which user follows from the shares that
//! workers report and from the level of the load. Decides nothing; every look brings the store nearer to what is, in batches.

use squall_coord::{CompatView, FleetStores, MAX_USERS_PER_MOVE, StoreError, UserLocation, UserMove};
use squall_model::{CommandType, SHARE_COUNT};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tracing::debug;

use super::{FleetClient, WorkerInfo, share_holders};

/// Most users that one look moves, so that the leader's next look is not held up.
const MAX_MOVES_PER_UPDATE: usize = 20_000;

/// Most users that are shown at all.
const MAX_SHOWN_USERS: u64 = 1_000_000;

/// Between two points of the timeline, unless what makes the number change is another.
const LEVEL_POINT_INTERVAL: Duration = Duration::from_secs(1);

/// Everything is written again after this, because what is shown expires after a day.
const REFRESH_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// What there is to show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserViewInput<'a> {
    /// How many users there are; their numbers are those below it.
    pub(crate) level: u64,
    /// Whether load is being made.
    pub(crate) running: bool,
    /// Why the number is what it is.
    pub(crate) source: &'static str,
    pub(crate) workers: &'a [WorkerInfo],
}

/// The users of one run as they are shown.
pub(crate) struct RedisUserView<C: FleetStores> {
    fleet: FleetClient<C>,
    epoch: u64,
    load_state: ViewLoadState,
    /// Workers by the number that places name.
    worker_names: Vec<String>,
    /// By user; those beyond are nowhere.
    placements: Vec<ShownPlacement>,
    /// What has been shown completely.
    settled_target: Option<UserViewTarget>,
    last_level_point: Option<(u64, &'static str)>,
    last_level_point_at: Instant,
    last_full_write: Instant,
}

/// Whether it is known what was shown before.
#[derive(Debug, Clone, Copy)]
enum ViewLoadState {
    Pending { anew: bool },
    Loaded,
}

/// Where a user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UserPlacement {
    worker: u16,
    running: bool,
}

/// Where a user is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ShownPlacement {
    Absent,
    /// Nobody knows with which worker: its hash has gone.
    UnknownWorker,
    OnWorker(UserPlacement),
}

/// Where users should be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UserViewTarget {
    level: u64,
    /// By share.
    holders: Vec<Option<UserPlacement>>,
    /// Workers that are there, by their number.
    present: Vec<bool>,
}

/// Users that change places together.
#[derive(Debug, PartialEq, Eq)]
struct UserMoveBatch {
    from: ShownPlacement,
    to: Option<UserPlacement>,
    users: Vec<u64>,
}

impl<C: FleetStores> RedisUserView<C> {
    /// `anew`: the run has just begun, so that what is shown of another is taken down.
    pub(crate) fn new(fleet: FleetClient<C>, epoch: u64, anew: bool) -> RedisUserView<C> {
        RedisUserView {
            fleet,
            epoch,
            load_state: ViewLoadState::Pending { anew },
            worker_names: Vec::new(),
            placements: Vec::new(),
            settled_target: None,
            last_level_point: None,
            last_level_point_at: Instant::now(),
            last_full_write: Instant::now(),
        }
    }

    /// Learns what was shown before.
    async fn load_current(&mut self) -> Result<(), StoreError> {
        let ViewLoadState::Pending { anew } = self.load_state else { return Ok(()) };
        if anew {
            self.run().clear_compat_view(self.epoch).await?;
        }
        let earlier = self.run().user_locations(MAX_SHOWN_USERS).await?;
        let end = earlier.last_key_value().map_or(0, |(last, _)| last + 1);
        self.placements = vec![ShownPlacement::Absent; end as usize];
        for (user, place) in earlier {
            self.placements[user as usize] = match place {
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
        self.fleet.cell().run()
    }

    /// Whether everything is shown as it is.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.settled_target.is_some()
    }

    /// Brings what is shown nearer to `scene`.
    pub(crate) async fn update(&mut self, scene: UserViewInput<'_>) -> Result<(), StoreError> {
        self.load_current().await?;
        self.write_level_point(&scene).await?;
        let wanted = self.target(&scene);
        if self.settled_target.as_ref() == Some(&wanted) {
            if self.last_full_write.elapsed() < REFRESH_INTERVAL {
                return Ok(());
            }
            self.placements.fill(ShownPlacement::UnknownWorker);
            self.last_full_write = Instant::now();
        }
        let (batches, whole) = plan_moves(&self.placements, &wanted, MAX_MOVES_PER_UPDATE);
        for batch in batches {
            for users in batch.users.chunks(MAX_USERS_PER_MOVE) {
                self.move_users(users, batch.from, batch.to).await?;
            }
        }
        let last = self.placements.iter().rposition(|shown| *shown != ShownPlacement::Absent).map_or(0, |at| at + 1);
        self.placements.truncate(last);
        self.settled_target = whole.then_some(wanted);
        Ok(())
    }

    async fn write_level_point(&mut self, scene: &UserViewInput<'_>) -> Result<(), StoreError> {
        let now = (scene.level, scene.source);
        let waits = match self.last_level_point {
            None => scene.level == 0,
            Some((level, source)) => {
                level == scene.level
                    || (source == scene.source && self.last_level_point_at.elapsed() < LEVEL_POINT_INTERVAL)
            }
        };
        if waits {
            return Ok(());
        }
        self.run().append_user_count(self.epoch, scene.level, scene.source).await?;
        (self.last_level_point, self.last_level_point_at) = (Some(now), Instant::now());
        Ok(())
    }

    fn target(&mut self, scene: &UserViewInput<'_>) -> UserViewTarget {
        let mut present = vec![false; self.worker_names.len()];
        for worker in scene.workers {
            let number = self.worker_number(&worker.id);
            present.resize(self.worker_names.len(), false);
            present[usize::from(number)] = true;
        }
        let mut place = |worker: &WorkerInfo| {
            let running = scene.running && worker.ready == self.epoch && worker.done != self.epoch;
            UserPlacement { worker: self.worker_number(&worker.id), running }
        };
        let holders = share_holders(scene.workers).into_iter().map(|holder| holder.map(&mut place)).collect();
        UserViewTarget { level: scene.level.min(MAX_SHOWN_USERS), holders, present }
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
        let left = if let ShownPlacement::OnWorker(place) = from { Some(name(place)) } else { None };
        let joined = to.map(name);
        let running = to.is_some_and(|place| place.running);
        let moved = UserMove { users, from: left.as_deref(), to: joined.as_deref(), running };
        self.run().move_users(self.epoch, moved).await?;
        for user in users {
            let at = usize::try_from(*user).unwrap_or(usize::MAX);
            if at >= self.placements.len() {
                self.placements.resize(at + 1, ShownPlacement::Absent);
            }
            self.placements[at] = to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker);
        }
        if left != joined {
            let told = [(CommandType::RemoveUser, left), (CommandType::AddUser, joined)];
            for (kind, worker) in told {
                let Some(worker) = worker else { continue };
                if let Err(error) = self.fleet.publish_user_move(kind, self.epoch, &worker, users).await {
                    debug!(worker, %error, "users were not announced");
                }
            }
        }
        Ok(())
    }
}

/// What is to be moved, at most `most` users, and whether that is all.
fn plan_moves(shown: &[ShownPlacement], wanted: &UserViewTarget, most: usize) -> (Vec<UserMoveBatch>, bool) {
    let mut batches: BTreeMap<(ShownPlacement, Option<UserPlacement>), Vec<u64>> = BTreeMap::new();
    let (mut count, mut whole) = (0, true);
    for user in 0..(shown.len() as u64).max(wanted.level) {
        let from = shown.get(user as usize).copied().unwrap_or(ShownPlacement::Absent);
        let to = wanted.placement(user, from);
        if from == to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker) {
            continue;
        }
        if count == most {
            whole = false;
            break;
        }
        count += 1;
        batches.entry((from, to)).or_default().push(user);
    }
    (batches.into_iter().map(|((from, to), users)| UserMoveBatch { from, to, users }).collect(), whole)
}

impl UserViewTarget {
    fn placement(&self, user: u64, from: ShownPlacement) -> Option<UserPlacement> {
        if user >= self.level {
            return None;
        }
        let holder = self.holders[(user % u64::from(SHARE_COUNT)) as usize];
        // A share that nobody reports is on its way; its users are shown where they were, if that worker is there.
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

    fn wanted(level: u64, holder: impl Fn(u32) -> Option<u16>, present: &[bool]) -> UserViewTarget {
        let holders = (0..SHARE_COUNT).map(|share| holder(share).map(at)).collect();
        UserViewTarget { level, holders, present: present.to_vec() }
    }

    /// Does what is planned.
    fn follow(shown: &mut Vec<ShownPlacement>, wanted: &UserViewTarget, most: usize) -> (usize, bool) {
        let (batches, whole) = plan_moves(shown, wanted, most);
        let mut moved = 0;
        for batch in batches {
            for user in batch.users {
                shown.resize(shown.len().max(user as usize + 1), ShownPlacement::Absent);
                shown[user as usize] = batch.to.map_or(ShownPlacement::Absent, ShownPlacement::OnWorker);
                moved += 1;
            }
        }
        (moved, whole)
    }

    #[test]
    fn users_go_in_turn_to_the_holders_of_their_shares_in_bounded_steps() {
        let (mut shown, two) = (Vec::new(), wanted(1000, |share| Some((share % 2) as u16), &[true, true]));
        assert_eq!(follow(&mut shown, &two, 600), (600, false));
        assert_eq!(follow(&mut shown, &two, 600), (400, true));
        assert_eq!(follow(&mut shown, &two, 600), (0, true));
        assert_eq!(
            [shown[0], shown[1], shown[999]],
            [ShownPlacement::OnWorker(at(0)), ShownPlacement::OnWorker(at(1)), ShownPlacement::OnWorker(at(1))]
        );
    }

    #[test]
    fn only_users_of_moved_shares_move_and_those_above_the_level_go() {
        let mut shown = vec![ShownPlacement::OnWorker(at(0)); 512];
        let moved = wanted(300, |share| Some(u16::from(share == 7)), &[true, true]);
        // 7 and 263 move, 212 go.
        assert_eq!(follow(&mut shown, &moved, usize::MAX), (2 + 212, true));
        assert_eq!(
            [shown[7], shown[263], shown[300]],
            [ShownPlacement::OnWorker(at(1)), ShownPlacement::OnWorker(at(1)), ShownPlacement::Absent]
        );
    }

    #[test]
    fn users_of_a_share_without_a_holder_stay_only_with_a_worker_that_is_there() {
        let mut shown =
            vec![ShownPlacement::OnWorker(at(0)), ShownPlacement::OnWorker(at(1)), ShownPlacement::UnknownWorker];
        assert_eq!(follow(&mut shown, &wanted(3, |_| None, &[true, false]), 9), (2, true));
        assert_eq!(shown, [ShownPlacement::OnWorker(at(0)), ShownPlacement::Absent, ShownPlacement::Absent]);
    }
}

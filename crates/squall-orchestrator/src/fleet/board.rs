//! Shows the users of a closed run in the store, for those who look into it: which worker has which user follows from the shares that
//! workers report and from the level of the load. Decides nothing; every look brings the store nearer to what is, in batches.

use squall_coord::{FleetStores, CompatView, StoreError, MAX_USERS_PER_MOVE, UserMove};
use squall_model::{CommandType, SHARE_COUNT};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tracing::debug;

use super::{Fleet, WorkerInfo, holders};

/// Most users that one look moves, so that the leader's next look is not held up.
const PER_LOOK: usize = 20_000;

/// Most users that are shown at all.
const MOST: u64 = 1_000_000;

/// Between two points of the timeline, unless what makes the number change is another.
const BETWEEN_POINTS: Duration = Duration::from_secs(1);

/// Everything is written again after this, because what is shown expires after a day.
const REFRESH: Duration = Duration::from_secs(6 * 3600);

/// What there is to show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// How many users there are; their numbers are those below it.
    pub(crate) level: u64,
    /// Whether load is being made.
    pub(crate) running: bool,
    /// Why the number is what it is.
    pub(crate) source: &'static str,
    pub(crate) workers: &'a [WorkerInfo],
}

/// The users of one run as they are shown.
pub(crate) struct Board<C: FleetStores> {
    fleet: Fleet<C>,
    epoch: u64,
    begun: Begun,
    /// Workers by the number that places name.
    names: Vec<String>,
    /// By user; those beyond are nowhere.
    shown: Vec<Shown>,
    /// What has been shown completely.
    settled: Option<Wanted>,
    point: Option<(u64, &'static str)>,
    pointed: Instant,
    written: Instant,
}

/// Whether it is known what was shown before.
#[derive(Debug, Clone, Copy)]
enum Begun {
    Not { anew: bool },
    Yes,
}

/// Where a user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    worker: u16,
    running: bool,
}

/// Where a user is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nowhere,
    /// Nobody knows with which worker: its hash has gone.
    Stray,
    At(Place),
}

/// Where users should be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    level: u64,
    /// By share.
    holders: Vec<Option<Place>>,
    /// Workers that are there, by their number.
    present: Vec<bool>,
}

/// Users that change places together.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    from: Shown,
    to: Option<Place>,
    users: Vec<u64>,
}

impl<C: FleetStores> Board<C> {
    /// `anew`: the run has just begun, so that what is shown of another is taken down.
    pub(crate) fn new(fleet: Fleet<C>, epoch: u64, anew: bool) -> Board<C> {
        Board {
            fleet,
            epoch,
            begun: Begun::Not { anew },
            names: Vec::new(),
            shown: Vec::new(),
            settled: None,
            point: None,
            pointed: Instant::now(),
            written: Instant::now(),
        }
    }

    /// Learns what was shown before.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let Begun::Not { anew } = self.begun else { return Ok(()) };
        if anew {
            self.run().clear_compat_view(self.epoch).await?;
        }
        let earlier = self.run().user_locations(MOST).await?;
        let end = earlier.last_key_value().map_or(0, |(last, _)| last + 1);
        self.shown = vec![Shown::Nowhere; end as usize];
        for (user, place) in earlier {
            self.shown[user as usize] = match place {
                Some((worker, running)) => Shown::At(Place { worker: self.number_of(&worker), running }),
                None => Shown::Stray,
            };
        }
        self.begun = Begun::Yes;
        Ok(())
    }

    pub(crate) fn run(&self) -> C::Run {
        self.fleet.cell().run()
    }

    /// Whether everything is shown as it is.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Brings what is shown nearer to `scene`.
    pub(crate) async fn show(&mut self, scene: Scene<'_>) -> Result<(), StoreError> {
        self.begin().await?;
        self.show_point(&scene).await?;
        let wanted = self.wanted(&scene);
        if self.settled.as_ref() == Some(&wanted) {
            if self.written.elapsed() < REFRESH {
                return Ok(());
            }
            self.shown.fill(Shown::Stray);
            self.written = Instant::now();
        }
        let (batches, whole) = plan(&self.shown, &wanted, PER_LOOK);
        for batch in batches {
            for users in batch.users.chunks(MAX_USERS_PER_MOVE) {
                self.move_users(users, batch.from, batch.to).await?;
            }
        }
        let last = self.shown.iter().rposition(|shown| *shown != Shown::Nowhere).map_or(0, |at| at + 1);
        self.shown.truncate(last);
        self.settled = whole.then_some(wanted);
        Ok(())
    }

    async fn show_point(&mut self, scene: &Scene<'_>) -> Result<(), StoreError> {
        let now = (scene.level, scene.source);
        let waits = match self.point {
            None => scene.level == 0,
            Some((level, source)) => {
                level == scene.level || (source == scene.source && self.pointed.elapsed() < BETWEEN_POINTS)
            }
        };
        if waits {
            return Ok(());
        }
        self.run().append_user_count(self.epoch, scene.level, scene.source).await?;
        (self.point, self.pointed) = (Some(now), Instant::now());
        Ok(())
    }

    fn wanted(&mut self, scene: &Scene<'_>) -> Wanted {
        let mut present = vec![false; self.names.len()];
        for worker in scene.workers {
            let number = self.number_of(&worker.id);
            present.resize(self.names.len(), false);
            present[usize::from(number)] = true;
        }
        let mut place = |worker: &WorkerInfo| {
            let running = scene.running && worker.ready == self.epoch && worker.done != self.epoch;
            Place { worker: self.number_of(&worker.id), running }
        };
        let holders = holders(scene.workers).into_iter().map(|holder| holder.map(&mut place)).collect();
        Wanted { level: scene.level.min(MOST), holders, present }
    }

    fn number_of(&mut self, id: &str) -> u16 {
        let at = self.names.iter().position(|name| name == id).unwrap_or_else(|| {
            self.names.push(id.to_owned());
            self.names.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    async fn move_users(&mut self, users: &[u64], from: Shown, to: Option<Place>) -> Result<(), StoreError> {
        let name = |place: Place| self.names[usize::from(place.worker)].clone();
        let left = if let Shown::At(place) = from { Some(name(place)) } else { None };
        let joined = to.map(name);
        let running = to.is_some_and(|place| place.running);
        let moved = UserMove { users, from: left.as_deref(), to: joined.as_deref(), running };
        self.run().move_users(self.epoch, moved).await?;
        for user in users {
            let at = usize::try_from(*user).unwrap_or(usize::MAX);
            if at >= self.shown.len() {
                self.shown.resize(at + 1, Shown::Nowhere);
            }
            self.shown[at] = to.map_or(Shown::Nowhere, Shown::At);
        }
        if left != joined {
            let told = [(CommandType::RemoveUser, left), (CommandType::AddUser, joined)];
            for (kind, worker) in told {
                let Some(worker) = worker else { continue };
                if let Err(error) = self.fleet.tell_users(kind, self.epoch, &worker, users).await {
                    debug!(worker, %error, "users were not announced");
                }
            }
        }
        Ok(())
    }
}

/// What is to be moved, at most `most` users, and whether that is all.
fn plan(shown: &[Shown], wanted: &Wanted, most: usize) -> (Vec<Batch>, bool) {
    let mut batches: BTreeMap<(Shown, Option<Place>), Vec<u64>> = BTreeMap::new();
    let (mut count, mut whole) = (0, true);
    for user in 0..(shown.len() as u64).max(wanted.level) {
        let from = shown.get(user as usize).copied().unwrap_or(Shown::Nowhere);
        let to = wanted.place(user, from);
        if from == to.map_or(Shown::Nowhere, Shown::At) {
            continue;
        }
        if count == most {
            whole = false;
            break;
        }
        count += 1;
        batches.entry((from, to)).or_default().push(user);
    }
    (batches.into_iter().map(|((from, to), users)| Batch { from, to, users }).collect(), whole)
}

impl Wanted {
    fn place(&self, user: u64, from: Shown) -> Option<Place> {
        if user >= self.level {
            return None;
        }
        let holder = self.holders[(user % u64::from(SHARE_COUNT)) as usize];
        // A share that nobody reports is on its way; its users are shown where they were, if that worker is there.
        holder.or(match from {
            Shown::At(place) if self.present.get(usize::from(place.worker)) == Some(&true) => Some(place),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(worker: u16) -> Place {
        Place { worker, running: true }
    }

    fn wanted(level: u64, holder: impl Fn(u32) -> Option<u16>, present: &[bool]) -> Wanted {
        let holders = (0..SHARE_COUNT).map(|share| holder(share).map(at)).collect();
        Wanted { level, holders, present: present.to_vec() }
    }

    /// Does what is planned.
    fn follow(shown: &mut Vec<Shown>, wanted: &Wanted, most: usize) -> (usize, bool) {
        let (batches, whole) = plan(shown, wanted, most);
        let mut moved = 0;
        for batch in batches {
            for user in batch.users {
                shown.resize(shown.len().max(user as usize + 1), Shown::Nowhere);
                shown[user as usize] = batch.to.map_or(Shown::Nowhere, Shown::At);
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
        assert_eq!([shown[0], shown[1], shown[999]], [Shown::At(at(0)), Shown::At(at(1)), Shown::At(at(1))]);
    }

    #[test]
    fn only_users_of_moved_shares_move_and_those_above_the_level_go() {
        let mut shown = vec![Shown::At(at(0)); 512];
        let moved = wanted(300, |share| Some(u16::from(share == 7)), &[true, true]);
        // 7 and 263 move, 212 go.
        assert_eq!(follow(&mut shown, &moved, usize::MAX), (2 + 212, true));
        assert_eq!([shown[7], shown[263], shown[300]], [Shown::At(at(1)), Shown::At(at(1)), Shown::Nowhere]);
    }

    #[test]
    fn users_of_a_share_without_a_holder_stay_only_with_a_worker_that_is_there() {
        let mut shown = vec![Shown::At(at(0)), Shown::At(at(1)), Shown::Stray];
        assert_eq!(follow(&mut shown, &wanted(3, |_| None, &[true, false]), 9), (2, true));
        assert_eq!(shown, [Shown::At(at(0)), Shown::Nowhere, Shown::Nowhere]);
    }
}

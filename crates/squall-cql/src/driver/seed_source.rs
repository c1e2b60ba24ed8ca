//! The seeds of a run: all users take the numbers of a sequence from one counter, on a fleet from one
//! counter of all workers, and each draws from its own copy of a distribution. It generates no rows.

use crate::{
    InsertSettings, Population, PopulationSettings, Sampler, SeedDistribution, SeedMultiplier, SeedSequence,
    WrittenSeeds, number_before,
};
use squall_engine::{NumberQuota, SharedCounter};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// What all users of a run share.
#[derive(Debug)]
pub(super) struct SharedSeeds {
    population: Population,
    multiplier: SeedMultiplier,
    numbers: SequenceNumbers,
    /// Only used with `read-lookback`.
    written: Mutex<WrittenSeeds>,
    /// The numbers that this worker of a fleet has used; only with `read-lookback`.
    used: Mutex<UsedNumbers>,
}

/// The numbers of the sequence that one worker of a fleet has used, in this order. Its reads look back at
/// them, because the worker does not know what the others have written.
#[derive(Debug, Default)]
struct UsedNumbers {
    /// How many were forgotten.
    forgotten: u64,
    latest: VecDeque<u64>,
}

/// 8 MiB. A read that looks back further takes the oldest one.
const MAX_USED_NUMBERS: usize = 1 << 20;

impl UsedNumbers {
    /// Returns the position of `number`.
    fn push(&mut self, number: u64) -> u64 {
        if self.latest.len() == MAX_USED_NUMBERS {
            self.latest.pop_front();
            self.forgotten += 1;
        }
        self.latest.push_back(number);
        self.forgotten + self.latest.len() as u64 - 1
    }

    /// The number at `position`, or the nearest that is known; 0 if there is none.
    fn get(&self, position: u64) -> u64 {
        let position = usize::try_from(position.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        self.latest.get(position).or(self.latest.back()).copied().unwrap_or_default()
    }
}

/// Where the numbers of a sequence come from. Each number is used once.
#[derive(Debug)]
enum SequenceNumbers {
    /// The next number, for a run in one process.
    Process(AtomicU64),
    Fleet(NumberQuota),
}

/// The name of the counter that the workers of a fleet share.
const FLEET_COUNTER: &str = "cql seeds";
/// The numbers of a fleet's sequence if the run has no number of operations; a quota has no more.
pub(super) const MAX_FLEET_NUMBERS: u64 = (1 << 44) - 1;

/// One user's access to the seeds.
#[derive(Debug)]
pub(super) struct UserSeeds {
    shared: Arc<SharedSeeds>,
    kind: SeedKind,
    /// The numbers that the fleet has granted for the next seeds.
    reserved: VecDeque<u64>,
}

#[derive(Debug)]
enum SeedKind {
    Sequence { sequence: SeedSequence, lookback: Option<Sampler> },
    Drawn(SeedDistribution),
}

/// The seed of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TakenSeed {
    pub(super) seed: i64,
    /// Its number in the sequence, if reads look back at what was written. On a fleet, its position among the
    /// numbers that this worker has used.
    number: Option<u64>,
}

impl SharedSeeds {
    pub(super) fn new(population: &PopulationSettings, insert: &InsertSettings) -> SharedSeeds {
        SharedSeeds {
            population: population.seeds.clone(),
            multiplier: SeedMultiplier::new(population.data_set, &insert.revisit),
            numbers: SequenceNumbers::Process(AtomicU64::new(0)),
            written: Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// The seeds of one worker of a fleet that makes `operations` in all, and the counter that it
    /// shares with the other workers.
    pub(super) fn of_fleet(
        population: &PopulationSettings,
        insert: &InsertSettings,
        operations: Option<u64>,
    ) -> (SharedSeeds, SharedCounter) {
        let (quota, refill) = NumberQuota::with_refill();
        let limit = operations.unwrap_or(MAX_FLEET_NUMBERS).min(MAX_FLEET_NUMBERS);
        let seeds = SharedSeeds { numbers: SequenceNumbers::Fleet(quota), ..SharedSeeds::new(population, insert) };
        (seeds, SharedCounter { name: FLEET_COUNTER.to_owned(), limit, refill })
    }
}

impl UserSeeds {
    pub(super) fn new(shared: Arc<SharedSeeds>) -> UserSeeds {
        let kind = match &shared.population {
            Population::Sequence { sequence, read_lookback } => {
                SeedKind::Sequence { sequence: *sequence, lookback: read_lookback.clone().map(Sampler::new) }
            }
            Population::Drawn(distribution) => SeedKind::Drawn(SeedDistribution::new(distribution.clone())),
        };
        UserSeeds { shared, kind, reserved: VecDeque::new() }
    }

    /// Waits for the numbers of the next seeds, if the workers of a fleet share the sequence.
    pub(super) async fn reserve(&mut self, count: u64) {
        let (SequenceNumbers::Fleet(quota), SeedKind::Sequence { .. }) = (&self.shared.numbers, &self.kind) else {
            return;
        };
        while (self.reserved.len() as u64) < count {
            match quota.acquire().await {
                Some(number) => self.reserved.push_back(number),
                None => return,
            }
        }
    }

    /// The seed of the next operation; `None` when a sequence that does not wrap has ended, or when the
    /// fleet has granted no number.
    pub(super) fn take(&mut self, writes: bool) -> Option<TakenSeed> {
        let (seed, number) = match &mut self.kind {
            SeedKind::Drawn(distribution) => (distribution.draw(), None),
            SeedKind::Sequence { sequence, lookback: Some(distance) } if !writes => {
                (sequence.wrapped_seed(self.shared.number_before(distance.draw())), None)
            }
            SeedKind::Sequence { sequence, lookback } => {
                let number = match &self.shared.numbers {
                    SequenceNumbers::Process(next) => next.fetch_add(1, Ordering::Relaxed),
                    SequenceNumbers::Fleet(_) => self.reserved.pop_front()?,
                };
                let seed = sequence.seed(number)?;
                (seed, lookback.is_some().then(|| self.shared.note_used(number)))
            }
        };
        Some(TakenSeed { seed: self.shared.multiplier.apply(seed), number })
    }

    /// Notes that the row of a seed is written, or that it will never be: reads that look back would
    /// wait for a gap for ever.
    pub(super) fn finish(&self, seed: TakenSeed) {
        if let Some(number) = seed.number {
            lock(&self.shared.written).mark(number);
        }
    }
}

impl SharedSeeds {
    /// Notes that an operation uses this number of the sequence, and returns under which number it is marked
    /// as written.
    fn note_used(&self, number: u64) -> u64 {
        match &self.numbers {
            SequenceNumbers::Process(_) => number,
            SequenceNumbers::Fleet(_) => lock(&self.used).push(number),
        }
    }

    /// The number of the sequence that a read takes which looks back this far.
    fn number_before(&self, distance: i64) -> u64 {
        let written = lock(&self.written).without_gap();
        let before = number_before(written, distance);
        match &self.numbers {
            // The first number that this worker has used may not be written yet.
            SequenceNumbers::Fleet(_) if written > 0 => lock(&self.used).get(before),
            SequenceNumbers::Fleet(_) | SequenceNumbers::Process(_) => before,
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqlCommand, parse_command_line};

    fn seeds(words: &[&str]) -> Arc<SharedSeeds> {
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(words) else { panic!("{words:?}") };
        Arc::new(SharedSeeds::new(&settings.population, &settings.insert))
    }

    #[test]
    fn users_share_one_sequence() {
        let shared = seeds(&["write", "n=10", "-pop", "seq=5..7", "no-wrap"]);
        let (mut one, mut two) = (UserSeeds::new(shared.clone()), UserSeeds::new(shared));
        let taken = [one.take(true), two.take(true), one.take(true), two.take(true)];
        assert_eq!(taken.map(|seed| seed.map(|seed| seed.seed)), [Some(5), Some(6), Some(7), None]);
    }

    #[test]
    fn reads_that_look_back_take_written_seeds() {
        let shared = seeds(&["mixed", "n=10", "-pop", "seq=1..100", "read-lookback=fixed(1)"]);
        let mut user = UserSeeds::new(shared);
        assert_eq!(user.take(false).unwrap().seed, 1);
        let written = user.take(true).unwrap();
        user.take(true).unwrap();
        assert_eq!(user.take(false).unwrap().seed, 1);
        user.finish(written);
        assert_eq!((written.seed, user.take(false).unwrap().seed), (1, 1));
    }

    #[tokio::test]
    async fn reads_of_a_worker_look_back_at_its_own_writes() {
        let words = ["mixed", "n=10", "-pop", "seq=1..100", "read-lookback=fixed(2)"];
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(&words) else { panic!("the words are valid") };
        let (seeds, counter) = SharedSeeds::of_fleet(&settings.population, &settings.insert, Some(10));
        // Another worker has the rest.
        counter.refill.add_block(2..4);
        counter.refill.add_block(7..8);
        let mut user = UserSeeds::new(Arc::new(seeds));
        for (expected, looked_back) in [(3, 3), (4, 3), (8, 4)] {
            user.reserve(1).await;
            let written = user.take(true).unwrap();
            if expected == 3 {
                assert_eq!(user.take(false).unwrap().seed, 1, "3 is not written yet");
            }
            user.finish(written);
            assert_eq!((written.seed, user.take(false).unwrap().seed), (expected, looked_back));
        }
    }

    #[test]
    fn a_worker_forgets_its_oldest_numbers() {
        let mut used = UsedNumbers::default();
        assert_eq!(used.get(0), 0);
        let last = (0..=MAX_USED_NUMBERS as u64).map(|number| used.push(number * 2)).last();
        assert_eq!(last, Some(MAX_USED_NUMBERS as u64));
        assert_eq!((used.get(0), used.get(5), used.get(u64::MAX)), (2, 10, 2 * MAX_USED_NUMBERS as u64));
    }

    #[tokio::test]
    async fn workers_of_a_fleet_take_the_numbers_that_they_are_given() {
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(&["write", "n=4", "-pop", "seq=11..20"]) else {
            panic!("the words are valid")
        };
        let (seeds, counter) = SharedSeeds::of_fleet(&settings.population, &settings.insert, Some(4));
        assert_eq!(counter.limit, 4);
        counter.refill.add_block(2..4);
        counter.refill.close();
        let mut user = UserSeeds::new(Arc::new(seeds));
        let mut taken = Vec::new();
        for _ in 0..3 {
            user.reserve(1).await;
            taken.push(user.take(true).map(|seed| seed.seed));
        }
        assert_eq!(taken, [Some(13), Some(14), None]);
    }
}

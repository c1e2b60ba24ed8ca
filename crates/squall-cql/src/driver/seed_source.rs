//! The seeds of a run: all users take the numbers of a sequence from one counter, on a fleet from one
//! counter of all workers, and each draws from its own copy of a distribution. It generates no rows.

use crate::{
    InsertSettings, Population, PopulationSettings, Sampler, SeedDistribution, SeedMultiplier, SeedSequence,
    WrittenSeeds,
};
use squall_engine::{NumberQuota, SharedCounter};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
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
const MAX_FLEET_NUMBERS: u64 = (1 << 44) - 1;

/// One user's access to the seeds.
#[derive(Debug)]
pub(super) struct UserSeeds {
    shared: Arc<SharedSeeds>,
    kind: SeedKind,
    /// The numbers that the fleet has granted for the next seeds.
    reserved: VecDeque<u64>,
    /// Whether drawn seeds need a number too: the numbers of a fleet then count partitions.
    counts_partitions: bool,
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
    /// Its number in the sequence, if reads look back at what was written.
    number: Option<u64>,
}

impl SharedSeeds {
    pub(super) fn new(population: &PopulationSettings, insert: &InsertSettings) -> SharedSeeds {
        SharedSeeds {
            population: population.seeds.clone(),
            multiplier: SeedMultiplier::new(population.data_set, &insert.revisit),
            numbers: SequenceNumbers::Process(AtomicU64::new(0)),
            written: Mutex::default(),
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
        UserSeeds { shared, kind, reserved: VecDeque::new(), counts_partitions: false }
    }

    /// Waits for the number of the next seed, if the workers of a fleet share the sequence.
    pub(super) async fn reserve(&mut self) {
        if matches!(self.kind, SeedKind::Sequence { .. }) {
            self.reserve_numbers(1).await;
        }
    }

    /// Waits for the numbers of the partitions of the next operation, if the workers of a fleet share them.
    /// One operation may use several partitions, and `n=` counts partitions.
    pub(super) async fn reserve_partitions(&mut self, count: u64) {
        self.counts_partitions = matches!(self.shared.numbers, SequenceNumbers::Fleet(_));
        self.reserve_numbers(count).await;
    }

    async fn reserve_numbers(&mut self, count: u64) {
        let SequenceNumbers::Fleet(quota) = &self.shared.numbers else { return };
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
            SeedKind::Drawn(distribution) => {
                if self.counts_partitions {
                    self.reserved.pop_front()?;
                }
                (distribution.draw(), None)
            }
            SeedKind::Sequence { sequence, lookback: Some(distance) } if !writes => {
                let written = self.shared.written.lock().unwrap_or_else(PoisonError::into_inner).without_gap();
                (sequence.seed_before(written, distance.draw()), None)
            }
            SeedKind::Sequence { sequence, lookback } => {
                let number = match &self.shared.numbers {
                    SequenceNumbers::Process(next) => next.fetch_add(1, Ordering::Relaxed),
                    SequenceNumbers::Fleet(_) => self.reserved.pop_front()?,
                };
                (sequence.seed(number)?, lookback.is_some().then_some(number))
            }
        };
        Some(TakenSeed { seed: self.shared.multiplier.apply(seed), number })
    }

    /// Notes that the row of a seed is written, or that it will never be: reads that look back would
    /// wait for a gap for ever.
    pub(super) fn finish(&self, seed: TakenSeed) {
        if let Some(number) = seed.number {
            self.shared.written.lock().unwrap_or_else(PoisonError::into_inner).mark(number);
        }
    }
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
            user.reserve().await;
            taken.push(user.take(true).map(|seed| seed.seed));
        }
        assert_eq!(taken, [Some(13), Some(14), None]);
    }
}

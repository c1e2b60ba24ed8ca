//! The start times of an open model as a pure sequence. Start `k` is due when the area under the
//! profile reaches `k`, so no start can be dropped or repeated, and the shares of a run never
//! overlap. It does not read the clock.

use fastrand::Rng;
use squall_model::{Arrivals, Profile, ShareSet};
use std::time::Duration;

/// One start of an open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledStart {
    /// Unique within the run.
    pub number: u64,
    /// The time from the start of the run.
    pub at: Duration,
}

/// All starts of some shares of a run, in order.
pub struct Schedule {
    profile: Profile,
    shares: ShareSet,
    /// The starts of the whole run, if it has an iteration limit.
    limit: Option<u64>,
    /// Right after the last start that was taken.
    consumed: StartCursor,
    /// Right after `next`.
    lookahead: StartCursor,
    next: Option<ScheduledStart>,
}

/// A position in the starts of the whole run.
#[derive(Clone)]
struct StartCursor {
    /// The number of the next start.
    number: u64,
    gaps: ArrivalGaps,
}

#[derive(Clone)]
enum ArrivalGaps {
    Even,
    /// Every holder draws the gaps of the whole run and keeps its own starts. Together the shares
    /// are one Poisson process whose arrivals depend only on the seed. `area` is the position of
    /// the last arrival drawn.
    Poisson {
        random: Rng,
        area: f64,
    },
}

impl Schedule {
    pub fn new(profile: Profile, arrivals: Arrivals, shares: ShareSet, limit: Option<u64>, seed: u64) -> Schedule {
        let cursor = StartCursor::new(arrivals, seed);
        let mut schedule = Schedule { profile, shares, limit, consumed: cursor.clone(), lookahead: cursor, next: None };
        schedule.look_ahead();
        schedule
    }

    /// How many starts of a whole run are due before `at`. It equals the number of starts that all
    /// shares make.
    pub fn due_before(profile: &Profile, arrivals: Arrivals, limit: Option<u64>, seed: u64, at: Duration) -> u64 {
        let mut cursor = StartCursor::new(arrivals, seed);
        cursor.skip_before(profile, at);
        limit.map_or(cursor.number, |limit| cursor.number.min(limit))
    }

    /// The next start. It stays the same until [`Iterator::next`] takes it.
    pub fn peek(&self) -> Option<ScheduledStart> {
        self.next
    }

    /// Changes the shares and the profile for all starts due at `from` or later. The profile must
    /// be the same up to `from`, see [`Profile::replace_tail`].
    pub fn change(&mut self, shares: ShareSet, profile: Profile, from: Duration) {
        (self.shares, self.profile) = (shares, profile);
        self.consumed.skip_before(&self.profile, from);
        self.lookahead = self.consumed.clone();
        self.look_ahead();
    }

    /// The end of the load of the whole run. Rates are calculated up to this time.
    pub fn end(&self) -> Duration {
        let limited = self.limit.and_then(|limit| match self.lookahead.gaps {
            ArrivalGaps::Even => self.profile.time_of_area(limit as f64),
            // The time of the last start is random; it is known when all starts are drawn.
            ArrivalGaps::Poisson { area, .. } => {
                let drawn = self.next.is_none() && self.lookahead.number >= limit;
                self.profile.time_of_area(area).filter(|_| drawn)
            }
        });
        limited.unwrap_or(self.profile.duration())
    }

    /// Moves `lookahead` to the next start of these shares.
    fn look_ahead(&mut self) {
        self.next = None;
        while self.limit.is_none_or(|limit| self.lookahead.number < limit) {
            if let ArrivalGaps::Even = self.lookahead.gaps {
                let Some(number) = self.shares.next_number(self.lookahead.number) else { return };
                self.lookahead.number = number;
            }
            let number = self.lookahead.number;
            if self.limit.is_some_and(|limit| number >= limit) {
                return;
            }
            let area = self.lookahead.next_area();
            let Some(at) = self.profile.time_of_area(area) else { return };
            if self.shares.contains(number) {
                self.next = Some(ScheduledStart { number, at });
                return;
            }
        }
    }
}

impl StartCursor {
    fn new(arrivals: Arrivals, seed: u64) -> StartCursor {
        let gaps = match arrivals {
            Arrivals::Even => ArrivalGaps::Even,
            Arrivals::Poisson => ArrivalGaps::Poisson { random: Rng::with_seed(seed), area: 0.0 },
        };
        StartCursor { number: 0, gaps }
    }

    /// The area at which the next start is due. Moves the cursor past it.
    fn next_area(&mut self) -> f64 {
        let number = self.number;
        self.number += 1;
        match &mut self.gaps {
            ArrivalGaps::Even => number as f64,
            ArrivalGaps::Poisson { random, area } => {
                *area -= (1.0 - random.f64()).ln();
                *area
            }
        }
    }

    /// Moves to the first start due at `from` or later. The earlier ones are not this schedule's:
    /// another holder of the shares has made them, or they are missed.
    fn skip_before(&mut self, profile: &Profile, from: Duration) {
        // Compares exact start times, so that rounding cannot assign a start to both holders or to
        // neither.
        let early = |area: f64| profile.time_of_area(area).is_some_and(|at| at < from);
        match self.gaps {
            ArrivalGaps::Even => {
                let mut number = profile.area(from).floor() as u64;
                while early(number as f64) {
                    number += 1;
                }
                while number > 0 && !early((number - 1) as f64) {
                    number -= 1;
                }
                self.number = self.number.max(number);
            }
            ArrivalGaps::Poisson { .. } => loop {
                let before = self.clone();
                if !early(self.next_area()) {
                    *self = before;
                    return;
                }
            },
        }
    }
}

impl Iterator for Schedule {
    type Item = ScheduledStart;

    fn next(&mut self) -> Option<ScheduledStart> {
        let next = self.next?;
        self.consumed = self.lookahead.clone();
        self.look_ahead();
        Some(next)
    }
}

#[cfg(test)]
mod tests;

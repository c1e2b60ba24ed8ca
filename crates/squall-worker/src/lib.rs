//! One process of a fleet: joins, reads what is wanted, builds its users, makes the load of the shares it holds and ships what it
//! measured. Decides nothing about the run; it obeys the record, and stops by itself when it can no longer be sure of its place.

mod announcer;
mod clock;
mod handover;
mod hooks;
mod job;
mod lending;
mod machine;
mod rationing;
mod shipper;
mod worker;

pub use hooks::Hooks;
pub use job::{Beside, Host, Opened};
pub use lending::{Portion, StockError, lend_here};
pub use worker::{Worker, WorkerConfig, WorkerError, WorkerStatus};

use squall_coord::Unit;
use squall_model::SHARES;

/// The shares of a load as units to hold, in an order in which neighbours are far apart: whoever holds a run of them gets every
/// n-th user, so that even a few users are spread evenly.
pub fn share_units() -> Vec<Unit> {
    let bits = SHARES.trailing_zeros();
    (0..SHARES).map(|at| Unit::from(at.reverse_bits() >> (u32::BITS - bits))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_share_is_a_unit_and_few_users_are_spread() {
        let units = share_units();
        assert_eq!(units.iter().collect::<BTreeSet<_>>().len(), SHARES as usize);
        // Four workers hold a quarter each: the first eight users are two for each.
        for quarter in units.chunks(64) {
            let users = quarter.iter().filter(|unit| unit.as_str().parse::<u32>().unwrap() < 8).count();
            assert_eq!(users, 2);
        }
    }
}

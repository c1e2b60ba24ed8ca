//! Names of outcomes that came over the wire, each kept once and for good: a [`Code`](crate::Code) is `Copy` and borrows for
//! ever. How many there can be is bounded, whatever arrives.

use std::{
    collections::HashSet,
    sync::{LazyLock, PoisonError, RwLock},
};

/// Most names that are kept; further ones are `OTHER`. With their lengths that is 256 KiB.
const MOST: usize = 4096;

const LONGEST: usize = 64;

/// What stands for a name that cannot be kept.
pub(super) const OTHER: &str = "OTHER";

static NAMES: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(|| RwLock::new(HashSet::from([OTHER])));

/// Whether `name` may travel: a short text without control characters. Drivers use `CONNECT_REFUSED`, Python `ValueError`.
pub(super) fn is_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The one lasting copy of `name`.
pub(super) fn kept(name: &str) -> &'static str {
    if let Some(known) = NAMES.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return known;
    }
    keep(&mut NAMES.write().unwrap_or_else(PoisonError::into_inner), name)
}

fn keep(names: &mut HashSet<&'static str>, name: &str) -> &'static str {
    match names.get(name) {
        Some(known) => known,
        None if names.len() >= MOST => OTHER,
        None => {
            let lasting: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(lasting);
            lasting
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let first = kept("ONCE");
        assert!(std::ptr::eq(first, kept(&String::from("ONCE"))));
    }

    #[test]
    fn beyond_the_bound_names_are_other_and_known_ones_stay() {
        let mut names = HashSet::new();
        (0..MOST).for_each(|i| _ = keep(&mut names, &format!("N{i}")));
        assert_eq!((keep(&mut names, "ONE_MORE"), keep(&mut names, "N7"), names.len()), (OTHER, "N7", MOST));
    }
}

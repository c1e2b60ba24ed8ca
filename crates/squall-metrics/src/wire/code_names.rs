//! Names of outcomes that were decoded, each stored once and for ever, because an
//! [`OutcomeCode`](crate::OutcomeCode) is `Copy` and borrows its name. Their number is limited,
//! so untrusted bytes cannot fill the memory.

use std::{
    collections::HashSet,
    sync::{LazyLock, PoisonError, RwLock},
};

/// The most names; further ones become `OTHER`. With their lengths this is at most 256 KiB.
const MAX_NAMES: usize = 4096;

const MAX_NAME_BYTES: usize = 64;

/// Replaces a name that cannot be stored.
pub(super) const OTHER_CODE: &str = "OTHER";

static NAMES: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(|| RwLock::new(HashSet::from([OTHER_CODE])));

/// Whether `name` may be encoded: a short text without control characters. Drivers use
/// `CONNECT_REFUSED`, Python `ValueError`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The one static copy of `name`.
pub(crate) fn intern(name: &str) -> &'static str {
    if let Some(known) = NAMES.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return known;
    }
    intern_locked(&mut NAMES.write().unwrap_or_else(PoisonError::into_inner), name)
}

fn intern_locked(names: &mut HashSet<&'static str>, name: &str) -> &'static str {
    match names.get(name) {
        Some(known) => known,
        None if names.len() >= MAX_NAMES => OTHER_CODE,
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
    fn equal_names_are_stored_once() {
        let first = intern("ONCE");
        assert!(std::ptr::eq(first, intern(&String::from("ONCE"))));
    }

    #[test]
    fn names_beyond_the_limit_become_other_and_known_ones_stay() {
        let mut names = HashSet::new();
        (0..MAX_NAMES).for_each(|i| _ = intern_locked(&mut names, &format!("N{i}")));
        assert_eq!(
            (intern_locked(&mut names, "ONE_MORE"), intern_locked(&mut names, "N7"), names.len()),
            (OTHER_CODE, "N7", MAX_NAMES)
        );
    }
}

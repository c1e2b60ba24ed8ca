//! Names of pools, items and requests.
//! It rejects names with which two Redis keys could collide. Scenarios, the API and both pool
//! stores use them.

use std::fmt;

const MAX_NAME_LENGTH: usize = 128;
/// Words that stand in place of an item id in the pool's own keys.
const RESERVED_IDS: [&str; 6] = ["available", "pool_loaded_count", "held", "holders", "waiting", "tickets"];

/// An invalid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot be a {kind}: {rule}")]
pub struct PoolNameError {
    /// What the name is for.
    pub kind: &'static str,
    /// The rejected name.
    pub name: String,
    /// Which names are allowed.
    pub rule: &'static str,
}

/// The name of a pool: 1 to 128 letters, digits, `_`, `.`, `:`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolName(String);

impl PoolName {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, PoolNameError> {
        let rule = "1 to 128 letters, digits, `_`, `.`, `:` and `-`";
        check_name("resource name", name.into(), rule, |c| c == ':').map(Self)
    }

    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of an item in a pool: 1 to 128 letters, digits, `_`, `.`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(String);

impl ItemId {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, PoolNameError> {
        let rule = "1 to 128 letters, digits, `_`, `.` and `-`, and no word that Squall reserves";
        let name = check_name("resource id", name.into(), rule, |_| false)?;
        if RESERVED_IDS.contains(&name.as_str()) {
            return Err(PoolNameError { kind: "resource id", name, rule });
        }
        Ok(Self(name))
    }

    /// An id from the store, which holds only checked ids.
    pub(crate) fn from_stored(name: String) -> Self {
        Self(name)
    }

    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for ItemId {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_name(
    kind: &'static str,
    name: String,
    rule: &'static str,
    allow: impl Fn(char) -> bool,
) -> Result<String, PoolNameError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') || allow(c);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(allowed) {
        return Err(PoolNameError { kind, name, rule });
    }
    Ok(name)
}

/// The id of a request. A repeated request has the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolRequestId(String);

impl PoolRequestId {
    /// A new unique id.
    pub fn unique() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// The id as it is stored: letters and digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_collide_in_redis_are_rejected() {
        assert!(PoolName::new("shop:accounts.v-2_x").is_ok());
        for bad in ["", "a b", "a{b}", "a\n", "ü", &"x".repeat(129)] {
            assert!(PoolName::new(bad).is_err(), "{bad:?}");
            assert!(ItemId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ItemId::new("a:b").is_err());
        assert!(RESERVED_IDS.iter().all(|word| ItemId::new(*word).is_err()));
        assert_eq!(ItemId::new("7").unwrap(), ItemId::from(7));
    }
}

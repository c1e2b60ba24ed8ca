//! Names of group metrics that carry a meaning for the orchestrator. The Python driver and
//! the engine build them; the saturation check parses them.

use std::fmt;

const ADDED_USER: &str = "(user added because all were busy)";
const HELD_THREAD: &str = "(held thread)";
const NO_THREAD: &str = "(no thread was free)";

/// The last part of a group metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupName<'a> {
    /// Responses that waited while this code blocked their thread.
    HeldBy(&'a str),
    /// Users of an open load that ran their `on_start` because all users were busy.
    AddedUser,
    /// Steps of code that blocked their thread. Their error messages name the lines.
    HeldThread,
    /// Starts of an open load that did not happen because no thread for blocking code was free.
    NoThread,
    /// A group of the scenario.
    Named(&'a str),
}

impl<'a> GroupName<'a> {
    /// Reads the part of `metric` after its last `/`.
    pub fn of_metric(metric: &'a str) -> GroupName<'a> {
        let name = metric.rsplit('/').next().unwrap_or_default();
        match name.strip_prefix("(held by ").and_then(|rest| rest.strip_suffix(')')) {
            Some(code) => GroupName::HeldBy(code),
            None if name == ADDED_USER => GroupName::AddedUser,
            None if name == HELD_THREAD => GroupName::HeldThread,
            None if name == NO_THREAD => GroupName::NoThread,
            None => GroupName::Named(name),
        }
    }
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::HeldBy(code) => write!(f, "(held by {code})"),
            GroupName::AddedUser => f.write_str(ADDED_USER),
            GroupName::HeldThread => f.write_str(HELD_THREAD),
            GroupName::NoThread => f.write_str(NO_THREAD),
            GroupName::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_have_golden_texts_and_parse_back() {
        for (name, text) in [
            (GroupName::HeldBy("checkout"), "(held by checkout)"),
            (GroupName::AddedUser, "(user added because all were busy)"),
            (GroupName::HeldThread, "(held thread)"),
            (GroupName::NoThread, "(no thread was free)"),
            (GroupName::Named("on_start"), "on_start"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(GroupName::of_metric(&format!("shop/{text}")), name);
            assert_eq!(GroupName::of_metric(text), name);
        }
    }

    #[test]
    fn incomplete_held_by_text_is_an_ordinary_name() {
        assert_eq!(GroupName::of_metric("(held by x"), GroupName::Named("(held by x"));
    }
}

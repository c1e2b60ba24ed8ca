//! Names of group metrics that carry a meaning for the orchestrator. The Python driver builds them;
//! the saturation check parses them.

use std::fmt;

/// The last part of a group metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupName<'a> {
    /// Responses that waited while this code blocked their thread.
    HeldBy(&'a str),
    /// A group of the scenario.
    Named(&'a str),
}

impl<'a> GroupName<'a> {
    /// Reads the part of `metric` after its last `/`.
    pub fn of_metric(metric: &'a str) -> GroupName<'a> {
        let name = metric.rsplit('/').next().unwrap_or_default();
        match name.strip_prefix("(held by ").and_then(|rest| rest.strip_suffix(')')) {
            Some(code) => GroupName::HeldBy(code),
            None => GroupName::Named(name),
        }
    }
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::HeldBy(code) => write!(f, "(held by {code})"),
            GroupName::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_have_golden_texts_and_parse_back() {
        for (name, text) in
            [(GroupName::HeldBy("checkout"), "(held by checkout)"), (GroupName::Named("on_start"), "on_start")]
        {
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

//! Reads the values of one group into types, and collects the mistakes. It knows no option.

use super::{CommandLineProblem, grammar::GroupValues};
use std::fmt::Display;

/// Reads values; a value that cannot be read becomes a problem and the fallback.
pub(crate) struct OptionReader<'r> {
    values: &'r GroupValues,
    problems: &'r mut Vec<CommandLineProblem>,
}

impl<'r> OptionReader<'r> {
    pub(crate) fn new(values: &'r GroupValues, problems: &'r mut Vec<CommandLineProblem>) -> OptionReader<'r> {
        OptionReader { values, problems }
    }

    /// The typed value or the default; `fallback` if there is neither.
    pub(crate) fn value<T, E: Display>(&mut self, name: &str, fallback: T, parse: impl Fn(&str) -> Result<T, E>) -> T {
        self.optional(name, parse).unwrap_or(fallback)
    }

    /// The typed value or the default, if there is one.
    pub(crate) fn optional<T, E: Display>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        let text = self.values.value(name)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let option = format!("{name}{text}{}", if name.ends_with('(') { ")" } else { "" });
                self.problem(&option, error.to_string());
                None
            }
        }
    }

    /// The typed value or the default as it is.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.values.value(name).map(str::to_owned)
    }

    /// Whether the word was typed.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.values.typed(name).is_some()
    }

    /// Refuses `option` beside one of the others.
    pub(crate) fn exclude(&mut self, option: &str, others: &[&str]) {
        let typed = others.iter().find(|other| self.flag(option) && self.flag(other));
        if let Some(other) = typed {
            self.problem(option, format!("it cannot be combined with {other}: remove one of them"));
        }
    }

    pub(crate) fn problem(&mut self, option: &str, reason: String) {
        let group = self.values.spec.name;
        self.problems.push(CommandLineProblem::Value { group, option: option.to_owned(), reason });
    }
}

/// A whole number between two bounds.
pub(crate) fn whole_number<T>(text: &str, min: T, max: T) -> Result<T, String>
where
    T: TryFrom<u64> + PartialOrd + Display + Copy,
{
    let number = crate::distribution::parse_count(text).map_err(|error| error.to_string())?;
    T::try_from(number)
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("use a number from {min} to {max}"))
}

/// One of several words, in any case.
pub(crate) fn one_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        match crate::hint::nearest(&text.to_lowercase(), names.iter().copied().filter(|_| names.len() > 4)) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("use {}", names.join(", ")),
        }
    })
}

/// `a=1,b=2` as pairs, in the order typed.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part} has no value: write {part}=value"))?;
        if pairs.iter().any(|(other, _)| other == name) {
            return Err(format!("{name} is there twice"));
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

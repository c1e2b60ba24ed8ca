//! Texts as durations, counts and pauses, each mistake reported where it was written.

use squall_model::{Pause, parse_duration};
use std::time::Duration;

use crate::{Sourced, error::ProblemList};

/// The longest duration of any setting, and the length of a run that only its number of requests ends.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(crate) fn duration(given: &Sourced<String>, problems: &mut ProblemList<'_>) -> Option<Duration> {
    match parse_duration(&given.value) {
        Ok(duration) if duration <= MAX_DURATION => return Some(duration),
        Ok(_) => problems.add(&given.location, format!("`{}` is longer than ten years", given.value)),
        Err(error) => problems.add(&given.location, error.to_string()),
    }
    None
}

/// A duration above 0.
pub(crate) fn positive_duration(given: &Sourced<String>, problems: &mut ProblemList<'_>) -> Option<Duration> {
    let limit = duration(given, problems)?;
    if limit.is_zero() {
        problems.add(&given.location, "a limit of 0 leaves no time for anything: give a duration above 0");
        return None;
    }
    Some(limit)
}

/// A whole number above 0.
pub(crate) fn positive_count(given: &Sourced<String>, problems: &mut ProblemList<'_>) -> Option<u64> {
    let number = given.value.trim().parse().ok().filter(|number| *number > 0);
    if number.is_none() {
        problems.add(&given.location, format!("`{}` is not a whole number of 1 or more", given.value));
    }
    number
}

/// `1s`, or `1s..3s` for a random pause between the two.
pub(crate) fn pause(given: &Sourced<String>, problems: &mut ProblemList<'_>) -> Option<Pause> {
    let Some((least, most)) = given.value.split_once("..") else {
        return duration(given, problems).map(Pause::Fixed);
    };
    let mut end =
        |text: &str| duration(&Sourced { value: text.to_owned(), location: given.location.clone() }, problems);
    let (least, most) = (end(least), end(most));
    let (least, most) = (least?, most?);
    if least > most {
        problems.add_with_hint(
            &given.location,
            format!("`{}` ends before it begins", given.value),
            "write the shorter one first",
        );
        return None;
    }
    Some(Pause::Between(least, most))
}

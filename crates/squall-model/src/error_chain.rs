//! An error and its causes, in one line for people.

use std::{error::Error, iter};

/// What `error` and its causes say; a cause that only repeats what was said is left out.
///
/// ```
/// let error = "abc".parse::<u8>().unwrap_err();
/// assert_eq!(squall_model::chain(&error), "invalid digit found in string");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |cause| Error::source(*cause)).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

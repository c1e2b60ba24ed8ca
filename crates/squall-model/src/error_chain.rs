//! Formats an error and its causes in one line for people.

use std::{error::Error, iter};

/// The texts of `error` and its causes. A cause that repeats the end of the text is left out.
///
/// ```
/// let error = "abc".parse::<u8>().unwrap_err();
/// assert_eq!(squall_model::error_chain(&error), "invalid digit found in string");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |cause| Error::source(*cause)).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

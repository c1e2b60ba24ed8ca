//! The text of an error with its causes, for log lines and refusals. Without the causes, a line about
//! the store does not say why it failed. The server and the worker call it.

use std::error::Error;

/// The error and its causes, each after a colon.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::StoreError;

    #[test]
    fn causes_follow_the_error() {
        let error = StoreError::Unreachable(Box::new(std::io::Error::other("refused")));
        assert_eq!(with_causes(&error), "the coordination store did not answer: refused");
    }
}

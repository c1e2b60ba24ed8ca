//! Reads numbers from a query string. It does not decode percent escapes, because no parameter of
//! the target needs them.

use std::str::FromStr;

/// The value of `name`: `None` if it is missing, an error with the text if it is not valid.
pub(crate) fn parameter<T: FromStr>(query: Option<&str>, name: &str) -> Result<Option<T>, String> {
    let pairs = query.unwrap_or("").split('&').filter_map(|pair| pair.split_once('='));
    match pairs.into_iter().find(|(key, _)| *key == name) {
        None => Ok(None),
        Some((_, text)) => text.parse().map(Some).map_err(|_| format!("`{name}={text}` is not a number in range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_name() {
        let query = Some("page=3&pages=4&rate=0.5");
        assert_eq!(parameter(query, "page"), Ok(Some(3u32)));
        assert_eq!(parameter(query, "rate"), Ok(Some(0.5f64)));
        assert_eq!(parameter::<u32>(query, "size"), Ok(None));
        assert_eq!(parameter::<u32>(None, "page"), Ok(None));
        assert!(parameter::<u32>(Some("page=x"), "page").is_err());
    }
}

//! Values of flags that may be secret, given as `@FILE` or `$NAME` so that neither `ps` nor the shell's
//! history shows them. It validates nothing else. `flag_settings` calls it.

use squall_scenario::open_input_file;
use std::{io::Read, path::Path};

/// The longest secret. Longer files are mistakes, such as a path to a log.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretValueError {
    #[error("cannot read {path}: {reason}; a value that begins with @ is written with @@")]
    Unreadable { path: String, reason: std::io::Error },
    #[error("{path} is empty")]
    Empty { path: String },
    #[error("{path} has more than {} KiB, which no secret has", MAX_SECRET_BYTES >> 10)]
    TooLong { path: String },
    #[error("{path} is not UTF-8 text")]
    NotText { path: String },
    #[error("the environment variable {name} is not set; a value that begins with $ is written with $$")]
    Unset { name: String },
}

/// The value behind `text`: the content of the file of `@FILE` without its last line break, the
/// environment variable of `$NAME`, or the text itself. `@@` and `$$` at the beginning stand for one
/// `@` and one `$`.
pub(crate) fn resolve(text: &str) -> Result<String, SecretValueError> {
    if text.starts_with("@@") || text.starts_with("$$") {
        return Ok(text[1..].to_owned());
    }
    if let Some(path) = referenced_file(text) {
        return read_secret(path);
    }
    match reference_to_variable(text) {
        Some(name) => std::env::var(name).map_err(|_| SecretValueError::Unset { name: name.to_owned() }),
        None => Ok(text.to_owned()),
    }
}

/// Whether `text` only refers to a secret, so that it can be shown.
pub(crate) fn is_reference(text: &str) -> bool {
    referenced_file(text).is_some() || reference_to_variable(text).is_some()
}

/// The path in `@FILE`.
pub(crate) fn referenced_file(text: &str) -> Option<&str> {
    text.strip_prefix('@').filter(|path| !path.is_empty() && !path.starts_with('@'))
}

/// The name in `$NAME`. Other texts with a dollar sign, such as `$5` and `a$b`, are values.
fn reference_to_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(name)
}

fn read_secret(path: &str) -> Result<String, SecretValueError> {
    let mut bytes = Vec::new();
    let read =
        open_input_file(Path::new(path)).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|reason| SecretValueError::Unreadable { path: path.to_owned(), reason })?;
    if bytes.len() as u64 > MAX_SECRET_BYTES {
        return Err(SecretValueError::TooLong { path: path.to_owned() });
    }
    let mut text = String::from_utf8(bytes).map_err(|_| SecretValueError::NotText { path: path.to_owned() })?;
    for end in ['\n', '\r'] {
        if text.ends_with(end) {
            text.pop();
        }
    }
    if text.is_empty() { Err(SecretValueError::Empty { path: path.to_owned() }) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_read_from_a_file_without_its_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("@{}", folder.path().join(name).display());
        for (content, expected) in [("abc\n", "abc"), ("abc\r\n", "abc"), ("a b", "a b"), ("a\n\n", "a\n")] {
            std::fs::write(folder.path().join("token"), content).unwrap();
            assert_eq!(resolve(&at("token")).unwrap(), expected);
        }
        assert!(resolve(&at("missing")).unwrap_err().to_string().contains("written with @@"));
        std::fs::write(folder.path().join("long"), vec![b'a'; 65_537]).unwrap();
        assert!(resolve(&at("long")).unwrap_err().to_string().contains("64 KiB"));
        for content in ["", "\n"] {
            std::fs::write(folder.path().join("empty"), content).unwrap();
            assert!(resolve(&at("empty")).unwrap_err().to_string().ends_with("empty is empty"));
        }
        assert!(resolve("@/dev/zero").unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn secret_is_read_from_the_environment() {
        assert_eq!(resolve("$PATH").unwrap(), std::env::var("PATH").unwrap());
        let error = resolve("$SQUALL_NOT_SET").unwrap_err().to_string();
        assert!(error.contains("SQUALL_NOT_SET is not set") && error.contains("written with $$"), "{error}");
    }

    #[test]
    fn other_values_are_unchanged() {
        for (text, value) in [("a@b", "a@b"), ("@", "@"), ("@@x", "@x"), ("$$x", "$x"), ("$5", "$5"), ("a$b", "a$b")] {
            assert_eq!(resolve(text).unwrap(), value);
            assert!(!is_reference(text), "{text}");
        }
        assert!(is_reference("@token.txt") && is_reference("$TOKEN"));
    }
}

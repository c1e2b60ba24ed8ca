//! Escapes a value for its position in a URL, a form or JSON, so that it stays one value.

/// The position of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Written unchanged.
    None,
    /// One segment of a path: everything but letters, digits and `-._~` is percent-encoded.
    Path,
    /// A name or value of a query or form, encoded likewise.
    Query,
    /// Inside a JSON string.
    Json,
    /// A whole JSON value: numbers and booleans stay unquoted, everything else becomes a string.
    JsonValue,
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

impl Escape {
    /// Appends `text`. `literal`: it is a JSON number, boolean or structure rather than a string.
    pub(crate) fn write(self, text: &str, literal: bool, out: &mut String) {
        match self {
            Escape::None => out.push_str(text),
            Escape::Path | Escape::Query => percent_encode(text, out),
            Escape::Json => write_json_escaped(text, out),
            Escape::JsonValue if literal => out.push_str(text),
            Escape::JsonValue => write_json_string(text, out),
        }
    }
}

fn percent_encode(text: &str, out: &mut String) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

pub(crate) fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    write_json_escaped(text, out);
    out.push('"');
}

fn write_json_escaped(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => {
                out.push_str("\\u00");
                out.push(char::from(HEX[(u32::from(c) >> 4) as usize]));
                out.push(char::from(HEX[(u32::from(c) & 15) as usize]));
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(escape: Escape, text: &str, expected: &str) {
        let mut out = String::new();
        escape.write(text, false, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn escaped_value_stays_one_value() {
        check(Escape::Path, "a/b c", "a%2Fb%20c");
        check(Escape::Query, "é&x=1", "%C3%A9%26x%3D1");
        check(Escape::Json, "a\"b", "a\\\"b");
        check(Escape::JsonValue, "5", "\"5\"");
        check(Escape::None, "a/b", "a/b");
    }

    proptest! {
        #[test]
        fn json_escaped_string_parses_to_itself(text in "\\PC*|[\\x00-\\x20\"\\\\]*") {
            let mut out = String::new();
            write_json_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}

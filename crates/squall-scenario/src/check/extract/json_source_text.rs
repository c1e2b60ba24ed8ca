//! Finds a value's own text in a JSON document that has been parsed, so that an extracted number keeps the
//! server's notation.

use serde_json_path::{NormalizedPath, PathElement};

/// The text of the value at `path`; `None` only for documents that are not JSON.
pub(super) fn value_text_at<'b>(document: &'b [u8], path: &NormalizedPath<'_>) -> Option<&'b str> {
    let mut rest = document.trim_ascii();
    for element in path.iter() {
        rest = match element {
            PathElement::Name(name) => member(rest, name)?,
            PathElement::Index(index) => item(rest, *index)?,
        };
    }
    std::str::from_utf8(&rest[..value_end(rest)?]).ok()
}

fn item(text: &[u8], index: usize) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"[")?.trim_ascii_start();
    for _ in 0..index {
        rest = rest[value_end(rest)?..].trim_ascii_start().strip_prefix(b",")?.trim_ascii_start();
    }
    Some(rest)
}

/// The last member of that name, which is the one that the parser keeps.
fn member<'b>(text: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let mut rest = text.strip_prefix(b"{")?.trim_ascii_start();
    let mut found = None;
    while rest.first() == Some(&b'"') {
        let (key, after) = rest.split_at(value_end(rest)?);
        let value = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        if serde_json::from_slice::<String>(key).is_ok_and(|key| key == name) {
            found = Some(value);
        }
        rest = value[value_end(value)?..].trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or_default().trim_ascii_start();
    }
    found
}

/// The end of the value at the start of `text`.
fn value_end(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    loop {
        match text.get(at) {
            Some(b'"') => {
                at += 1;
                while *text.get(at)? != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            Some(b'[' | b'{') => (depth, at) = (depth + 1, at + 1),
            Some(b']' | b'}') if depth > 0 => (depth, at) = (depth - 1, at + 1),
            Some(b',' | b':' | b' ' | b'\t' | b'\r' | b'\n') if depth > 0 => at += 1,
            None | Some(b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => return (depth == 0).then_some(at),
            // A number, a boolean or null.
            Some(_) => {
                let scalar = |byte: &u8| !matches!(byte, b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
                at += text[at..].iter().take_while(|byte| scalar(byte)).count();
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_number_text_is_found_as_written() {
        let document = br#" {"a": [1, {"x":"]}\\\"", "b\u0021" : 1.10 }], "n":[[], {}, -1e3 ], "long": 123456789012345678901234567890, "long" : 2.50} "#;
        let json: serde_json::Value = serde_json::from_slice(document).unwrap();
        for (path, text) in [("$.a[1]['b!']", "1.10"), ("$.n[2]", "-1e3"), ("$.long", "2.50"), ("$.a[0]", "1")] {
            let nodes = serde_json_path::JsonPath::parse(path).unwrap().query_located(&json);
            let found = nodes.into_iter().next().expect(path);
            assert_eq!(value_text_at(document, found.location()), Some(text), "{path}");
        }
        let whole = serde_json_path::JsonPath::parse("$").unwrap();
        let number = serde_json::from_str("1.50").unwrap();
        let found = whole.query_located(&number).into_iter().next().unwrap();
        assert_eq!(value_text_at(b" 1.50\n", found.location()), Some("1.50"));
    }
}

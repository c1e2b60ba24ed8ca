//! Encodes a path and query for a request line, and rejects characters that could end the line.

use crate::error::RequestError;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Encodes `path` into `out`, or leaves `out` as it is. A `%` stays, so encoded text is not encoded twice.
pub(super) fn encode_path(path: &str, out: &mut String) -> Result<(), RequestError> {
    let refuse = |reason| Err(RequestError::InvalidPath { path: path.into(), reason });
    if !matches!(path.as_bytes().first(), None | Some(b'/' | b'?')) {
        return refuse("must start with /");
    }
    if path.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return refuse("contains a line break or another control character");
    }
    out.clear();
    if !path.starts_with('/') {
        out.push('/');
    }
    for &byte in path.as_bytes() {
        match byte {
            b'#' => break,
            b' ' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'|' | b'\\' | b'^' | 0x80.. => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
            _ => out.push(char::from(byte)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let mut out = String::from("old");
        encode_path(path, &mut out).expect("accepted");
        assert_eq!(out, expected);
    }

    #[test]
    fn allowed_characters_stay_and_others_are_encoded() {
        check("/a/b?c=d&e=%20f", "/a/b?c=d&e=%20f");
        check("/red shoes?q=\"é\"", "/red%20shoes?q=%22%C3%A9%22");
        check("", "/");
        check("?page=2", "/?page=2");
        check("/a#b", "/a");
    }

    #[test]
    fn line_breaks_and_relative_paths_are_rejected() {
        for path in ["/a\r\nX: y", "/a\nb", "/\0", "/\x7f", "api", "http://other/"] {
            assert!(encode_path(path, &mut String::new()).is_err(), "{path:?}");
        }
    }
}

//! Writes a JSON value as Python's `repr` does, because runnel hashes that text. Accepts every
//! value; `serde_json` has already turned numbers beyond 64 bits into floats.

use std::fmt::Write;

use serde_json::Value;

/// Python's `repr` of the value that `json.loads` returns.
pub fn python_repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

fn write_repr(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::String(text) => write_text(out, text),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => write_float(out, float),
            None => write!(out, "{number}").expect("writing to a string never fails"),
        },
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (at, (name, item)) in fields.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_text(out, name);
                out.push_str(": ");
                write_repr(out, item);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let written = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                written.expect("writing to a string never fails");
            }
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable`. Rust's `escape_debug` uses the same categories, except that it
/// escapes a leading combining mark; so an `a` precedes the character.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut pair = [b'a'; 5];
    let end = 1 + c.encode_utf8(&mut pair[1..]).len();
    let pair = std::str::from_utf8(&pair[..end]).expect("the bytes are an `a` and a character");
    pair.escape_debug().count() == 2
}

/// Writes the shortest digits that parse to the same float. Uses an exponent below 1e-4 and from
/// 1e16.
fn write_float(out: &mut String, float: f64) {
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        out.push_str(&plain);
        out.push_str(if plain.contains('.') { "" } else { ".0" });
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs()).expect("writing to a string never fails");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (JSON, output of CPython 3.11 for `repr(json.loads(...))`)
    const CASES: &[(&str, &str)] = &[
        ("1", "1"),
        ("-7", "-7"),
        ("18446744073709551615", "18446744073709551615"),
        ("1.5", "1.5"),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1e15", "1000000000000000.0"),
        ("1e16", "1e+16"),
        ("1.25e300", "1.25e+300"),
        ("123456789.123456789", "123456789.12345679"),
        ("true", "True"),
        ("null", "None"),
        ("\"A\"", "'A'"),
        ("\"it's\"", "\"it's\""),
        ("\"it's \\\"so\\\"\"", "'it\\'s \"so\"'"),
        ("\"a\\\\b\\n\\t\\u0007\"", "'a\\\\b\\n\\t\\x07'"),
        ("\"é€😀\"", "'é€😀'"),
        ("\"\\u00a0\\u200b\\u2028\\u00ad\"", "'\\xa0\\u200b\\u2028\\xad'"),
        ("\"e\\u0301\"", "'e\u{301}'"),
        ("[1, \"a\", null]", "[1, 'a', None]"),
        ("{\"a\": [1.0], \"b\": {}}", "{'a': [1.0], 'b': {}}"),
    ];

    #[test]
    fn python_repr_equals_cpython_repr() {
        for (json, expected) in CASES {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(&python_repr(&value), expected, "{json}");
        }
    }
}

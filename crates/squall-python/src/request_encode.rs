//! Encodes Python values for requests: JSON, forms, query strings, multipart bodies, path
//! parameters. It does not decide what a request contains; the client calls it.

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple},
};
use std::fmt::Write as _;

/// The deepest nesting that `json=` accepts. A circular value exceeds it.
const MAX_DEPTH: usize = 200;

/// Appends `value` as JSON.
pub(crate) fn json(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err("json= is nested too deeply, or contains itself"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return write_string(text.to_str()?, out);
    }
    if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(flag) = value.cast::<PyBool>() {
        out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
    } else if let Ok(number) = value.cast::<PyInt>() {
        match number.extract::<i64>() {
            Ok(small) => out.extend_from_slice(small.to_string().as_bytes()),
            // `int.__repr__`, as in the standard library: a subclass such as IntEnum may print
            // itself differently.
            Err(_) => out.extend_from_slice(
                value
                    .py()
                    .get_type::<PyInt>()
                    .call_method1("__repr__", (number,))?
                    .cast::<PyString>()?
                    .to_str()?
                    .as_bytes(),
            ),
        }
    } else if let Ok(number) = value.cast::<PyFloat>() {
        let number = number.value();
        if !number.is_finite() {
            return Err(PyValueError::new_err(format!("json= contains {number}, which JSON cannot represent")));
        }
        serde_json::to_writer(out, &number).expect("writing to a Vec cannot fail");
    } else if let Ok(dict) = value.cast::<PyDict>() {
        out.push(b'{');
        for (index, (key, item)) in dict.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match key.cast::<PyString>() {
                Ok(key) => write_string(key.to_str()?, out)?,
                Err(_) => write_string(&key_text(&key)?, out)?,
            }
            out.push(b':');
            json(&item, out, depth + 1)?;
        }
        out.push(b'}');
    } else if let Ok(list) = value.cast::<PyList>() {
        write_sequence(list.iter(), out, depth)?;
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        write_sequence(tuple.iter(), out, depth)?;
    } else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("json= contains a {kind}, which JSON cannot represent")));
    }
    Ok(())
}

fn write_sequence<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> PyResult<()> {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json(&item, out, depth + 1)?;
    }
    out.push(b']');
    Ok(())
}

fn write_string(text: &str, out: &mut Vec<u8>) -> PyResult<()> {
    serde_json::to_writer(out, text).expect("writing to a Vec cannot fail");
    Ok(())
}

/// The text of a key that is not a string, as the standard library writes it.
fn key_text(key: &Bound<'_, PyAny>) -> PyResult<String> {
    if key.is_none() {
        return Ok("null".to_owned());
    }
    if let Ok(flag) = key.cast::<PyBool>() {
        return Ok(if flag.is_true() { "true" } else { "false" }.to_owned());
    }
    if key.is_instance_of::<PyInt>() || key.is_instance_of::<PyFloat>() {
        return Ok(key.str()?.to_str()?.to_owned());
    }
    Err(PyTypeError::new_err(format!("json= keys must be strings, not {}", key.get_type().name()?)))
}

/// Appends a dict or a list of pairs as `a=1&b=2`, percent-encoded as UTF-8. A list as a value
/// repeats its name; a value of None is left out.
pub(crate) fn form(value: &Bound<'_, PyAny>, out: &mut String) -> PyResult<()> {
    if let Ok(dict) = value.cast::<PyDict>() {
        for (name, item) in dict.iter() {
            write_pairs(&name, &item, out)?;
        }
        return Ok(());
    }
    for entry in value.try_iter()? {
        let (name, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
        write_pairs(&name, &item, out)?;
    }
    Ok(())
}

fn write_pairs(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, out: &mut String) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        for item in value.try_iter()? {
            write_pairs(name, &item?, out)?;
        }
        return Ok(());
    }
    if !out.is_empty() {
        out.push('&');
    }
    percent_encode(name.str()?.to_str()?, out);
    out.push('=');
    match value.cast::<PyBool>() {
        Ok(flag) => out.push_str(if flag.is_true() { "true" } else { "false" }),
        Err(_) => percent_encode(value.str()?.to_str()?, out),
    }
    Ok(())
}

/// Replaces the placeholders `{name}` in a URL. A value is always one segment of the path:
/// characters such as `/` are percent-encoded.
pub(crate) fn fill_path_params(template: &str, values: &Bound<'_, PyAny>) -> PyResult<String> {
    let values = values
        .cast::<PyDict>()
        .map_err(|_| PyTypeError::new_err("path_params= takes a dict, as in path_params={\"id\": 7}"))?;
    let (mut out, mut rest, mut replaced) = (String::new(), template, 0);
    while let Some((before, name, after)) = rest
        .split_once('{')
        .and_then(|(before, place)| place.split_once('}').map(|(name, after)| (before, name, after)))
    {
        let value = values.get_item(name)?.ok_or_else(|| {
            PyValueError::new_err(format!("`{template}` contains {{{name}}}, but path_params= has no `{name}`"))
        })?;
        out += before;
        for byte in value.str()?.to_str()?.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
                _ => out += &format!("%{byte:02X}"),
            }
        }
        (rest, replaced) = (after, replaced + 1);
    }
    if replaced < values.len() {
        return Err(PyValueError::new_err(format!(
            "`{template}` does not contain every name in path_params=: write it as {{name}}"
        )));
    }
    Ok(out + rest)
}

fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
}

/// Appends `files=` and the fields of `data=` as multipart/form-data, and returns the content type.
pub(crate) fn multipart(
    files: &Bound<'_, PyAny>,
    fields: Option<&Bound<'_, PyAny>>,
    out: &mut Vec<u8>,
) -> PyResult<String> {
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    if let Some(fields) = fields {
        for (name, value) in named_items(fields, "data= beside files=")? {
            write_field(name.str()?.to_str()?, &value, &mut parts)?;
        }
    }
    for (name, file) in named_items(files, "files=")? {
        let name = name.str()?;
        let upload = UploadFile::read(&file, name.to_str()?)?;
        parts.push((part_head(name.to_str()?, Some((&upload.name, &upload.kind)))?, upload.content));
    }
    // The boundary must not occur in any part. It depends only on the parts, so that a constant
    // task sends the same bytes every time.
    let mut boundary = "squall-3f9d1c6a7b2e48d0".to_owned();
    let contains = |content: &[u8], text: &str| content.windows(text.len()).any(|piece| piece == text.as_bytes());
    while parts.iter().any(|(_, content)| contains(content, &boundary)) {
        boundary.push('x');
    }
    for (head, content) in &parts {
        out.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok(format!("multipart/form-data; boundary={boundary}"))
}

/// The named items of a dict or a list of pairs.
fn named_items<'py>(items: &Bound<'py, PyAny>, what: &str) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if let Ok(dict) = items.cast::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let pair = |entry: PyResult<Bound<'py, PyAny>>| entry?.extract();
    let pairs = items.try_iter().and_then(|entries| entries.map(pair).collect());
    pairs.map_err(|_| PyTypeError::new_err(format!("{what} takes a dict or a list of (name, value)")))
}

/// Appends `value` if it is raw content: text, bytes of any kind, or an open file. Returns whether
/// it was.
pub(crate) fn write_raw(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
    } else if let Ok(text) = value.cast::<PyString>() {
        out.extend_from_slice(text.to_str()?.as_bytes());
    } else if value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>() {
        let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
        out.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
    } else if value.hasattr("read")? {
        return write_raw(&value.call_method0("read")?, out);
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Adds a form field. A list repeats the field, as in [`form`].
fn write_field(name: &str, value: &Bound<'_, PyAny>, parts: &mut Vec<(String, Vec<u8>)>) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return value.try_iter()?.try_for_each(|item| write_field(name, &item?, parts));
    }
    let content = match (value.cast::<PyBool>(), value.cast::<PyBytes>()) {
        (Ok(flag), _) => flag.is_true().to_string().into_bytes(),
        (_, Ok(bytes)) => bytes.as_bytes().to_vec(),
        _ => value.str()?.to_str()?.as_bytes().to_vec(),
    };
    parts.push((part_head(name, None)?, content));
    Ok(())
}

/// An entry of `files=`: bytes, text, an open file, `(name, content)` or `(name, content, type)`.
struct UploadFile {
    name: String,
    kind: String,
    content: Vec<u8>,
}

impl UploadFile {
    fn read(file: &Bound<'_, PyAny>, field: &str) -> PyResult<UploadFile> {
        let kind = "application/octet-stream".to_owned();
        if let Ok((name, content, kind)) = file.extract::<(String, Bound<'_, PyAny>, String)>() {
            return Ok(UploadFile { name, kind, content: content_of(&content)? });
        }
        if let Ok((name, content)) = file.extract::<(String, Bound<'_, PyAny>)>() {
            return Ok(UploadFile { name, kind, content: content_of(&content)? });
        }
        // An open file has a `name`.
        let path = file.getattr("name").ok().and_then(|name| name.extract::<String>().ok());
        let name = path.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or(field).to_owned();
        Ok(UploadFile { name, kind, content: content_of(file)? })
    }
}

fn content_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut content = Vec::new();
    match write_raw(value, &mut content)? {
        true => Ok(content),
        false => Err(PyTypeError::new_err(format!(
            "an entry of files= must be bytes, text or an open file, not a {}",
            value.get_type().name()?
        ))),
    }
}

/// The head of a part. Names are escaped as in browsers.
fn part_head(name: &str, file: Option<(&str, &str)>) -> PyResult<String> {
    let escaped = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    let mut head = format!("Content-Disposition: form-data; name=\"{}\"", escaped(name));
    if let Some((file, kind)) = file {
        if kind.contains(['\r', '\n']) {
            return Err(PyValueError::new_err(
                "the content type of an entry of files= contains a line break; remove it",
            ));
        }
        head += &format!("; filename=\"{}\"\r\nContent-Type: {kind}", escaped(file));
    }
    Ok(head)
}

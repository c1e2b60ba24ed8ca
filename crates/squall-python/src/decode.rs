//! JSON straight into Python objects: one pass, no tree in between, keys cached. Takes and refuses what the standard library does.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString},
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::{
    cell::{Cell, RefCell},
    fmt,
};

/// Slots of the key cache, a power of two. A collision only costs the string that would have been made anyway.
const KEYS: usize = 512;
/// Longer keys are seldom seen again.
const LONGEST_KEY: usize = 64;

thread_local! {
    static CACHE: RefCell<Vec<Option<Py<PyString>>>> = const { RefCell::new(Vec::new()) };
}

/// Parses a whole document.
pub(crate) fn json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let odd = Cell::new(false);
    let text = without_mark(text);
    let mut parser = serde_json::Deserializer::from_slice(text);
    let parsed = Seed { py, odd: &odd }.deserialize(&mut parser);
    match parsed.and_then(|value| parser.end().map(|()| value)) {
        Ok(parsed) if !odd.get() => Ok(parsed),
        _ => by_the_library(py, text),
    }
}

/// Parses what serde_json does not: what it refuses (NaN, UTF-16, half a surrogate pair, ...) the standard library may take, integers beyond
/// 64 bits keep their digits there, and what nobody takes is refused as people expect it.
#[cold]
fn by_the_library<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let json = py.import("json")?;
    json.call_method1("loads", (text,)).map_err(|error| {
        if !error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        let value = error.value(py);
        let known = || -> PyResult<(String, Py<PyAny>, Py<PyAny>)> {
            Ok((value.getattr("msg")?.extract()?, value.getattr("doc")?.unbind(), value.getattr("pos")?.unbind()))
        };
        let (reason, document, place) = known().unwrap_or_else(|_| {
            (error.to_string(), PyString::new(py, "").into_any().unbind(), PyInt::new(py, 0).into_any().unbind())
        });
        json.getattr("JSONDecodeError")
            .and_then(|class| class.call1((format!("the body is not JSON: {reason}"), document, place)))
            .map_or_else(|error| error, PyErr::from_value)
    })
}

/// Without the mark that some put before UTF-8.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

#[derive(Clone, Copy)]
struct Seed<'a, 'py> {
    py: Python<'py>,
    /// Something was met that the standard library knows better.
    odd: &'a Cell<bool>,
}

impl<'de, 'py> DeserializeSeed<'de> for Seed<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Seed<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self.py.None().into_bound(self.py))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.py, value).to_owned().into_any())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.py, value).into_any())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.py, value).into_any())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        // Perhaps an integer: one beyond 64 bits, or -0.
        if value.abs() >= 9.2e18 || value == 0.0 && value.is_sign_negative() {
            self.odd.set(true);
        }
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.py, value).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.py);
        while let Some(item) = items.next_element_seed(self)? {
            list.append(item).map_err(A::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(key) = entries.next_key_seed(Key(self.py))? {
            let value = entries.next_value_seed(self)?;
            dict.set_item(key, value).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// An object's key, from the cache if it was seen before.
struct Key<'py>(Python<'py>);

impl<'de, 'py> DeserializeSeed<'de> for Key<'py> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for Key<'py> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        if key.len() > LONGEST_KEY {
            return Ok(PyString::new(self.0, key));
        }
        CACHE.with_borrow_mut(|cache| {
            if cache.is_empty() {
                cache.resize_with(KEYS, || None);
            }
            let slot = &mut cache[slot_of(key)];
            if let Some(known) = slot
                && known.bind(self.0).to_str().is_ok_and(|text| text == key)
            {
                return Ok(known.bind(self.0).clone());
            }
            let made = PyString::new(self.0, key);
            *slot = Some(made.clone().unbind());
            Ok(made)
        })
    }
}

/// FNV-1a, folded.
fn slot_of(key: &str) -> usize {
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ (hash >> 16)) as usize & (KEYS - 1)
}

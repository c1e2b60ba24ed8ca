//! Parses JSON into Python objects. It parses a small document in one pass, directly into Python
//! objects. It parses a large document into a tree first, detached from the interpreter, so that
//! other threads can use the interpreter meanwhile. It caches keys, and accepts and refuses the
//! same input as the standard library. Responses and stream events call it.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString},
};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt,
};

/// Slots of the key cache, a power of two. A collision only costs creating the string.
const KEY_CACHE_SLOTS: usize = 512;
/// Documents of at least this size are parsed detached from the interpreter: detaching and
/// attaching again costs as much as parsing a few KiB.
const DETACHED_PARSE_MIN: usize = 32 << 10;
/// After creating this many objects, the thread detaches briefly so that other threads can use the
/// interpreter.
const OBJECTS_PER_ATTACH: u32 = 4096;
/// Longer keys are not cached, because they seldom occur again.
const MAX_CACHED_KEY_LEN: usize = 64;

thread_local! {
    static KEY_CACHE: RefCell<Vec<Option<Py<PyString>>>> = const { RefCell::new(Vec::new()) };
}

/// Parses a whole document.
pub(crate) fn json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let text = strip_bom(text);
    if text.len() >= DETACHED_PARSE_MIN {
        return match py.detach(|| serde_json::from_slice::<JsonTree>(text)) {
            Ok(tree) if !tree.needs_stdlib() => tree.build(py, &mut 0),
            _ => parse_with_stdlib(py, text),
        };
    }
    let needs_stdlib = Cell::new(false);
    let mut parser = serde_json::Deserializer::from_slice(text);
    let parsed = PyValueVisitor { py, needs_stdlib: &needs_stdlib }.deserialize(&mut parser);
    match parsed.and_then(|value| parser.end().map(|()| value)) {
        Ok(parsed) if !needs_stdlib.get() => Ok(parsed),
        _ => parse_with_stdlib(py, text),
    }
}

/// Parses a document with the standard library, which accepts input that serde_json refuses (NaN,
/// UTF-16, half a surrogate pair, ...) and keeps all digits of integers beyond 64 bits. If it
/// refuses the document too, the caller gets the usual `JSONDecodeError`.
#[cold]
fn parse_with_stdlib<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let json = py.import("json")?;
    json.call_method1("loads", (text,)).map_err(|error| {
        if !error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        let value = error.value(py);
        let details = || -> PyResult<(String, Py<PyAny>, Py<PyAny>)> {
            Ok((value.getattr("msg")?.extract()?, value.getattr("doc")?.unbind(), value.getattr("pos")?.unbind()))
        };
        let (reason, document, position) = details().unwrap_or_else(|_| {
            (error.to_string(), PyString::new(py, "").into_any().unbind(), PyInt::new(py, 0).into_any().unbind())
        });
        json.getattr("JSONDecodeError")
            .and_then(|class| class.call1((format!("the body is not JSON: {reason}"), document, position)))
            .map_or_else(|error| error, PyErr::from_value)
    })
}

/// Removes the byte order mark that some servers put before UTF-8.
pub(crate) fn strip_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

#[derive(Clone, Copy)]
struct PyValueVisitor<'a, 'py> {
    py: Python<'py>,
    /// Set when the document contains a number that only the standard library parses exactly.
    needs_stdlib: &'a Cell<bool>,
}

impl<'de, 'py> DeserializeSeed<'de> for PyValueVisitor<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for PyValueVisitor<'_, 'py> {
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
        if needs_stdlib(value) {
            self.needs_stdlib.set(true);
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
        while let Some(key) = entries.next_key_seed(CachedKeyVisitor(self.py))? {
            let value = entries.next_value_seed(self)?;
            dict.set_item(key, value).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// Whether the float may stand for an integer that serde_json cannot represent: one beyond 64 bits,
/// or -0.
fn needs_stdlib(value: f64) -> bool {
    value.abs() >= 9.2e18 || value == 0.0 && value.is_sign_negative()
}

/// A document that was parsed detached from the interpreter. The entries of an object keep their
/// order.
enum JsonTree<'t> {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(Cow<'t, str>),
    List(Vec<JsonTree<'t>>),
    Object(Vec<(Cow<'t, str>, JsonTree<'t>)>),
}

impl JsonTree<'_> {
    /// Whether the tree contains a number that only the standard library parses exactly.
    fn needs_stdlib(&self) -> bool {
        match self {
            JsonTree::Float(value) => needs_stdlib(*value),
            JsonTree::List(items) => items.iter().any(JsonTree::needs_stdlib),
            JsonTree::Object(entries) => entries.iter().any(|(_, value)| value.needs_stdlib()),
            _ => false,
        }
    }

    /// Creates the Python objects. It detaches after every [`OBJECTS_PER_ATTACH`] objects;
    /// `created` counts them.
    fn build<'py>(&self, py: Python<'py>, created: &mut u32) -> PyResult<Bound<'py, PyAny>> {
        *created += 1;
        if (*created).is_multiple_of(OBJECTS_PER_ATTACH) {
            py.detach(|| ());
        }
        Ok(match self {
            JsonTree::Null => py.None().into_bound(py),
            JsonTree::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
            JsonTree::Signed(value) => PyInt::new(py, *value).into_any(),
            JsonTree::Unsigned(value) => PyInt::new(py, *value).into_any(),
            JsonTree::Float(value) => PyFloat::new(py, *value).into_any(),
            JsonTree::Text(text) => PyString::new(py, text).into_any(),
            JsonTree::List(items) => {
                let list = PyList::empty(py);
                items.iter().try_for_each(|item| list.append(item.build(py, created)?))?;
                list.into_any()
            }
            JsonTree::Object(entries) => {
                let dict = PyDict::new(py);
                entries
                    .iter()
                    .try_for_each(|(key, value)| dict.set_item(key_object(py, key), value.build(py, created)?))?;
                dict.into_any()
            }
        })
    }
}

impl<'de> Deserialize<'de> for JsonTree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonTree<'de>, D::Error> {
        deserializer.deserialize_any(JsonTreeVisitor)
    }
}

/// Builds a [`JsonTree`].
struct JsonTreeVisitor;

impl<'de> Visitor<'de> for JsonTreeVisitor {
    type Value = JsonTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Signed(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Unsigned(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Float(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonTree<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(JsonTree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<JsonTree<'de>, A::Error> {
        let mut object = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Cow<'de, str>, _>()? {
            object.push((key, value));
        }
        Ok(JsonTree::Object(object))
    }
}

/// Reads an object's key, from the cache if it is there.
struct CachedKeyVisitor<'py>(Python<'py>);

impl<'de, 'py> DeserializeSeed<'de> for CachedKeyVisitor<'py> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for CachedKeyVisitor<'py> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(key_object(self.0, key))
    }
}

fn key_object<'py>(py: Python<'py>, key: &str) -> Bound<'py, PyString> {
    if key.len() > MAX_CACHED_KEY_LEN {
        return PyString::new(py, key);
    }
    KEY_CACHE.with_borrow_mut(|cache| {
        if cache.is_empty() {
            cache.resize_with(KEY_CACHE_SLOTS, || None);
        }
        let slot = &mut cache[slot_of(key)];
        if let Some(known) = slot
            && known.bind(py).to_str().is_ok_and(|text| text == key)
        {
            return known.bind(py).clone();
        }
        let created = PyString::new(py, key);
        *slot = Some(created.clone().unbind());
        created
    })
}

/// The cache slot of a key: its FNV-1a hash, folded.
fn slot_of(key: &str) -> usize {
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ (hash >> 16)) as usize & (KEY_CACHE_SLOTS - 1)
}

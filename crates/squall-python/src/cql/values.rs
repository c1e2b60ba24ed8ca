//! Converts Python values to those of statements, and rows to Python values.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyMapping, PySet, PyString, PyTuple,
    },
};
use squall_scenario::cql_client::{RowValue, ScalarKind, StatementRows, StatementValue};

/// The values of a call: a list or a tuple.
pub(super) fn arguments(values: &Bound<'_, PyAny>) -> PyResult<Vec<StatementValue>> {
    if !(values.is_instance_of::<PyList>() || values.is_instance_of::<PyTuple>()) {
        let message = format!("values are a list or a tuple with one value for each ?, not {}", type_name(values));
        return Err(PyTypeError::new_err(message));
    }
    values.try_iter()?.map(|value| convert(&value?)).collect()
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string())
}

fn convert(value: &Bound<'_, PyAny>) -> PyResult<StatementValue> {
    let elements = || value.try_iter()?.map(|element| convert(&element?)).collect::<PyResult<Vec<_>>>();
    if value.is_none() {
        return Ok(StatementValue::Null);
    }
    // Before int, because a bool is one.
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(StatementValue::Boolean(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(StatementValue::Number(value.str()?.to_string()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(StatementValue::Text(text.to_str()?.to_owned()));
    }
    if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        return Ok(StatementValue::Bytes(value.extract()?));
    }
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    if is_list || value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
        return elements().map(StatementValue::List);
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let pairs = mapping.items()?;
        let pair = |pair: Bound<'_, PyAny>| -> PyResult<(StatementValue, StatementValue)> {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            Ok((convert(&key)?, convert(&value)?))
        };
        return pairs.iter().map(pair).collect::<PyResult<_>>().map(StatementValue::Map);
    }
    // Times and dates.
    if let Ok(written) = value.call_method0("isoformat") {
        return Ok(StatementValue::Text(written.extract()?));
    }
    match type_name(value).as_str() {
        "UUID" | "Decimal" | "IPv4Address" | "IPv6Address" => Ok(StatementValue::Text(value.str()?.to_string())),
        other => Err(PyTypeError::new_err(format!("a value of the type {other} cannot be bound to a statement"))),
    }
}

/// The rows as `squall._cql.CqlRows`.
pub(super) fn rows(py: Python<'_>, rows: &StatementRows) -> PyResult<Py<PyAny>> {
    let tuples = PyList::empty(py);
    for row in rows.rows() {
        let row = row.map_err(|failure| pyo3::exceptions::PyValueError::new_err(failure.message))?;
        let values = row.into_iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
        tuples.append(PyTuple::new(py, values)?)?;
    }
    Ok(py.import("squall._cql")?.call_method1("make_rows", (rows.columns(), tuples))?.unbind())
}

fn to_python(py: Python<'_>, value: RowValue) -> PyResult<Bound<'_, PyAny>> {
    let all =
        |values: Vec<RowValue>| values.into_iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>();
    Ok(match value {
        RowValue::Null => py.None().into_bound(py),
        RowValue::Boolean(value) => PyBool::new(py, value).to_owned().into_any(),
        RowValue::Integer(value) => value.into_pyobject(py)?.into_any(),
        RowValue::Real(value) => PyFloat::new(py, value).into_any(),
        RowValue::Text(text) => PyString::new(py, &text).into_any(),
        RowValue::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        RowValue::Scalar(kind, text) => scalar(py, kind, &text)?,
        RowValue::List(values) => PyList::new(py, all(values)?)?.into_any(),
        RowValue::Set(values) => {
            let values = all(values)?;
            // Frozen collections as elements have no hash.
            match PySet::new(py, &values) {
                Ok(set) => set.into_any(),
                Err(_) => PyList::new(py, values)?.into_any(),
            }
        }
        RowValue::Map(pairs) => {
            let pairs = pairs.into_iter().map(|(key, value)| Ok((to_python(py, key)?, to_python(py, value)?)));
            let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
            let dict = PyDict::new(py);
            match pairs.iter().try_for_each(|(key, value)| dict.set_item(key, value)) {
                Ok(()) => dict.into_any(),
                Err(_) => PyList::new(py, pairs)?.into_any(),
            }
        }
        RowValue::Fields(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// A UUID, time, date or decimal number as Python has it. A value that Python cannot hold stays a text.
fn scalar<'py>(py: Python<'py>, kind: ScalarKind, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let made = match kind {
        ScalarKind::Uuid => py.import("uuid")?.call_method1("UUID", (text,)),
        ScalarKind::Timestamp => py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (text,)),
        ScalarKind::Date => py.import("datetime")?.getattr("date")?.call_method1("fromisoformat", (text,)),
        ScalarKind::Decimal => py.import("decimal")?.call_method1("Decimal", (text,)),
        ScalarKind::Time | ScalarKind::Inet | ScalarKind::Duration | ScalarKind::LongInteger => {
            return Ok(PyString::new(py, text).into_any());
        }
    };
    Ok(made.unwrap_or_else(|_| PyString::new(py, text).into_any()))
}

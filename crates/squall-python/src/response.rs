//! The `Response` and `Headers` objects of scenario code. A response copies head and body once into
//! one buffer and decodes them only when the scenario reads them. The driver creates responses.

use pyo3::{
    exceptions::PyKeyError,
    prelude::*,
    types::{PyBytes, PyDict, PyIterator, PyList, PyString},
};
use squall_http::HeaderIter;
use std::{sync::OnceLock, time::Duration};

use crate::{exceptions, json_decode};

/// The response to a request.
#[pyclass(name = "Response", frozen, module = "squall._squall")]
pub(crate) struct PyResponse {
    status: u16,
    /// Head, then body.
    buffer: Box<[u8]>,
    body_start: usize,
    elapsed: Duration,
    json: OnceLock<Py<PyAny>>,
}

impl PyResponse {
    pub(crate) fn new(response: &squall_http::HttpResponse<'_>, elapsed: Duration) -> PyResponse {
        let (head, body) = (response.raw_head(), response.body());
        let mut buffer = Vec::with_capacity(head.len() + body.len());
        buffer.extend_from_slice(head);
        buffer.extend_from_slice(body);
        PyResponse {
            status: response.status,
            buffer: buffer.into_boxed_slice(),
            body_start: head.len(),
            elapsed,
            json: OnceLock::new(),
        }
    }

    fn body(&self) -> &[u8] {
        &self.buffer[self.body_start..]
    }

    fn header_lines(&self) -> HeaderIter<'_> {
        HeaderIter::from_head(&self.buffer[..self.body_start])
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.header_lines().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The body as a check receives it: the parsed document if the body is JSON, otherwise its
    /// text.
    pub(crate) fn for_check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let looks_like_json =
            matches!(json_decode::strip_bom(self.body()).trim_ascii_start().first(), Some(b'{' | b'['));
        if looks_like_json && let Ok(parsed) = self.json(py) {
            return Ok(parsed.into_bound(py));
        }
        Ok(self.text(py)?.into_any())
    }
}

#[pymethods]
impl PyResponse {
    #[getter]
    fn status_code(&self) -> u16 {
        self.status
    }

    #[getter]
    fn ok(&self) -> bool {
        self.status < 400
    }

    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.body())
    }

    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        if let Ok(text) = std::str::from_utf8(self.body()) {
            return Ok(PyString::new(py, text));
        }
        let charset = self.header("content-type").and_then(|kind| {
            let (_, charset) = kind.split_once("charset=")?;
            Some(charset.split(';').next()?.trim().trim_matches('"'))
        });
        let content = self.content(py);
        let decode = |charset: &str| content.call_method1("decode", (charset, "replace"));
        let text = decode(charset.unwrap_or("utf-8")).or_else(|_| decode("utf-8"))?;
        Ok(text.cast_into::<PyString>()?)
    }

    #[getter]
    fn headers(slf: Py<Self>) -> PyHeaders {
        PyHeaders { response: slf }
    }

    #[getter]
    fn elapsed_ms(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e3
    }

    /// The body as Python objects. The first call parses it and keeps the result.
    fn json(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(parsed) = self.json.get() {
            return Ok(parsed.clone_ref(py));
        }
        let parsed = json_decode::json(py, self.body())?.unbind();
        Ok(self.json.get_or_init(|| parsed).clone_ref(py))
    }

    /// Raises `StatusError` if the status is 400 or above; returns the response otherwise.
    fn raise_for_status(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let status = slf.get().status;
        if status < 400 { Ok(slf) } else { Err(exceptions::bad_status(py, slf, status)) }
    }

    fn __repr__(&self) -> String {
        format!("<Response {} {} bytes>", self.status, self.body().len())
    }
}

/// The headers of a response. Names are case-insensitive; the first value of a name counts.
#[pyclass(name = "Headers", frozen, mapping, module = "squall._squall")]
pub(crate) struct PyHeaders {
    response: Py<PyResponse>,
}

#[pymethods]
impl PyHeaders {
    #[pyo3(signature = (name, default = None))]
    fn get(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        match self.response.get().header(name) {
            Some(value) => Some(PyString::new(py, value).into_any().unbind()),
            None => default,
        }
    }

    fn __getitem__(&self, name: &str) -> PyResult<&str> {
        self.response.get().header(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.response.get().header(name).is_some()
    }

    fn __len__(&self) -> usize {
        self.response.get().header_lines().count()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.response.get().header_lines().map(|(name, _)| name).collect::<Vec<_>>())
    }

    /// All values of a header that may occur several times, such as `set-cookie`.
    fn get_all<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let header_lines = self.response.get().header_lines();
        let values = header_lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        PyList::new(py, values.collect::<Vec<_>>())
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.response.get().header_lines().collect::<Vec<_>>())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let dict = PyDict::new(py);
        for (name, value) in self.response.get().header_lines() {
            dict.set_item(name, value)?;
        }
        Ok(format!("Headers({})", dict.repr()?))
    }
}

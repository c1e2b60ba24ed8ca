//! The events of one partition for a Python processor, which takes them on the loop's thread. It
//! decodes outside the partition's lock, so that slow Python code cannot delay the engine. It never
//! waits: the loop calls `want` and waits for a `ready` message. `squall.streams` calls it.

use pyo3::{
    exceptions::{PyException, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyEllipsis, PyString},
};
use squall_streams::{DecodeError, EntryBody, PollOutcome, RawEvent, RawPartitionEvents, decompress};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

use crate::json_decode;

/// The form in which a processor receives an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEventFormat {
    /// The JSON of the field `data`, decompressed and parsed.
    Json,
    /// A dict of all fields, names as text and values as bytes.
    Flat,
    /// The bytes of the field `data` as they are.
    Bytes,
}

impl StreamEventFormat {
    pub(super) fn parse(name: &str) -> PyResult<StreamEventFormat> {
        match name {
            "json" => Ok(StreamEventFormat::Json),
            "flat" => Ok(StreamEventFormat::Flat),
            "bytes" => Ok(StreamEventFormat::Bytes),
            other => {
                Err(PyValueError::new_err(format!("`{other}` is not a format of events; use json, flat or bytes")))
            }
        }
    }

    fn content<'py>(self, py: Python<'py>, body: &EntryBody) -> PyResult<Bound<'py, PyAny>> {
        let decode_error = |error: &DecodeError| {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            PyValueError::new_err(format!("{error}{cause}"))
        };
        if *body == EntryBody::Deleted {
            return Err(decode_error(&DecodeError::Deleted));
        }
        if self == StreamEventFormat::Flat {
            return fields(py, body, |name| PyString::new(py, &String::from_utf8_lossy(name)).into_any());
        }
        let data = body.data().ok_or_else(|| decode_error(&DecodeError::NoData))?;
        if self == StreamEventFormat::Bytes {
            return Ok(PyBytes::new(py, data).into_any());
        }
        let text = decompress(data).map_err(|error| decode_error(&error))?;
        json_decode::json(py, &text).map_err(|error| {
            let reason = error.value(py).to_string();
            PyValueError::new_err(format!(
                "the event is not JSON{}",
                reason.strip_prefix("the body is not JSON").unwrap_or(&reason)
            ))
        })
    }
}

fn fields<'py>(
    py: Python<'py>,
    body: &EntryBody,
    name_of: impl Fn(&[u8]) -> Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    match body {
        EntryBody::Data(data) => dict.set_item(name_of(b"data"), PyBytes::new(py, data))?,
        EntryBody::Fields(fields) => {
            for (name, value) in fields {
                dict.set_item(name_of(name), PyBytes::new(py, value))?;
            }
        }
        EntryBody::Deleted => {}
    }
    Ok(dict.into_any())
}

/// The events of one partition during one call of a processor.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamSource {
    events: RawPartitionEvents,
    shape: StreamEventFormat,
    ready_requested: Arc<Notify>,
}

impl StreamSource {
    pub(super) fn new(
        events: RawPartitionEvents,
        shape: StreamEventFormat,
        ready_requested: Arc<Notify>,
    ) -> StreamSource {
        StreamSource { events, shape, ready_requested }
    }
}

#[pymethods]
impl StreamSource {
    #[getter]
    fn partition(&self) -> u32 {
        self.events.partition()
    }

    /// Key and epoch of the partition's lock. Code with side effects compares them to prove
    /// ownership.
    #[getter]
    fn fence(&self) -> (String, u64) {
        let fence = self.events.fence_token();
        (fence.key, fence.epoch.0)
    }

    /// Marks all events taken so far as processed.
    fn complete(&self) {
        self.events.complete();
    }

    /// Takes the next event. Returns `None` if there is none yet, `...` if the processor should
    /// return.
    fn take<'py>(
        &self,
        py: Python<'py>,
        partition: &Bound<'py, PyAny>,
        group: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.events.poll() {
            PollOutcome::Empty => Ok(py.None().into_bound(py)),
            PollOutcome::End => Ok(PyEllipsis::get(py).to_owned().into_any()),
            PollOutcome::Event(RawEvent { entry, replayed }) => {
                let event = StreamEvent {
                    partition: partition.clone().unbind(),
                    group: group.clone().unbind(),
                    xid: entry.id.to_string(),
                    recovering: replayed,
                    shape: self.shape,
                    body: Mutex::new(entry.body),
                };
                Ok(Bound::new(py, event)?.into_any())
            }
        }
    }

    /// Completes the events taken so far, takes the next event and converts it with `read`. If
    /// `read` fails, the failure policy handles the event, and the processor should return.
    fn record<'py>(&self, py: Python<'py>, read: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.events.complete();
        match self.events.poll() {
            PollOutcome::Empty => Ok(py.None().into_bound(py)),
            PollOutcome::End => Ok(PyEllipsis::get(py).to_owned().into_any()),
            PollOutcome::Event(event) => {
                match self.shape.content(py, &event.entry.body).and_then(|content| read.call1((content,))) {
                    Err(error) if error.is_instance_of::<PyException>(py) => {
                        self.events.reject_last(error.to_string().into());
                        Ok(PyEllipsis::get(py).to_owned().into_any())
                    }
                    outcome => outcome,
                }
            }
        }
    }

    /// Puts the last `count` events back.
    fn put_back(&self, count: usize) {
        self.events.requeue_last(count);
    }

    /// Passes the last event taken to the failure policy, because it cannot be decoded.
    fn reject_last(&self, error: String) {
        self.events.reject_last(error.into());
    }

    /// Requests a `ready` message for the time when there is an event to take or a reason to
    /// return.
    fn request_ready(&self) {
        self.ready_requested.notify_one();
    }
}

/// One event as stored in its stream.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamEvent {
    /// The partition that it came from.
    #[pyo3(get)]
    partition: Py<PyAny>,
    /// The processor's name.
    #[pyo3(get)]
    group: Py<PyAny>,
    xid: String,
    /// Whether an earlier owner of the partition had already taken it.
    #[pyo3(get)]
    recovering: bool,
    shape: StreamEventFormat,
    body: Mutex<EntryBody>,
}

#[pymethods]
impl StreamEvent {
    /// Its id in the partition.
    #[getter]
    fn xid<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.xid.as_bytes())
    }

    /// Its fields, with names and values as bytes. Middleware may replace them.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fields(py, &self.body(), |name| PyBytes::new(py, name).into_any())
    }

    #[setter]
    fn set_data(&self, data: &Bound<'_, PyDict>) -> PyResult<()> {
        let fields = data.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?)));
        let fields: Vec<(Vec<u8>, Vec<u8>)> = fields.collect::<PyResult<_>>()?;
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = EntryBody::Fields(fields);
        Ok(())
    }

    /// Converts its content to a record with `read`.
    fn load<'py>(&self, py: Python<'py>, read: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        read.call1((self.shape.content(py, &self.body())?,))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<Event {} of {}>", self.xid, self.partition.bind(py))
    }
}

impl StreamEvent {
    fn body(&self) -> EntryBody {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

//! The mailbox between the engine thread and one asyncio loop: the engine pushes messages and
//! signals an eventfd; the loop watches the eventfd and collects all messages at once. One signal
//! covers every message until the loop collects. It does not interpret messages; `squall.streams`
//! does.

use pyo3::{prelude::*, types::PyList};
use rustix::event::{EventfdFlags, eventfd};
use squall_streams::EntryId;
use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{OpenedStream, StreamAppConnection, coroutine_run::StreamRunHandle, partition_events::StreamSource};

/// An error for Python: `kind` selects the exception or exit code, `text` is its message.
#[derive(Debug, Clone)]
pub(crate) struct StreamBridgeError {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// A message for the loop. It holds no Python objects, because any thread may drop it.
pub(super) enum LoopMessage {
    Connected(Result<StreamAppConnection, StreamBridgeError>),
    Opened(Result<OpenedStream, StreamBridgeError>),
    Sent(Result<Vec<EntryId>, StreamBridgeError>),
    /// Start this processor on a partition.
    Call {
        processor: usize,
        handle: StreamRunHandle,
        source: StreamSource,
    },
    /// Run this background task once.
    Task {
        task: usize,
        handle: StreamRunHandle,
    },
    /// The partition of a call has an event to take, or a reason to return.
    Ready,
    /// Cancel a call or task, because the engine has dropped it.
    Cancel,
    /// The worker has ended.
    Ended(Result<(), StreamBridgeError>),
}

/// The part that both threads share.
pub(super) struct LoopMailbox {
    messages: Mutex<Vec<(u64, LoopMessage)>>,
    wake_fd: OwnedFd,
}

impl LoopMailbox {
    pub(super) fn push(&self, id: u64, message: LoopMessage) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push((id, message));
        if messages.len() == 1 {
            // Writing fails only if the counter is full, and then the eventfd is readable already.
            let _ = rustix::io::write(&self.wake_fd, &1u64.to_ne_bytes());
        }
    }
}

/// An id that is unique among the calls, tasks and requests of this process.
pub(super) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The mailbox of one asyncio loop.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamMailbox {
    pub(super) mailbox: Arc<LoopMailbox>,
}

#[pymethods]
impl StreamMailbox {
    #[new]
    fn new() -> PyResult<StreamMailbox> {
        let wake_fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        Ok(StreamMailbox { mailbox: Arc::new(LoopMailbox { messages: Mutex::default(), wake_fd }) })
    }

    /// The descriptor that the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.mailbox.wake_fd.as_raw_fd()
    }

    /// Takes all messages: `(kind, id, content)`.
    fn collect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let messages = {
            let mut messages = self.mailbox.messages.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = rustix::io::read(&self.mailbox.wake_fd, &mut [0u8; 8]);
            std::mem::take(&mut *messages)
        };
        let list = PyList::empty(py);
        for (id, message) in messages {
            let (kind, content) = message_to_python(py, message)?;
            list.append((kind, id, content))?;
        }
        Ok(list)
    }
}

fn message_to_python<'py>(py: Python<'py>, message: LoopMessage) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
    let none = || py.None().into_bound(py);
    let failed = |error: StreamBridgeError| Ok(("failed", (error.kind, error.text).into_pyobject(py)?.into_any()));
    match message {
        LoopMessage::Connected(Ok(link)) => Ok(("done", Bound::new(py, link)?.into_any())),
        LoopMessage::Opened(Ok(stream)) => Ok(("done", Bound::new(py, stream)?.into_any())),
        LoopMessage::Sent(Ok(ids)) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            Ok(("done", ids.into_pyobject(py)?.into_any()))
        }
        LoopMessage::Connected(Err(error)) | LoopMessage::Opened(Err(error)) | LoopMessage::Sent(Err(error)) => {
            failed(error)
        }
        LoopMessage::Call { processor, handle, source } => {
            let source = Bound::new(py, source)?;
            Ok(("call", (processor, Bound::new(py, handle)?, source).into_pyobject(py)?.into_any()))
        }
        LoopMessage::Task { task, handle } => {
            Ok(("task", (task, Bound::new(py, handle)?, py.None()).into_pyobject(py)?.into_any()))
        }
        LoopMessage::Ready => Ok(("ready", none())),
        LoopMessage::Cancel => Ok(("cancel", none())),
        LoopMessage::Ended(Ok(())) => Ok(("done", none())),
        LoopMessage::Ended(Err(error)) => failed(error),
    }
}

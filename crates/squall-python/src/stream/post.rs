//! The mailbox of one asyncio loop: the engine leaves messages and rings; the loop, which watches the bell's descriptor, collects
//! them all at once. One ring serves every message that gathers until the loop gets there.

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

use super::{Stream, StreamLink, source::StreamSource, turn::StreamTurn};

/// What can be told to people and mapped to an exception or exit code: a word for programs, and a sentence.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Something for the loop. Holds no Python objects: it may be dropped on any thread.
pub(super) enum Message {
    Connected(Result<StreamLink, Trouble>),
    Opened(Result<Stream, Trouble>),
    Sent(Result<Vec<EntryId>, Trouble>),
    /// Run this processor over a partition.
    Call {
        processor: usize,
        turn: StreamTurn,
        source: StreamSource,
    },
    /// Run this background task once.
    Task {
        task: usize,
        turn: StreamTurn,
    },
    /// The partition of a call has something for it.
    Ready,
    /// A call or task must stop: its time is over.
    Cancel,
    /// The worker has ended.
    Ended(Result<(), Trouble>),
}

/// The shared half.
pub(super) struct Post {
    letters: Mutex<Vec<(u64, Message)>>,
    bell: OwnedFd,
}

impl Post {
    pub(super) fn leave(&self, id: u64, message: Message) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.push((id, message));
        if letters.len() == 1 {
            // Cannot fail but by being full, and then it rings already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// A number that no other call, task or request of this process has.
pub(super) fn ticket() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The mailbox of one asyncio loop.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamPost {
    pub(super) post: Arc<Post>,
}

#[pymethods]
impl StreamPost {
    #[new]
    fn new() -> PyResult<StreamPost> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        Ok(StreamPost { post: Arc::new(Post { letters: Mutex::default(), bell }) })
    }

    /// What the loop has to watch for reading.
    fn fileno(&self) -> i32 {
        self.post.bell.as_raw_fd()
    }

    /// Everything that has come: `(kind, id, content)`.
    fn collect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let letters = {
            let mut letters = self.post.letters.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = rustix::io::read(&self.post.bell, &mut [0u8; 8]);
            std::mem::take(&mut *letters)
        };
        let list = PyList::empty(py);
        for (id, message) in letters {
            let (kind, content) = unfold(py, message)?;
            list.append((kind, id, content))?;
        }
        Ok(list)
    }
}

fn unfold<'py>(py: Python<'py>, message: Message) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
    let nothing = || py.None().into_bound(py);
    let failed = |trouble: Trouble| Ok(("failed", (trouble.kind, trouble.text).into_pyobject(py)?.into_any()));
    match message {
        Message::Connected(Ok(link)) => Ok(("done", Bound::new(py, link)?.into_any())),
        Message::Opened(Ok(stream)) => Ok(("done", Bound::new(py, stream)?.into_any())),
        Message::Sent(Ok(ids)) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            Ok(("done", ids.into_pyobject(py)?.into_any()))
        }
        Message::Connected(Err(trouble)) | Message::Opened(Err(trouble)) | Message::Sent(Err(trouble)) => {
            failed(trouble)
        }
        Message::Call { processor, turn, source } => {
            let source = Bound::new(py, source)?;
            Ok(("call", (processor, Bound::new(py, turn)?, source).into_pyobject(py)?.into_any()))
        }
        Message::Task { task, turn } => {
            Ok(("task", (task, Bound::new(py, turn)?, py.None()).into_pyobject(py)?.into_any()))
        }
        Message::Ready => Ok(("ready", nothing())),
        Message::Cancel => Ok(("cancel", nothing())),
        Message::Ended(Ok(())) => Ok(("done", nothing())),
        Message::Ended(Err(trouble)) => failed(trouble),
    }
}

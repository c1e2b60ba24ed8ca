//! One run of a Python coroutine on behalf of the engine: asked for by post, ended by its word, cancelled when the engine gives up.

use pyo3::prelude::*;
use squall_streams::BoxError;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

use super::post::{Message, Post, ticket};

type Verdict = Result<(), String>;

/// Python's end: it says how the run ended.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamTurn {
    verdict: Mutex<Option<oneshot::Sender<Verdict>>>,
}

#[pymethods]
impl StreamTurn {
    /// The coroutine has ended; with an error, if these words are given.
    #[pyo3(signature = (error=None))]
    fn finish(&self, error: Option<String>) {
        if let Some(verdict) = self.verdict.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nobody listens to one that was given up on.
            let _ = verdict.send(error.map_or(Ok(()), Err));
        }
    }
}

/// The engine's end. Dropped before the verdict, it cancels the coroutine.
pub(super) struct Awaited {
    id: u64,
    post: Arc<Post>,
    verdict: oneshot::Receiver<Verdict>,
    ended: bool,
}

impl Awaited {
    /// A run to be, and what Python gets to answer it.
    pub(super) fn new(post: &Arc<Post>) -> (Awaited, StreamTurn) {
        let (sender, verdict) = oneshot::channel();
        let awaited = Awaited { id: ticket(), post: post.clone(), verdict, ended: false };
        (awaited, StreamTurn { verdict: Mutex::new(Some(sender)) })
    }

    /// Tells the loop something about this run.
    pub(super) fn tell(&self, message: Message) {
        self.post.leave(self.id, message);
    }

    /// How it ended. Safe to cancel.
    pub(super) async fn ended(&mut self) -> Result<(), BoxError> {
        let verdict = (&mut self.verdict).await;
        self.ended = true;
        match verdict {
            Ok(verdict) => verdict.map_err(BoxError::from),
            Err(_) => Err("the Python event loop has ended".into()),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(Message::Cancel);
        }
    }
}

//! One run of a Python coroutine on behalf of the engine: asked for by post, ended by its word, cancelled when the engine gives up.

use pyo3::prelude::*;
use squall_streams::BoxError;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

use super::mailbox::{LoopMailbox, LoopMessage, next_id};

type CoroutineResult = Result<(), String>;

/// Python's end: it says how the run ended.
#[pyclass(name = "StreamTurn", frozen, module = "squall._squall")]
pub(crate) struct StreamRunHandle {
    verdict: Mutex<Option<oneshot::Sender<CoroutineResult>>>,
}

#[pymethods]
impl StreamRunHandle {
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
pub(super) struct PendingCoroutineRun {
    id: u64,
    mailbox: Arc<LoopMailbox>,
    result: oneshot::Receiver<CoroutineResult>,
    ended: bool,
}

impl PendingCoroutineRun {
    /// A run to be, and what Python gets to answer it.
    pub(super) fn new(post: &Arc<LoopMailbox>) -> (PendingCoroutineRun, StreamRunHandle) {
        let (sender, verdict) = oneshot::channel();
        let awaited = PendingCoroutineRun { id: next_id(), mailbox: post.clone(), result: verdict, ended: false };
        (awaited, StreamRunHandle { verdict: Mutex::new(Some(sender)) })
    }

    /// Tells the loop something about this run.
    pub(super) fn send_message(&self, message: LoopMessage) {
        self.mailbox.push(self.id, message);
    }

    /// How it ended. Safe to cancel.
    pub(super) async fn wait_finished(&mut self) -> Result<(), BoxError> {
        let verdict = (&mut self.result).await;
        self.ended = true;
        match verdict {
            Ok(verdict) => verdict.map_err(BoxError::from),
            Err(_) => Err("the Python event loop has ended".into()),
        }
    }
}

impl Drop for PendingCoroutineRun {
    fn drop(&mut self) {
        if !self.ended {
            self.send_message(LoopMessage::Cancel);
        }
    }
}

//! One run of a Python coroutine for the engine: the engine starts it with a message, Python
//! reports its result, and the engine cancels it by dropping its end. It does not run the
//! coroutine: the asyncio loop does. `stream_worker` creates runs.

use pyo3::prelude::*;
use squall_streams::BoxError;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

use super::mailbox::{LoopMailbox, LoopMessage, next_id};

type CoroutineResult = Result<(), String>;

/// Python's end, which reports how the run ended.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamRunHandle {
    result_sender: Mutex<Option<oneshot::Sender<CoroutineResult>>>,
}

#[pymethods]
impl StreamRunHandle {
    /// Reports that the coroutine has ended; `error` is the text of its exception, if it raised
    /// one.
    #[pyo3(signature = (error=None))]
    fn finish(&self, error: Option<String>) {
        if let Some(sender) = self.result_sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Sending fails if the engine has dropped the run.
            let _ = sender.send(error.map_or(Ok(()), Err));
        }
    }
}

/// The engine's end. Dropping it before the run has ended cancels the coroutine.
pub(super) struct PendingCoroutineRun {
    id: u64,
    mailbox: Arc<LoopMailbox>,
    result: oneshot::Receiver<CoroutineResult>,
    ended: bool,
}

impl PendingCoroutineRun {
    /// Creates both ends of a run. Nothing runs before the engine sends its message.
    pub(super) fn new(mailbox: &Arc<LoopMailbox>) -> (PendingCoroutineRun, StreamRunHandle) {
        let (sender, result) = oneshot::channel();
        let run = PendingCoroutineRun { id: next_id(), mailbox: mailbox.clone(), result, ended: false };
        (run, StreamRunHandle { result_sender: Mutex::new(Some(sender)) })
    }

    /// Sends the loop a message about this run.
    pub(super) fn send_message(&self, message: LoopMessage) {
        self.mailbox.push(self.id, message);
    }

    /// Waits until the run has ended. Safe to cancel.
    pub(super) async fn wait_finished(&mut self) -> Result<(), BoxError> {
        let result = (&mut self.result).await;
        self.ended = true;
        match result {
            Ok(result) => result.map_err(BoxError::from),
            Err(_) => Err("the asyncio loop ended before the coroutine did".into()),
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

//! One call of a plain function on a thread of its own: performs the operations that the function
//! waits for, and keeps its time limit. [`blocking_threads`](crate::blocking_threads) runs the
//! function. Called by the user in place of [`FunctionCall::drive`] if plain functions may block.

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyTuple};
use squall_metrics::{MetricKey, Outcome};
use std::time::Instant;

use super::{PythonThreadContext, function_call::FunctionCall};
use crate::{
    blocking_threads::{BlockingThreads, ThreadCall, ThreadCallEvent, ThreadPermit},
    context_variables::ContextVariables,
    custom_metrics,
    operation::Operation,
    python_scenario::ScenarioFunction,
};

/// How a call on a thread ended.
pub(super) enum ThreadCallEnd {
    /// The function has ended.
    Returned(PyResult<()>),
    /// The function did not end in time and still runs.
    GivenUp(PyResult<()>),
}

/// Names the line of a function that still runs when its call is over, for the report.
struct CutOffGuard<'a> {
    thread: &'a PythonThreadContext,
    name: &'a str,
    started: Instant,
    call: ThreadCall,
    ended: bool,
}

impl Drop for CutOffGuard<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some(location) = Python::attach(|py| self.call.location(py)) {
            let (recorder, script) = (&self.thread.recorder, &self.thread.scenario);
            let metric = recorder.metric(MetricKey::group(script.full_metric_name(self.name)));
            let message = format!("{} was cut off at {location}, which had not returned", self.name);
            recorder.note_error(metric, self.started, Outcome::ABORTED, &message);
        }
    }
}

impl FunctionCall<'_> {
    /// Runs `function` on one of `threads`, for which it has `permit`.
    pub(super) async fn run_on_thread(
        &mut self,
        (threads, permit): (&BlockingThreads, ThreadPermit),
        function: &ScenarioFunction,
        arguments: &Py<PyTuple>,
        context: &ContextVariables,
    ) -> ThreadCallEnd {
        let (thread, name, started) = (self.thread, self.name, Instant::now());
        let mut guard = match threads.start(permit, function, arguments, context) {
            Ok(call) => CutOffGuard { thread, name, started, call, ended: false },
            Err(error) => return ThreadCallEnd::Returned(Err(PyRuntimeError::new_err(error.to_string()))),
        };
        let end = self.perform_until_end(&mut guard.call).await;
        guard.ended = matches!(end, ThreadCallEnd::Returned(_));
        end
    }

    async fn perform_until_end(&mut self, call: &mut ThreadCall) -> ThreadCallEnd {
        loop {
            let event = self.next_event(call).await;
            call.take_samples().iter().for_each(custom_metrics::record_sample);
            match event {
                Some(ThreadCallEvent::Ended(result)) => return ThreadCallEnd::Returned(self.final_result(result)),
                Some(ThreadCallEvent::AwaitsOperation(operation)) => {
                    if !self.perform_for_thread(call, operation).await {
                        return ThreadCallEnd::GivenUp(self.final_result(Ok(())));
                    }
                }
                None if self.timed_out => return ThreadCallEnd::GivenUp(self.final_result(Ok(()))),
                None => {
                    self.grant_cleanup_time();
                    Python::attach(|py| call.raise(self.timeout_error(py).get_type(py).as_any()));
                }
            }
        }
    }

    /// The next event of `call`; `None` if its time limit passed first.
    async fn next_event(&self, call: &mut ThreadCall) -> Option<ThreadCallEvent> {
        match self.time_limit {
            None => Some(call.next_event().await),
            Some((deadline, _)) => tokio::time::timeout_at(deadline.into(), call.next_event()).await.ok(),
        }
    }

    /// Performs the operation that the function waits for and resumes the function. `false` if the
    /// time limit of its clean-up passed first.
    async fn perform_for_thread(&mut self, call: &ThreadCall, operation: Py<Operation>) -> bool {
        let work = Python::attach(|py| operation.borrow_mut(py).take_work());
        let result = match work {
            None => Err(PyRuntimeError::new_err(
                "this request is already in progress; call the client again to send another one",
            )),
            Some(work) => match Box::pin(self.perform_in_time(work)).await {
                Some(result) => result,
                None if self.timed_out => return false,
                None => {
                    self.grant_cleanup_time();
                    Err(Python::attach(|py| self.timeout_error(py)))
                }
            },
        };
        Python::attach(|py| {
            operation.borrow_mut(py).set_result(result);
            drop(operation);
        });
        call.resume();
        true
    }
}

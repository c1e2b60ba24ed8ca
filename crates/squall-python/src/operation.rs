//! The operations that scenario code awaits. An awaited operation yields itself once, which is how
//! the driver gets it, and returns its result when the driver resumes the code. For a user on
//! asyncio it is also an asyncio future. It performs nothing itself. The client, connections and
//! resources create operations.

use pyo3::{
    exceptions::{PyBaseException, PyRuntimeError, PyStopIteration},
    ffi,
    prelude::*,
    types::{PyDict, PyTuple, PyWeakrefMethods, PyWeakrefReference},
};
use std::time::Duration;

use crate::{
    asyncio_loop, exceptions,
    long_operation::LongOperation,
    not_awaited,
    operation_queue::{BackgroundCall, OperationQueue},
    resource_acquire::ResourceAcquire,
    routes::RoutedRequest,
};

/// Something that scenario code can await: a request, a batch of requests, a pause.
#[pyclass(module = "squall._squall", weakref)]
pub(crate) struct Operation {
    state: OperationState,
    /// Only for users on asyncio.
    future: Option<Box<AsyncioFutureState>>,
}

/// The part of an operation that makes it an asyncio future.
struct AsyncioFutureState {
    queue: Py<OperationQueue>,
    /// The flag `_asyncio_future_blocking` of asyncio's future protocol: set when the operation
    /// yields itself to the task that awaits it.
    blocking: bool,
    /// Done callbacks, with the context that each runs in.
    callbacks: Vec<(Py<PyAny>, Option<Py<PyAny>>)>,
    cancelled: bool,
    /// Set if a separate task awaits the operation: the call that must not end before that task.
    /// The task may be cancelled before it awaits the operation.
    background_call: Option<BackgroundCall>,
}

enum OperationState {
    Created(OperationWork),
    /// Awaited, but not yet taken by the driver.
    Submitted(OperationWork),
    /// Taken by the driver.
    InProgress,
    Done(PyResult<Py<PyAny>>),
    /// The operation failed and its exception was raised. The reference is weak: an exception holds
    /// the frames that it passed through, a frame may hold this operation, and the garbage
    /// collector does not see such a cycle. The copy, which was never raised, replaces the
    /// exception once that is freed.
    Raised(Py<PyWeakrefReference>, Option<Py<PyAny>>),
    Consumed,
}

/// What the driver has to do.
pub(crate) enum OperationWork {
    Request(RoutedRequest),
    Batch(Vec<RoutedRequest>),
    Sleep(Duration),
    Acquire(Box<ResourceAcquire>),
    Long(LongOperation),
}

impl Operation {
    pub(crate) fn new(work: OperationWork, queue: Option<Py<OperationQueue>>) -> Operation {
        Operation { state: OperationState::Created(work), future: queue.map(AsyncioFutureState::new) }
    }

    /// An operation that is already done.
    pub(crate) fn completed(value: Py<PyAny>) -> Operation {
        Operation { state: OperationState::Done(Ok(value)), future: None }
    }

    /// An operation that the driver completes later.
    pub(crate) fn in_progress(queue: Py<OperationQueue>) -> Operation {
        Operation { state: OperationState::InProgress, future: Some(AsyncioFutureState::new(queue)) }
    }

    /// Takes the work for the driver; `None` if it was already taken.
    pub(crate) fn take_work(&mut self) -> Option<OperationWork> {
        match std::mem::replace(&mut self.state, OperationState::InProgress) {
            OperationState::Created(work) | OperationState::Submitted(work) => Some(work),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Stores the result for the code that awaits it.
    pub(crate) fn set_result(&mut self, result: PyResult<Py<PyAny>>) {
        self.state = OperationState::Done(result);
    }

    /// Stores the result and runs the done callbacks at once. Call it only between two iterations
    /// of the asyncio loop.
    pub(crate) fn complete_and_resume(slf: Py<Self>, py: Python<'_>, result: PyResult<Py<PyAny>>) {
        let callbacks = {
            let mut this = slf.borrow_mut(py);
            if this.is_done() {
                return;
            }
            this.state = OperationState::Done(result);
            this.future.as_mut().map(|future| std::mem::take(&mut future.callbacks)).unwrap_or_default()
        };
        for (callback, context) in callbacks {
            let called = match context {
                Some(context) => context.call_method1(py, "run", (callback, slf.clone_ref(py))),
                None => callback.call1(py, (slf.clone_ref(py),)),
            };
            if let Err(error) = called {
                error.write_unraisable(py, None);
            }
        }
    }

    /// Whether a separate task awaits the operation and the function that created it must wait for
    /// that task.
    pub(crate) fn is_background(&self) -> bool {
        self.future.as_ref().is_some_and(|future| future.background_call.is_some())
    }

    /// Returns `error` to be raised, and remembers it without keeping it alive.
    #[cold]
    fn remember_raised(&mut self, py: Python<'_>, error: PyErr) -> PyErr {
        let copy = py.import("copy").and_then(|copy| copy.call_method1("copy", (error.value(py),)));
        let copy = copy.ok().map(Bound::unbind);
        self.state = PyWeakrefReference::new(error.value(py))
            .map_or(OperationState::Consumed, |weak| OperationState::Raised(weak.unbind(), copy));
        error
    }

    /// The exception that was raised before, or its copy.
    #[cold]
    fn raise_again(&mut self, py: Python<'_>) -> PyErr {
        let OperationState::Raised(error, copy) = &mut self.state else { return already_awaited_error() };
        match (error.bind(py).upgrade(), copy.take()) {
            (Some(error), unused_copy) => {
                *copy = unused_copy;
                PyErr::from_value(error)
            }
            (None, Some(copy)) => self.remember_raised(py, PyErr::from_value(copy.into_bound(py))),
            (None, None) => {
                PyRuntimeError::new_err("this request failed; its exception was raised where it was first awaited")
            }
        }
    }

    /// Submits the operation to the driver, unless it was submitted before.
    fn submit(slf: &Bound<'_, Self>) {
        let mut this = slf.borrow_mut();
        if let OperationState::Created(_) = this.state {
            if let OperationState::Created(work) = std::mem::replace(&mut this.state, OperationState::InProgress) {
                this.state = OperationState::Submitted(work);
            }
            if let Some(future) = &this.future {
                future.queue.get().submit(slf.clone().unbind());
            }
        }
    }
}

impl AsyncioFutureState {
    fn new(queue: Py<OperationQueue>) -> Box<AsyncioFutureState> {
        Box::new(AsyncioFutureState {
            queue,
            blocking: false,
            callbacks: Vec::new(),
            cancelled: false,
            background_call: None,
        })
    }
}

#[pymethods]
impl Operation {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<Self>>> {
        let mut this = slf.borrow_mut();
        match std::mem::replace(&mut this.state, OperationState::Consumed) {
            OperationState::Done(Ok(value)) => {
                if this.future.is_some() {
                    // An asyncio future keeps its result.
                    this.state = OperationState::Done(Ok(value.clone_ref(slf.py())));
                }
                return stop_iteration(value.into_bound(slf.py()));
            }
            OperationState::Done(Err(error)) if this.future.is_some() => {
                return Err(this.remember_raised(slf.py(), error));
            }
            OperationState::Done(Err(error)) => return Err(error),
            raised @ OperationState::Raised(..) => {
                this.state = raised;
                return Err(this.raise_again(slf.py()));
            }
            OperationState::Consumed => return Err(already_awaited_error()),
            waiting => this.state = waiting,
        }
        let is_new = matches!(this.state, OperationState::Created(_));
        match &mut this.future {
            Some(future) => future.blocking = true,
            None if is_new => return Ok(Some(slf.clone().unbind())),
            None => return Err(already_awaited_error()),
        }
        drop(this);
        Operation::submit(slf);
        Ok(Some(slf.clone().unbind()))
    }

    /// The result, for code that does not await.
    fn result(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.future.is_some() {
            return match &self.state {
                OperationState::Done(Ok(value)) => Ok(value.clone_ref(py)),
                OperationState::Done(Err(error)) => {
                    let error = error.clone_ref(py);
                    Err(self.remember_raised(py, error))
                }
                OperationState::Raised(..) => Err(self.raise_again(py)),
                _ => Err(exceptions::not_ready(py)),
            };
        }
        match std::mem::replace(&mut self.state, OperationState::Consumed) {
            OperationState::Done(result) => result,
            _ => Err(already_awaited_error()),
        }
    }

    /// Drops the work on purpose, so that the operation is not reported as not awaited.
    pub(crate) fn discard(&mut self) {
        drop(self.take_work());
    }

    /// Reading this attribute submits the operation. Asyncio reads it to find out whether an object
    /// is a future, and `asyncio.ensure_future` then expects the future to be running already.
    #[getter(_asyncio_future_blocking)]
    fn blocking(slf: &Bound<'_, Self>) -> Option<bool> {
        let blocking = slf.borrow().future.as_ref().map(|future| future.blocking);
        if blocking.is_some() {
            Operation::submit(slf);
        }
        blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&mut self, blocking: bool) {
        if let Some(future) = &mut self.future {
            future.blocking = blocking;
        }
    }

    /// Notes that a separate task will await the operation, unless that task is cancelled first.
    /// The function that created the operation does not end before `finish_background` is called.
    fn start_background(&mut self) {
        if let Some(future) = &mut self.future {
            future.background_call = Some(future.queue.get().add_background());
        }
    }

    /// Notes that the task of `start_background` has ended.
    #[pyo3(signature = (_task, /))]
    fn finish_background(&self, _task: &Bound<'_, PyAny>) {
        if let Some(future) = &self.future
            && let Some(background_call) = future.background_call
        {
            future.queue.get().finish_background(background_call);
        }
    }

    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        asyncio_loop::running_loop(py)
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let mut this = slf.borrow_mut();
        if this.is_done() {
            drop(this);
            return call_soon(slf, callback, context);
        }
        let Some(future) = &mut this.future else { return Err(already_awaited_error()) };
        future.callbacks.push((callback, context));
        drop(this);
        Operation::submit(slf);
        Ok(())
    }

    fn remove_done_callback(&mut self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(future) = &mut self.future else { return Ok(0) };
        let before = future.callbacks.len();
        let mut remaining = Vec::with_capacity(before);
        for entry in future.callbacks.drain(..) {
            if !entry.0.bind(py).eq(callback)? {
                remaining.push(entry);
            }
        }
        future.callbacks = remaining;
        Ok(before - future.callbacks.len())
    }

    /// Cancels the operation: code that awaits it gets a CancelledError.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut this = slf.borrow_mut();
        if this.is_done() || this.future.is_none() {
            return Ok(false);
        }
        let in_progress = matches!(this.state, OperationState::InProgress);
        this.state = OperationState::Done(Err(exceptions::cancelled(slf.py(), msg)));
        let Some(future) = &mut this.future else { return Ok(false) };
        future.cancelled = true;
        let callbacks = std::mem::take(&mut future.callbacks);
        if in_progress {
            future.queue.get().cancel(slf.clone().unbind());
        }
        drop(this);
        callbacks.into_iter().try_for_each(|(callback, context)| call_soon(slf, callback, context))?;
        Ok(true)
    }

    #[pyo3(name = "done")]
    fn is_done(&self) -> bool {
        matches!(self.state, OperationState::Done(_) | OperationState::Raised(..) | OperationState::Consumed)
    }

    fn cancelled(&self) -> bool {
        self.future.as_ref().is_some_and(|future| future.cancelled)
    }

    /// The exception that `asyncio.gather` raises when one of its futures was cancelled.
    fn _make_cancelled_error(&self, py: Python<'_>) -> Py<PyAny> {
        // A new exception each time: it holds the frames that it passes through, and those may hold
        // this operation.
        exceptions::cancelled(py, None).into_value(py).into_any()
    }

    fn exception(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let error = match &self.state {
            OperationState::Done(Err(error)) => {
                let error = error.clone_ref(py);
                self.remember_raised(py, error)
            }
            OperationState::Raised(..) => self.raise_again(py),
            OperationState::Done(Ok(_)) | OperationState::Consumed => return Ok(None),
            _ => return Err(exceptions::not_ready(py)),
        };
        if self.cancelled() { Err(error) } else { Ok(Some(error.into_value(py).into_any())) }
    }
}

/// Ends the iteration with `value`. Where possible it creates no exception object, because that
/// costs more than the rest of an await.
fn stop_iteration(value: Bound<'_, PyAny>) -> PyResult<Option<Py<Operation>>> {
    if value.is_none() {
        return Ok(None);
    }
    // Python would take a tuple for several arguments, and an exception for the one to raise.
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>() {
        return Err(PyStopIteration::new_err((value.unbind(),)));
    }
    // SAFETY: the thread is attached and both pointers are objects. An iterator ends with a value
    // by returning null with StopIteration set.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.as_ptr()) };
    Ok(None)
}

/// Schedules `callback` on the loop, as asyncio futures do.
fn call_soon(slf: &Bound<'_, Operation>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
    let py = slf.py();
    let options = PyDict::new(py);
    if let Some(context) = context {
        options.set_item("context", context)?;
    }
    asyncio_loop::running_loop(py)?.bind(py).call_method("call_soon", (callback, slf), Some(&options))?;
    asyncio_loop::wake_loop();
    Ok(())
}

#[cold]
fn already_awaited_error() -> PyErr {
    PyRuntimeError::new_err("this request was already awaited; call the client again to send another one")
}

impl Drop for Operation {
    fn drop(&mut self) {
        let OperationState::Created(work) = &self.state else { return };
        let queue = match &self.future {
            Some(future) if future.background_call.is_some() => return,
            future => future.as_ref().map(|future| &future.queue),
        };
        let (what, sent) = work.description();
        Python::attach(|py| not_awaited::warn_not_awaited(py, &what, &sent, queue));
    }
}

impl OperationWork {
    /// The call in the scenario, and the request that it would have sent.
    fn description(&self) -> (String, String) {
        match self {
            OperationWork::Request(call) => {
                (format!("client.{}", call.request().method().as_str().to_ascii_lowercase()), call.name.to_string())
            }
            OperationWork::Batch(calls) => ("client.batch".to_owned(), format!("a batch of {}", calls.len())),
            OperationWork::Sleep(_) => ("sleep".to_owned(), String::new()),
            OperationWork::Acquire(_) => ("resources.acquire".to_owned(), String::new()),
            OperationWork::Long(_) => ("a call of a stream, a WebSocket or client.cql".to_owned(), String::new()),
        }
    }
}

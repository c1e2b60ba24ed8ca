//! What a scenario awaits: an operation that the driver carries out. It yields itself once, which is how the driver gets it, and
//! ends with its result. For a user on asyncio it is a future of the loop's as well. Performs nothing.

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
    routes::PreparedCall,
};

/// Something to be awaited: a request, a batch of requests, a pause.
#[pyclass(module = "squall._squall", weakref)]
pub(crate) struct Operation {
    state: OperationState,
    /// Only for users that live on asyncio.
    hosted: Option<Box<AsyncioFutureState>>,
}

/// An operation that asyncio's tasks wait for.
struct AsyncioFutureState {
    queue: Py<OperationQueue>,
    /// Set while it is being handed to the task that awaits it: the protocol of asyncio's futures.
    blocking: bool,
    /// Whom to tell, and in which context.
    callbacks: Vec<(Py<PyAny>, Option<Py<PyAny>>)>,
    cancelled: bool,
    /// The function that waits for it, if a task of its own has taken it over, which may still give it up unasked.
    background_call: Option<BackgroundCall>,
}

enum OperationState {
    Created(OperationWork),
    /// Somebody waits, the driver does not have it yet.
    Submitted(OperationWork),
    /// The driver has it.
    InProgress,
    Done(PyResult<Py<PyAny>>),
    /// It failed, and that was raised. Held by a weak reference: an exception holds the frames that it went through, one of them may hold
    /// this, and the collector of garbage does not see such a circle. A copy that was raised nowhere stands in when it is gone.
    Raised(Py<PyWeakrefReference>, Option<Py<PyAny>>),
    Consumed,
}

/// What is to be done.
pub(crate) enum OperationWork {
    Request(PreparedCall),
    Batch(Vec<PreparedCall>),
    Sleep(Duration),
    Acquire(Box<ResourceAcquire>),
    Long(LongOperation),
}

impl Operation {
    pub(crate) fn new(work: OperationWork, port: Option<Py<OperationQueue>>) -> Operation {
        Operation { state: OperationState::Created(work), hosted: port.map(AsyncioFutureState::new) }
    }

    /// One that is done already.
    pub(crate) fn completed(value: Py<PyAny>) -> Operation {
        Operation { state: OperationState::Done(Ok(value)), hosted: None }
    }

    /// One that the driver knows of.
    pub(crate) fn in_progress(port: Py<OperationQueue>) -> Operation {
        Operation { state: OperationState::InProgress, hosted: Some(AsyncioFutureState::new(port)) }
    }

    /// Takes the work for the driver; `None` if somebody already has.
    pub(crate) fn take_work(&mut self) -> Option<OperationWork> {
        match std::mem::replace(&mut self.state, OperationState::InProgress) {
            OperationState::Created(work) | OperationState::Submitted(work) => Some(work),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Leaves the result for the code that awaits it.
    pub(crate) fn set_result(&mut self, result: PyResult<Py<PyAny>>) {
        self.state = OperationState::Done(result);
    }

    /// Leaves the result and lets those who wait for it go on, now. Only between two steps of asyncio's loop.
    pub(crate) fn complete_and_resume(slf: Py<Self>, py: Python<'_>, result: PyResult<Py<PyAny>>) {
        let callbacks = {
            let mut this = slf.borrow_mut(py);
            if this.is_done() {
                return;
            }
            this.state = OperationState::Done(result);
            this.hosted.as_mut().map(|hosted| std::mem::take(&mut hosted.callbacks)).unwrap_or_default()
        };
        for (callback, context) in callbacks {
            let told = match context {
                Some(context) => context.call_method1(py, "run", (callback, slf.clone_ref(py))),
                None => callback.call1(py, (slf.clone_ref(py),)),
            };
            if let Err(error) = told {
                error.write_unraisable(py, None);
            }
        }
    }

    /// Whether the function that made it waits for it, though a task of its own awaits it.
    pub(crate) fn is_background(&self) -> bool {
        self.hosted.as_ref().is_some_and(|hosted| hosted.background_call.is_some())
    }

    /// Gives `error` to whoever raises it, and remembers it for as long as somebody else does.
    #[cold]
    fn remember_raised(&mut self, py: Python<'_>, error: PyErr) -> PyErr {
        let copy = py.import("copy").and_then(|copy| copy.call_method1("copy", (error.value(py),)));
        let copy = copy.ok().map(Bound::unbind);
        self.state = PyWeakrefReference::new(error.value(py))
            .map_or(OperationState::Consumed, |weak| OperationState::Raised(weak.unbind(), copy));
        error
    }

    /// What was raised before.
    #[cold]
    fn raise_again(&mut self, py: Python<'_>) -> PyErr {
        let OperationState::Raised(error, copy) = &mut self.state else { return already_awaited_error() };
        match (error.bind(py).upgrade(), copy.take()) {
            (Some(error), kept) => {
                *copy = kept;
                PyErr::from_value(error)
            }
            (None, Some(kept)) => self.remember_raised(py, PyErr::from_value(kept.into_bound(py))),
            (None, None) => PyRuntimeError::new_err("this request failed, which was raised where it was awaited"),
        }
    }

    /// Hands it to the driver, if nobody has yet.
    fn submit(slf: &Bound<'_, Self>) {
        let mut this = slf.borrow_mut();
        if let OperationState::Created(_) = this.state {
            if let OperationState::Created(work) = std::mem::replace(&mut this.state, OperationState::InProgress) {
                this.state = OperationState::Submitted(work);
            }
            if let Some(hosted) = &this.hosted {
                hosted.queue.get().submit(slf.clone().unbind());
            }
        }
    }
}

impl AsyncioFutureState {
    fn new(port: Py<OperationQueue>) -> Box<AsyncioFutureState> {
        Box::new(AsyncioFutureState {
            queue: port,
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
                if this.hosted.is_some() {
                    // A future of asyncio's keeps its result.
                    this.state = OperationState::Done(Ok(value.clone_ref(slf.py())));
                }
                return stop_iteration(value.into_bound(slf.py()));
            }
            OperationState::Done(Err(error)) if this.hosted.is_some() => {
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
        let fresh = matches!(this.state, OperationState::Created(_));
        match &mut this.hosted {
            Some(hosted) => hosted.blocking = true,
            None if fresh => return Ok(Some(slf.clone().unbind())),
            None => return Err(already_awaited_error()),
        }
        drop(this);
        Operation::submit(slf);
        Ok(Some(slf.clone().unbind()))
    }

    /// What came of it, for code that does not await.
    fn result(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.hosted.is_some() {
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

    /// Says that nobody will await it, and that whoever made it knows.
    #[pyo3(name = "forgo")]
    pub(crate) fn discard(&mut self) {
        drop(self.take_work());
    }

    /// Whoever looks at it wants to know whether this is a future. `asyncio.ensure_future` does nothing more with one, because futures are
    /// under way; so is this one from then on.
    #[getter(_asyncio_future_blocking)]
    fn blocking(slf: &Bound<'_, Self>) -> Option<bool> {
        let blocking = slf.borrow().hosted.as_ref().map(|hosted| hosted.blocking);
        if blocking.is_some() {
            Operation::submit(slf);
        }
        blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&mut self, blocking: bool) {
        if let Some(hosted) = &mut self.hosted {
            hosted.blocking = blocking;
        }
    }

    /// Says that a task will await it, unless that is cancelled first. The function that made it does not end before `kept`.
    #[pyo3(name = "promise")]
    fn start_background(&mut self) {
        if let Some(hosted) = &mut self.hosted {
            hosted.background_call = Some(hosted.queue.get().add_background());
        }
    }

    /// Says that this task has ended.
    #[pyo3(signature = (_task, /))]
    #[pyo3(name = "kept")]
    fn finish_background(&self, _task: &Bound<'_, PyAny>) {
        if let Some(hosted) = &self.hosted
            && let Some(promise) = hosted.background_call
        {
            hosted.queue.get().finish_background(promise);
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
        let Some(hosted) = &mut this.hosted else { return Err(already_awaited_error()) };
        hosted.callbacks.push((callback, context));
        drop(this);
        Operation::submit(slf);
        Ok(())
    }

    fn remove_done_callback(&mut self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(hosted) = &mut self.hosted else { return Ok(0) };
        let before = hosted.callbacks.len();
        let mut kept = Vec::with_capacity(before);
        for entry in hosted.callbacks.drain(..) {
            if !entry.0.bind(py).eq(callback)? {
                kept.push(entry);
            }
        }
        hosted.callbacks = kept;
        Ok(before - hosted.callbacks.len())
    }

    /// Gives it up: whoever awaits it gets a CancelledError.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut this = slf.borrow_mut();
        if this.is_done() || this.hosted.is_none() {
            return Ok(false);
        }
        let taken = matches!(this.state, OperationState::InProgress);
        this.state = OperationState::Done(Err(exceptions::cancelled(slf.py(), msg)));
        let Some(hosted) = &mut this.hosted else { return Ok(false) };
        hosted.cancelled = true;
        let callbacks = std::mem::take(&mut hosted.callbacks);
        if taken {
            hosted.queue.get().cancel(slf.clone().unbind());
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
        self.hosted.as_ref().is_some_and(|hosted| hosted.cancelled)
    }

    /// What `gather` gives to whoever awaits it when one of its futures was given up.
    fn _make_cancelled_error(&self, py: Python<'_>) -> Py<PyAny> {
        // A new one: it holds the frames that it goes through, and they may hold this.
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

/// Ends the iteration with `value`: the usual ones without making an exception of them, which costs more than the rest of an await.
fn stop_iteration(value: Bound<'_, PyAny>) -> PyResult<Option<Py<Operation>>> {
    if value.is_none() {
        return Ok(None);
    }
    // A tuple would be taken for several arguments, an exception for the one that is raised.
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>() {
        return Err(PyStopIteration::new_err((value.unbind(),)));
    }
    // SAFETY: attached; both are objects. To return nothing with an exception set is how an iterator ends with a value.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.as_ptr()) };
    Ok(None)
}

/// Calls `callback` from the loop, as its futures do when nobody may be called at once.
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
    PyRuntimeError::new_err("this request was already awaited; call the client again for another one")
}

impl Drop for Operation {
    fn drop(&mut self) {
        let OperationState::Created(work) = &self.state else { return };
        let port = match &self.hosted {
            Some(hosted) if hosted.background_call.is_some() => return,
            hosted => hosted.as_ref().map(|hosted| &hosted.queue),
        };
        let (what, sent) = work.description();
        Python::attach(|py| not_awaited::warn_not_awaited(py, &what, &sent, port));
    }
}

impl OperationWork {
    /// What the scenario calls it, and the request that it would have been.
    fn description(&self) -> (String, String) {
        match self {
            OperationWork::Request(call) => {
                (format!("client.{}", call.request().method().as_str().to_ascii_lowercase()), call.name.to_string())
            }
            OperationWork::Batch(calls) => ("client.batch".to_owned(), format!("a batch of {}", calls.len())),
            OperationWork::Sleep(_) => ("sleep".to_owned(), String::new()),
            OperationWork::Acquire(_) => ("resources.acquire".to_owned(), String::new()),
            OperationWork::Long(_) => ("a call of a stream or a WebSocket".to_owned(), String::new()),
        }
    }
}

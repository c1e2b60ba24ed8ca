//! Resources: borrows from the run's pools for a user, and has its factory make more where a pool has none left. Keeps nothing: what is
//! held by whom is known where the pools are.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_engine::{ResourceClient, ResourceError, ThreadRecorder};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    exceptions,
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
};

/// What somebody wants out of a pool.
pub(crate) struct ResourceAcquire {
    pool: String,
    wait: Duration,
    /// From a number to a payload, where things are made as they are needed.
    factory: Option<Py<PyAny>>,
    /// Most things that are made.
    limit: Option<u64>,
}

/// Something that a user holds; when nobody refers to it any more, it goes back.
#[pyclass(name = "Loan", frozen, module = "squall._squall")]
pub(crate) struct PyResourceLease {
    loan: Mutex<Option<squall_engine::ResourceLease>>,
    /// Its name in the pool.
    #[pyo3(get)]
    id: String,
    /// JSON.
    #[pyo3(get)]
    payload: String,
}

#[pymethods]
impl PyResourceLease {
    /// Gives it back. Doing it twice is doing it once.
    fn release(&self) {
        drop(self.loan.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether it is certainly nobody else's.
    #[pyo3(name = "held")]
    fn is_held(&self) -> bool {
        self.loan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(squall_engine::ResourceLease::is_valid)
    }
}

/// Borrows something out of a pool, within `wait` seconds: the awaitable behind `self.resources.acquire`.
#[pyfunction]
#[pyo3(signature = (pool, wait, make, limit, port))]
#[pyo3(name = "borrow")]
pub(crate) fn acquire_resource(
    pool: String,
    wait: f64,
    make: Option<Py<PyAny>>,
    limit: Option<u64>,
    port: Option<Py<OperationQueue>>,
) -> PyResult<Operation> {
    let refuse = |_| PyValueError::new_err(format!("wait={wait}: give seconds of 0 or more"));
    let wait = Duration::try_from_secs_f64(wait).map_err(refuse)?;
    Ok(Operation::new(OperationWork::Acquire(Box::new(ResourceAcquire { pool, wait, factory: make, limit })), port))
}

impl ResourceAcquire {
    pub(crate) async fn perform(self, probe: &ThreadRecorder) -> PyResult<Py<PyAny>> {
        let loan = self.acquire(probe).await?;
        Python::attach(|py| {
            let (id, payload) = (loan.id().to_owned(), loan.payload().to_owned());
            Ok(Py::new(py, PyResourceLease { loan: Mutex::new(Some(loan)), id, payload })?.into_any())
        })
    }

    async fn acquire(&self, probe: &ThreadRecorder) -> PyResult<squall_engine::ResourceLease> {
        let lender = probe.resources().map_err(acquire_error)?;
        if let Some(make) = &self.factory {
            while let Some(number) = match lender.acquire(&self.pool, Duration::ZERO).await {
                Ok(loan) => return Ok(loan),
                Err(ResourceError::Exhausted(_)) => {
                    lender.allocate_number(&self.pool, self.limit).await.map_err(acquire_error)?
                }
                Err(error) => return Err(acquire_error(error)),
            } {
                self.add_created(lender, make, number).await?;
            }
        }
        lender.acquire(&self.pool, self.wait).await.map_err(acquire_error)
    }

    /// Puts one more into the pool, where whoever is first in the queue finds it.
    async fn add_created(&self, lender: &ResourceClient, make: &Py<PyAny>, number: u64) -> PyResult<()> {
        let payload: String = Python::attach(|py| make.call1(py, (number,))?.extract(py))?;
        lender.add(&self.pool, number.to_string(), payload).await.map_err(acquire_error)
    }
}

fn acquire_error(error: ResourceError) -> PyErr {
    Python::attach(|py| exceptions::resource_error(py, &error))
}

//! Resources: borrows from the run's pools for a user, and has its factory make more where a pool has none left. Keeps nothing: what is
//! held by whom is known where the pools are.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_engine::{ResourceError, ResourceClient, ThreadRecorder};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    operation::{Operation, Work},
    port::Port,
    raise,
};

/// What somebody wants out of a pool.
pub(crate) struct Borrow {
    pool: String,
    wait: Duration,
    /// From a number to a payload, where things are made as they are needed.
    make: Option<Py<PyAny>>,
    /// Most things that are made.
    limit: Option<u64>,
}

/// Something that a user holds; when nobody refers to it any more, it goes back.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct Loan {
    loan: Mutex<Option<squall_engine::ResourceLease>>,
    /// Its name in the pool.
    #[pyo3(get)]
    id: String,
    /// JSON.
    #[pyo3(get)]
    payload: String,
}

#[pymethods]
impl Loan {
    /// Gives it back. Doing it twice is doing it once.
    fn release(&self) {
        drop(self.loan.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether it is certainly nobody else's.
    fn held(&self) -> bool {
        self.loan.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(squall_engine::ResourceLease::is_valid)
    }
}

/// Borrows something out of a pool, within `wait` seconds: the awaitable behind `self.resources.acquire`.
#[pyfunction]
#[pyo3(signature = (pool, wait, make, limit, port))]
pub(crate) fn borrow(
    pool: String,
    wait: f64,
    make: Option<Py<PyAny>>,
    limit: Option<u64>,
    port: Option<Py<Port>>,
) -> PyResult<Operation> {
    let refuse = |_| PyValueError::new_err(format!("wait={wait}: give seconds of 0 or more"));
    let wait = Duration::try_from_secs_f64(wait).map_err(refuse)?;
    Ok(Operation::new(Work::Borrow(Box::new(Borrow { pool, wait, make, limit })), port))
}

impl Borrow {
    pub(crate) async fn perform(self, probe: &ThreadRecorder) -> PyResult<Py<PyAny>> {
        let loan = self.find(probe).await?;
        Python::attach(|py| {
            let (id, payload) = (loan.id().to_owned(), loan.payload().to_owned());
            Ok(Py::new(py, Loan { loan: Mutex::new(Some(loan)), id, payload })?.into_any())
        })
    }

    async fn find(&self, probe: &ThreadRecorder) -> PyResult<squall_engine::ResourceLease> {
        let lender = probe.resources().map_err(failed)?;
        if let Some(make) = &self.make {
            while let Some(number) = match lender.acquire(&self.pool, Duration::ZERO).await {
                Ok(loan) => return Ok(loan),
                Err(ResourceError::Exhausted(_)) => lender.allocate_number(&self.pool, self.limit).await.map_err(failed)?,
                Err(error) => return Err(failed(error)),
            } {
                self.make(lender, make, number).await?;
            }
        }
        lender.acquire(&self.pool, self.wait).await.map_err(failed)
    }

    /// Puts one more into the pool, where whoever is first in the queue finds it.
    async fn make(&self, lender: &ResourceClient, make: &Py<PyAny>, number: u64) -> PyResult<()> {
        let payload: String = Python::attach(|py| make.call1(py, (number,))?.extract(py))?;
        lender.add(&self.pool, number.to_string(), payload).await.map_err(failed)
    }
}

fn failed(error: ResourceError) -> PyErr {
    Python::attach(|py| raise::not_lent(py, &error))
}

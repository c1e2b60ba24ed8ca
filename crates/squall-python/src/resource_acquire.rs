//! Acquires resources from the run's pools for a user, and creates more with the scenario's factory
//! when a pool is empty. It does not track leases; the pools do. `self.resources` of the SDK calls
//! it.

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

/// A request for a resource of a pool.
pub(crate) struct ResourceAcquire {
    pool: String,
    wait: Duration,
    /// Creates the payload of a new resource from its number. `None` for pools of fixed size.
    factory: Option<Py<PyAny>>,
    /// The most resources that the factory creates.
    limit: Option<u64>,
}

/// A resource that a user holds. It returns to the pool when Python drops the last reference.
#[pyclass(name = "ResourceLease", frozen, module = "squall._squall")]
pub(crate) struct PyResourceLease {
    lease: Mutex<Option<squall_engine::ResourceLease>>,
    /// The resource's name in the pool.
    #[pyo3(get)]
    id: String,
    /// The resource's payload in JSON.
    #[pyo3(get)]
    payload: String,
}

#[pymethods]
impl PyResourceLease {
    /// Returns the resource to the pool. A second call has no effect.
    fn release(&self) {
        drop(self.lease.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether the lease is valid, so that no other user can hold the resource.
    #[pyo3(name = "held")]
    fn is_held(&self) -> bool {
        self.lease
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(squall_engine::ResourceLease::is_valid)
    }
}

/// Acquires a resource of `pool` and waits at most `wait` seconds for it: the operation of
/// `self.resources.acquire`.
#[pyfunction]
#[pyo3(signature = (pool, wait, make, limit, queue))]
pub(crate) fn acquire_resource(
    pool: String,
    wait: f64,
    make: Option<Py<PyAny>>,
    limit: Option<u64>,
    queue: Option<Py<OperationQueue>>,
) -> PyResult<Operation> {
    let invalid_wait = |_| PyValueError::new_err(format!("wait={wait} is not a duration in seconds; give 0 or more"));
    let wait = Duration::try_from_secs_f64(wait).map_err(invalid_wait)?;
    Ok(Operation::new(OperationWork::Acquire(Box::new(ResourceAcquire { pool, wait, factory: make, limit })), queue))
}

impl ResourceAcquire {
    pub(crate) async fn perform(self, recorder: &ThreadRecorder) -> PyResult<Py<PyAny>> {
        let lease = self.acquire(recorder).await?;
        Python::attach(|py| {
            let (id, payload) = (lease.id().to_owned(), lease.payload().to_owned());
            Ok(Py::new(py, PyResourceLease { lease: Mutex::new(Some(lease)), id, payload })?.into_any())
        })
    }

    async fn acquire(&self, recorder: &ThreadRecorder) -> PyResult<squall_engine::ResourceLease> {
        let resources = recorder.resources().map_err(acquire_error)?;
        if let Some(make) = &self.factory {
            while let Some(number) = match resources.acquire(&self.pool, Duration::ZERO).await {
                Ok(lease) => return Ok(lease),
                Err(ResourceError::Exhausted(_)) => {
                    resources.allocate_number(&self.pool, self.limit).await.map_err(acquire_error)?
                }
                Err(error) => return Err(acquire_error(error)),
            } {
                self.add_created(resources, make, number).await?;
            }
        }
        resources.acquire(&self.pool, self.wait).await.map_err(acquire_error)
    }

    /// Creates a resource and adds it to the pool. The first user that waits for the pool gets it.
    async fn add_created(&self, resources: &ResourceClient, make: &Py<PyAny>, number: u64) -> PyResult<()> {
        let payload: String = Python::attach(|py| make.call1(py, (number,))?.extract(py))?;
        resources.add(&self.pool, number.to_string(), payload).await.map_err(acquire_error)
    }
}

fn acquire_error(error: ResourceError) -> PyErr {
    Python::attach(|py| exceptions::resource_error(py, &error))
}

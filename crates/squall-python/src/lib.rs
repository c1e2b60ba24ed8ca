//! The extension module `squall._squall`: runs Python scenarios, and runs the `squall` command
//! inside the user's own interpreter. It is not the SDK that scenarios import: that is
//! `python/squall`, which calls this module through the interface in `_squall.pyi`.

// The futures of a fleet on a Redis cluster nest too deeply for the default limit.
#![recursion_limit = "256"]

mod asyncio_loop;
mod attach;
mod blocking_threads;
#[cfg(feature = "browser")]
mod browser_users;
mod client;
mod combined_plan;
mod context_variables;
mod cql;
mod custom_metrics;
mod declared_plan;
mod driver;
mod exceptions;
mod function_stepper;
mod interpreter;
mod json_decode;
mod long_connection;
mod long_operation;
mod not_awaited;
mod operation;
mod operation_queue;
mod python_scenario;
mod request_encode;
mod resource_acquire;
mod response;
mod routes;
mod run_hooks;
mod running_code;
mod stream;
mod streamed_response;
mod watchdog;
mod websocket;

use pyo3::prelude::*;

// Nothing here relies on the GIL: state that threads share is behind its own locks.
#[pymodule(gil_used = false)]
mod _squall {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        blocking_threads::{on_blocking_thread, wait_on_thread},
        client::{Client, sleep, timer},
        cql::CqlStatement,
        custom_metrics::emit,
        not_awaited::report_not_awaited,
        operation::Operation,
        operation_queue::OperationQueue,
        resource_acquire::{PyResourceLease, acquire_resource},
        response::{PyHeaders, PyResponse},
        run::main,
        running_code::mark_forked_child,
        stream::{
            OpenedStream, StreamAppConnection, StreamEvent, StreamMailbox, StreamRunHandle, StreamSource, StreamWorker,
            connect, stream_logs,
        },
        streamed_response::PyStreamedResponse,
        websocket::WebSocket,
    };

    #[cfg(feature = "browser")]
    #[pymodule_export]
    use super::browser_users::{
        PythonBrowserStep, browser_page_script, browser_settings, give_up_browser, register_browser_driver,
        release_browser_driver, start_browser,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

mod run {
    use super::*;
    use std::ffi::OsString;

    /// Runs one command line, program name included, and returns the exit code.
    #[pyfunction]
    pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| {
            let code = squall_cli::main_with(arguments.clone(), &interpreter::Interpreter { arguments });
            running_code::end_process_if_code_runs(code);
            code
        })
    }
}

//! `squall._squall`: drives Python scenarios, and is the `squall` command inside the user's own interpreter. The SDK that people
//! import is `python/squall`; what the two say to each other is in `_squall.pyi`.

// The futures of a fleet on a Redis cluster are deeply nested.
#![recursion_limit = "256"]

mod attach;
mod borrow;
mod client;
mod context;
mod custom;
mod decode;
mod driver;
mod encode;
mod ensemble;
mod forgotten;
mod guest;
mod hooks;
mod host;
mod job;
mod live;
mod operation;
mod port;
mod raise;
mod response;
mod routes;
mod script;
mod step;
mod stream;
mod streamed;
mod watchdog;
mod websocket;

use pyo3::prelude::*;

// Nothing here relies on a lock around the interpreter: what threads share is behind locks of its own.
#[pymodule(gil_used = false)]
mod _squall {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        borrow::{Loan, borrow},
        client::{Client, sleep, timer},
        custom::emit,
        forgotten::forgot,
        operation::Operation,
        port::Port,
        response::{Headers, Response},
        run::main,
        stream::{
            Stream, StreamEvent, StreamLink, StreamPost, StreamSource, StreamTurn, StreamWorker, connect, stream_logs,
        },
        streamed::StreamedAnswer,
        websocket::WebSocket,
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
        py.detach(|| squall_cli::main_with(arguments.clone(), &host::Interpreter { arguments }))
    }
}

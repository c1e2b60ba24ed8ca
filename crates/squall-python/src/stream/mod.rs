//! Stream processors in Python. `squall-streams` fetches events, holds leases and acknowledges on
//! its own thread; the Python functions run on one asyncio loop. The two threads exchange messages
//! through a [`mailbox`], so that the engine never waits for the interpreter and a worker with busy
//! Python code still sends heartbeats. The engine thread never attaches to the interpreter: Python
//! calls this module, and this module calls no Python on its own.

mod app_connection;
mod coroutine_run;
mod engine_thread;
mod logs;
mod mailbox;
mod partition_events;
mod prometheus;
mod stream_worker;

pub(crate) use {
    app_connection::{OpenedStream, StreamAppConnection, connect},
    coroutine_run::StreamRunHandle,
    logs::stream_logs,
    mailbox::StreamMailbox,
    partition_events::{StreamEvent, StreamSource},
    stream_worker::StreamWorker,
};

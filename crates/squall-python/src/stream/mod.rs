//! Stream processors in Python: the streams room fetches, holds leases and acknowledges on a thread of its own; the functions run on
//! one asyncio loop. The two threads meet in a mailbox ([`post`]), so that the engine never waits for the interpreter: a worker whose
//! Python is busy still beats. Refuses to attach; Python calls in, and nothing calls out.

mod coroutine_run;
mod engine_thread;
mod logs;
mod mailbox;
mod partition_events;
mod prometheus;
mod stream_worker;

mod app_connection;

pub(crate) use {
    app_connection::{OpenedStream, StreamAppConnection, connect},
    coroutine_run::StreamRunHandle,
    logs::stream_logs,
    mailbox::StreamMailbox,
    partition_events::{StreamEvent, StreamSource},
    stream_worker::StreamWorker,
};

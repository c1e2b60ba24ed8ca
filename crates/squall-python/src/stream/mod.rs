//! Stream processors in Python: the streams room fetches, holds leases and acknowledges on a thread of its own; the functions run on
//! one asyncio loop. The two threads meet in a mailbox ([`post`]), so that the engine never waits for the interpreter: a worker whose
//! Python is busy still beats. Refuses to attach; Python calls in, and nothing calls out.

mod logs;
mod post;
mod runtime;
mod scrape;
mod source;
mod turn;
mod work;

mod link;

pub(crate) use {
    link::{Stream, StreamLink, connect},
    logs::stream_logs,
    post::StreamPost,
    source::{StreamEvent, StreamSource},
    turn::StreamTurn,
    work::StreamWorker,
};
